//===- Differentiate.cpp - From a chain to that of its gradient -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   %0 = attn.init %q                        %0 = attn.init_gradient %q
//   %1 = attn.update %0, %q, %kv see ...  => %1 = attn.update %0, %q, %kv see ...
//   %o, %lse = attn.finish %1                attn.write_gradient %1 of %q
//   return %o, %lse                          return
//
// The updates stay, each with its region, visibility and scale: they add to
// another monoid (AttnGradientOps.td). A kernel with stationary tokens has only
// the update of its region. Sinks have no effect here: they are not tokens, and
// the LSE counts them.
//
// If kernels with stationary tokens add to the gradient of rows, too,
// kernels with stationary rows have no update: one begins the sums, before the
// others, and one ends them, after the others (AttnGradientOps.td).
//
// Significance of tokens differs from the gradient of values only in the factor
// of the weights (AttnSignificanceOps.td). It takes the same steps, with
// attn.init_significance.
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"

#include "attn/Conversion/Passes.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

struct Differentiate : mlir::attn::impl::DifferentiatePassBase<Differentiate> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      StationaryAttr stationary = gradientAttr.get(kernel);
      if (!stationary)
        continue;
      FailureOr<Chain> chain = findChain(kernel);
      if (failed(chain) || failed(verify(*chain, stationary.getValue())))
        return signalPassFailure();
      differentiate(*chain, stationary.getValue());
    }
  }

  static LogicalResult verify(Chain &chain, Stationary stationary) {
    const bool ofTokens = keepsTokens(stationary);
    IntegerAttr operand = operandAttr.get(chain.function);
    if (ofTokens && (!operand || operand.getValue().uge(chain.updates.size())))
      return chain.function.emitError("expected ") << operandAttr << " to be the number of a region";
    if (FusedPartAttr part = fusedPartAttr.get(chain.function);
        part && (part.getValue() == FusedPart::Add || part.getValue() == FusedPart::AddInOrder) != ofTokens)
      return chain.function.emitError("expected ")
             << fusedPartAttr
             << " of begin or end for stationary rows, and of add or add_in_order for stationary tokens, got "
             << part;
    if (!chain.changes.empty())
      return chain.changes.front()->emitOpError("has no gradient: expected a single chain of updates");
    return success();
  }

  static void differentiate(Chain &chain, Stationary stationary) {
    func::FuncOp kernel = chain.function;
    TogetherAttr together = weighsTokensAttr.get(kernel);
    SmallVector<UpdateOp> updates = chain.updates;
    Value part = chain.query();
    if (keepsTokens(stationary)) {
      int64_t operand = operandAttr.get(kernel).getInt();
      Builder b(kernel.getContext());
      firstEndAttr.set(kernel, b.getI32IntegerAttr(chain.firstEnd(operand)));
      if (updates.size() == 1)
        operandAttr.remove(kernel); // every task has this operand
      updates = {updates[operand]};
      part = updates.front().getKv();
    }
    ImplicitLocOpBuilder b(chain.finish.getLoc(), chain.finish);
    FusedPartAttr fused = fusedPartAttr.get(kernel);
    auto is = [&](FusedPart which) { return fused && fused.getValue() == which; };
    const bool begins = is(FusedPart::Begin), ends = is(FusedPart::End);
    IntegerAttr kvHeads;
    if (begins || ends)
      kvHeads = b.getI64IntegerAttr(chain.kvHeads()), updates.clear();
    Value sum;
    if (together)
      sum = InitSignificanceOp::create(
          b, SignificanceType::get(kernel.getContext(), together.getValue(), chain.queryHeads()), part);
    else
      sum = InitGradientOp::create(b,
                                   GradientType::get(kernel.getContext(), stationary, chain.queryHeads(),
                                                     chain.keyDim(), chain.valueDim()),
                                   part, /*after=*/Value(), !ends && chain.finish.getLse() != nullptr,
                                   /*adds_rows=*/is(FusedPart::Add) || is(FusedPart::AddInOrder),
                                   /*in_order=*/is(FusedPart::AddInOrder), /*summed=*/ends, kvHeads);
    Type type = sum.getType();
    for (UpdateOp update : updates) {
      IRMapping mapping;
      mapping.map(update.getState(), sum);
      sum = b.clone(*update, mapping)->getResult(0);
      sum.setType(type);
    }
    if (together)
      WriteSignificanceOp::create(b, sum, part);
    else
      WriteGradientOp::create(b, sum, part, /*partial=*/Value(), /*sums=*/begins);
    fusedPartAttr.remove(kernel);
    Operation *end = kernel.front().getTerminator();
    func::ReturnOp::create(b);
    end->erase();
    kernel.setFunctionType(b.getFunctionType(kernel.getArgumentTypes(), {}));
    kernel.removeResAttrsAttr();
    chain.finish.erase();
    for (UpdateOp update : llvm::reverse(chain.updates))
      update.erase();
    for (InitOp init : chain.inits)
      init.erase();
  }
};

} // namespace
