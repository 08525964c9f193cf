//===- LowerCacheHints.cpp - L2 hints as PTX text -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Loads, stores and copies with a hint become inline assembly that passes a policy, which is created at the
// beginning of the kernel. Before PTX 7.4 there is none, and stores and copies are unchanged. Loads become
// assembly anyway, because LLVM does not move assembly. It would move a load to the one branch that uses it,
// and loads that should be in flight together would wait for one another after the stores of other branches.
//
// A copy with a policy has a trap. Its shared-memory address may be a lane's own offset plus a number that is
// uniform in a warp. ptxas (12.8, 13.0) merges both into an instruction that loses the policy and that
// number; a GPU stops there. So the address is or-ed with a zero of which ptxas knows neither that it is zero
// nor that it is uniform. `ptxas` of the tests looks for that instruction.
//
//===----------------------------------------------------------------------===//
#include "attn/Target/PTX.h"

#include "attn/Dialect/Tile/IR/CacheHint.h"

#include "mlir/IR/PatternMatch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::attn;

namespace {

/// The lowest version with policies.
constexpr unsigned policiesFrom = 74;

class HintsOfKernel {
public:
  HintsOfKernel(LLVM::LLVMFuncOp kernel, const Chip &chip)
      : kernel(kernel), rewriter(kernel.getContext()), hasPolicies(chip.ptxVersion >= policiesFrom) {}

  void lower(Operation *access) {
    rewriter.setInsertionPoint(access);
    if (auto load = dyn_cast<LLVM::LoadOp>(access))
      lowerLoad(load);
    else if (auto store = dyn_cast<LLVM::StoreOp>(access);
             store && tile::cacheHintOf(store) == tile::discards)
      lowerDiscard(store);
    else if (store && hasPolicies)
      lowerStore(store);
    else if (auto copy = dyn_cast<NVVM::CpAsyncOp>(access); copy && hasPolicies)
      lowerCopy(copy);
  }

private:
  void lowerLoad(LLVM::LoadOp load) {
    auto vector = dyn_cast<VectorType>(load.getType());
    Type element = vector ? vector.getElementType() : load.getType();
    int64_t count = vector ? vector.getNumElements() : 1;
    std::string registers, constraints;
    for (int64_t i = 0; i < count; ++i) {
      registers += llvm::formatv("{0}${1}", i ? ", " : "", i).str();
      constraints += std::string("=") + constraintOf(element) + ",";
    }
    if (vector)
      registers = "{" + registers + "}";
    SmallVector<Value> operands{load.getAddr()};
    std::string policy = addPolicy(load, operands, count);
    std::string text = llvm::formatv("ld.global{0}{1}.b{2} {3}, [${4}]{5};", hintOf(policy),
                                     vector ? ".v" + std::to_string(count) : "",
                                     element.getIntOrFloatBitWidth(), registers, count, policy)
                           .str();
    SmallVector<Type> types(count, element);
    Type result = vector ? Type(LLVM::LLVMStructType::getLiteral(load.getContext(), types)) : element;
    Value loaded = assembly(load.getLoc(), result, operands, text,
                            constraints + (policy.empty() ? "l" : "l,l"), /*effects=*/true);
    if (!vector)
      return rewriter.replaceOp(load, loaded);
    Value joined = LLVM::PoisonOp::create(rewriter, load.getLoc(), vector);
    for (int64_t i = 0; i < count; ++i) {
      Value place = LLVM::ConstantOp::create(rewriter, load.getLoc(), rewriter.getI32IntegerAttr(i));
      Value one = LLVM::ExtractValueOp::create(rewriter, load.getLoc(), loaded, i);
      joined = LLVM::InsertElementOp::create(rewriter, load.getLoc(), joined, one, place);
    }
    rewriter.replaceOp(load, joined);
  }

  void lowerStore(LLVM::StoreOp store) {
    Type type = store.getValue().getType();
    SmallVector<Value> operands{store.getAddr(), store.getValue()};
    std::string policy = addPolicy(store, operands, 0);
    std::string text =
        llvm::formatv("st.global{0}.b{1} [$0], $1{2};", hintOf(policy), type.getIntOrFloatBitWidth(), policy)
            .str();
    assembly(store.getLoc(), Type(), operands, text, std::string("l,") + constraintOf(type) + ",l",
             /*effects=*/true);
    rewriter.eraseOp(store);
  }

  void lowerCopy(NVVM::CpAsyncOp copy) {
    SmallVector<Value> operands{copy.getDst(), zeroOfLane(), copy.getSrc()};
    std::string constraints = "l,l,l", size;
    if (Value existing = copy.getCpSize()) {
      operands.push_back(existing);
      constraints += ",r", size = ", $3";
    }
    std::string policy = addPolicy(copy, operands, 0);
    std::string text = llvm::formatv("{{ .reg .b64 to; or.b64 to, $0, $1; "
                                     "cp.async.{0}.shared.global{1} [to], [$2], {2}{3}{4}; }",
                                     NVVM::stringifyLoadCacheModifierKind(copy.getModifier()), hintOf(policy),
                                     copy.getSize(), size, policy)
                           .str();
    assembly(copy.getLoc(), Type(), operands, text, constraints + ",l", /*effects=*/true);
    rewriter.eraseOp(copy);
  }

  /// Returns a zero from two lane masks: no lane precedes itself.
  Value zeroOfLane() {
    if (!zero) {
      OpBuilder::InsertionGuard guard(rewriter);
      rewriter.setInsertionPointToStart(&kernel.front());
      zero = assembly(kernel.getLoc(), rewriter.getI64Type(), {},
                      "{ .reg .b32 own, before; mov.u32 own, %lanemask_eq; mov.u32 before, %lanemask_lt; "
                      "and.b32 own, own, before; cvt.u64.u32 $0, own; }",
                      "=l", /*effects=*/false);
    }
    return zero;
  }

  void lowerDiscard(LLVM::StoreOp store) {
    if (hasPolicies) {
      std::string text = llvm::formatv("discard.global.L2 [$0], {0};", tile::discardedBytes).str();
      assembly(store.getLoc(), Type(), store.getAddr(), text, "l", /*effects=*/true);
    }
    rewriter.eraseOp(store);
  }

  static const char *constraintOf(Type type) {
    return type.isF32() ? "f" : type.getIntOrFloatBitWidth() == 16 ? "h" : "r";
  }
  static const char *hintOf(const std::string &policy) { return policy.empty() ? "" : ".L2::cache_hint"; }

  /// Adds the access's policy to its operands; returns the rest of the text, if `outputs` operands are
  /// results.
  std::string addPolicy(Operation *access, SmallVector<Value> &operands, int64_t outputs) {
    if (!hasPolicies)
      return "";
    StringAttr hint = tile::cacheHintOf(access);
    Value &policy = policies[hint];
    if (!policy) {
      OpBuilder::InsertionGuard guard(rewriter);
      rewriter.setInsertionPointToStart(&kernel.front());
      policy = assembly(kernel.getLoc(), rewriter.getI64Type(), {},
                        "createpolicy.fractional.L2::" + hint.str() + ".b64 $0, 1.0;", "=l",
                        /*effects=*/false);
    }
    operands.push_back(policy);
    return ", $" + std::to_string(outputs + operands.size() - 1);
  }

  Value assembly(Location loc, Type result, ValueRange operands, StringRef text, StringRef constraints,
                 bool effects) {
    auto op = LLVM::InlineAsmOp::create(
        rewriter, loc, result ? TypeRange(result) : TypeRange(), operands, text, constraints, effects,
        /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
        LLVM::AsmDialectAttr::get(rewriter.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
    return result ? op.getResult(0) : Value();
  }

  LLVM::LLVMFuncOp kernel;
  IRRewriter rewriter;
  bool hasPolicies;
  Value zero; ///< see zeroOfLane
  DenseMap<StringAttr, Value> policies;
};

} // namespace

void mlir::attn::lowerCacheHints(gpu::GPUModuleOp module, const Chip &chip) {
  for (auto kernel : module.getOps<LLVM::LLVMFuncOp>()) {
    SmallVector<Operation *> accesses;
    kernel.walk([&](Operation *op) {
      if (tile::cacheHintOf(op))
        accesses.push_back(op);
    });
    HintsOfKernel hints(kernel, chip);
    for (Operation *access : accesses)
      hints.lower(access);
  }
}
