//===- ExpandOnline.cpp - Online operations become tile operations --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every online operation is replaced, in place, by its own expansion. A cast
// gathers the values that stand for its result (Expansion.h). Loops that carry
// states carry these values instead, except those that no iteration changes.
// When nothing needs them any more, the casts are erased, and so are the
// arguments of the function that the kernel came from.
//
//===----------------------------------------------------------------------===//
#include "Expansion.h"

#include "attn/Conversion/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_EXPANDONLINEPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

/// Whether a loop carries the pieces of a value: of a state, or of the output of parts that it folds.
bool isState(Value value) {
  return isa<StateType, GradientType, SignificanceType, RankedTensorType>(value.getType());
}

template <typename ExpansionT> class Expander {
public:
  Expander(ExpansionT &expansion) : expansion(expansion), b(expansion.b) {}

  LogicalResult run() {
    if (failed(expand(expansion.b.kernel.front())))
      return failure();
    for (Operation *op : llvm::reverse(left)) {
      op->dropAllUses();
      op->erase();
    }
    SmallVector<UnrealizedConversionCastOp> casts;
    b.kernel.walk([&](UnrealizedConversionCastOp cast) { casts.push_back(cast); });
    for (UnrealizedConversionCastOp cast : llvm::reverse(casts))
      cast.erase();
    return success();
  }

private:
  LogicalResult expand(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(block)) {
      b.setInsertionPoint(&op);
      if (auto online = dyn_cast<OnlineOpInterface>(op)) {
        if (failed(expandOne(online)))
          return failure();
        left.push_back(&op);
      } else if (auto loop = dyn_cast<scf::ForOp>(op); loop && llvm::any_of(loop.getInitArgs(), isState)) {
        if (failed(expandLoop(loop)))
          return failure();
      } else if (auto branch = dyn_cast<scf::IfOp>(op);
                 branch && llvm::any_of(branch.getResults(), isState)) {
        if (failed(expandBranch(branch)))
          return failure();
      } else {
        for (Region &region : op.getRegions())
          for (Block &inner : region)
            if (failed(expand(inner)))
              return failure();
      }
    }
    return success();
  }

  LogicalResult expandOne(OnlineOpInterface op) {
    if constexpr (std::is_same_v<ExpansionT, FragmentExpansion>)
      return op.expandOnFragments(expansion);
    else
      return op.expandOnLanes(expansion);
  }

  /// The values that a loop carries for `values`.
  static SmallVector<Value> flatten(ValueRange values) {
    SmallVector<Value> flat;
    for (Value value : values)
      if (isState(value))
        llvm::append_range(flat, piecesOf(value).drop_back(ExpansionT::invariants(value.getType())));
      else
        flat.push_back(value);
    return flat;
  }

  /// Lets `flat` stand for `values` from the insertion point on. A state takes its invariants from `inits`.
  void stand(ValueRange values, ValueRange flat, ValueRange inits) {
    for (auto [value, init] : llvm::zip(values, inits)) {
      if (!isState(value)) {
        value.replaceAllUsesWith(flat.front());
        flat = flat.drop_front();
        continue;
      }
      ValueRange like = piecesOf(init);
      unsigned same = ExpansionT::invariants(value.getType()), count = like.size() - same;
      SmallVector<Value> pieces(flat.take_front(count));
      llvm::append_range(pieces, like.take_back(same));
      become(b, value, pieces);
      flat = flat.drop_front(count);
    }
  }

  LogicalResult expandLoop(scf::ForOp loop) {
    auto carried = scf::ForOp::create(b, loop.getLowerBound(), loop.getUpperBound(), loop.getStep(),
                                      flatten(loop.getInitArgs()));
    carried->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
    Block &body = *carried.getBody();
    if (!body.empty())
      body.getTerminator()->erase();
    body.getOperations().splice(body.end(), loop.getBody()->getOperations());
    loop.getInductionVar().replaceAllUsesWith(carried.getInductionVar());
    stand(loop.getResults(), carried.getResults(), loop.getInitArgs());
    b.setInsertionPointToStart(&body);
    stand(loop.getRegionIterArgs(), carried.getRegionIterArgs(), loop.getInitArgs());
    left.push_back(loop);
    if (failed(expand(body)))
      return failure();
    Operation *yield = body.getTerminator();
    b.setInsertionPoint(yield);
    scf::YieldOp::create(b, flatten(yield->getOperands()));
    yield->erase();
    return success();
  }

  LogicalResult expandBranch(scf::IfOp branch) {
    for (Block *block : {branch.thenBlock(), branch.elseBlock()})
      if (failed(expand(*block)))
        return failure();
    SmallVector<Value> states(branch.thenYield().getOperands()); // the other branch has as many pieces
    b.setInsertionPoint(branch);
    auto expanded = scf::IfOp::create(b, TypeRange(flatten(states)), branch.getCondition(), true);
    for (auto [from, to] : llvm::zip_equal(branch->getRegions(), expanded->getRegions())) {
      to.takeBody(from);
      Operation *yield = to.front().getTerminator();
      b.setInsertionPoint(yield);
      scf::YieldOp::create(b, flatten(yield->getOperands()));
      yield->erase();
    }
    b.setInsertionPointAfter(expanded);
    stand(branch.getResults(), expanded.getResults(), states);
    left.push_back(branch);
    return success();
  }

  ExpansionT &expansion;
  KernelBuilder &b;
  SmallVector<Operation *> left; ///< dead operations; an operation's users come after it
};

struct ExpandOnline : mlir::attn::impl::ExpandOnlinePassBase<ExpandOnline> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      FinishOp finish;
      bool readsFinished = false;
      kernel.walk([&](Operation *op) {
        readsFinished |= isa<WriteGradientOp, WriteSignificanceOp>(op);
        if (auto found = dyn_cast<FinishOp>(op))
          finish = found;
      });
      if (!finish && !readsFinished)
        continue;
      if (!tile::parametersAttr.isOn(kernel) ||
          (!tile::scheduleAttr.isOn(kernel) && !tile::mergeScheduleAttr.isOn(kernel))) {
        kernel.emitError("expected a kernel that walks the plan: --attn-walk-plan makes it");
        return signalPassFailure();
      }
      if (failed(tile::scheduleAttr.isOn(kernel) ? expandOnFragments(kernel)
                                                 : expandOnLanes(kernel, finish.getState().getType())))
        return signalPassFailure();
      eraseSourceArguments(kernel);
    }
  }

  static LogicalResult expandOnFragments(func::FuncOp kernel) {
    if (!formAttr.isOn(kernel))
      return kernel.emitError("expected an ") << formAttr << ": --attn-walk-plan sets it";
    FragmentExpansion expansion(kernel);
    if (failed(Expander(expansion).run()))
      return failure();
    expansion.b.describeParameters();
    formAttr.remove(kernel); // the types of fragments hold it now
    return success();
  }

  static LogicalResult expandOnLanes(func::FuncOp kernel, StateType type) {
    LaneExpansion expansion(type, kernel);
    if (failed(Expander(expansion).run()))
      return failure();
    expansion.b.describeParameters();
    return success();
  }
};

} // namespace
