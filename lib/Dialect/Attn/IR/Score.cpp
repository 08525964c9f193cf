//===- Score.cpp - Legal contents of score regions ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Score.h"
#include "Verify.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace mlir::attn;

bool mlir::attn::isLegalInScore(Operation *op) {
  return isa<arith::ConstantOp, arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, arith::NegFOp,
             arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp, arith::MinNumFOp, arith::CmpFOp,
             arith::SelectOp, arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::DivSIOp, arith::DivUIOp,
             arith::RemSIOp, arith::RemUIOp, arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp, arith::AndIOp,
             arith::OrIOp, arith::XOrIOp, arith::MaxSIOp, arith::MinSIOp, arith::MaxUIOp, arith::MinUIOp,
             arith::CmpIOp, arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp, arith::ExtSIOp, arith::ExtUIOp,
             arith::TruncIOp, math::TanhOp, math::ExpOp, math::Exp2Op, math::LogOp, math::Log2Op,
             math::AbsFOp, math::SqrtOp, math::FmaOp, ReadOp, YieldOp>(op);
}

bool mlir::attn::usesApproximateFunctions(Region &score) {
  return score
      .walk([](math::TanhOp tanh) {
        bool approximate = arith::bitEnumContainsAny(tanh.getFastmath(), arith::FastMathFlags::afn);
        return approximate ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

IndexedBy mlir::attn::indexedBy(Operation *read) {
  constexpr unsigned head = 1, rowPosition = 2; // arguments of the region
  IndexedBy found = IndexedBy::Head;
  SmallVector<Operation *> open{read};
  llvm::SmallPtrSet<Operation *, 8> seen;
  while (!open.empty()) {
    Operation *op = open.pop_back_val();
    if (!seen.insert(op).second)
      continue;
    for (Value operand : op->getOperands()) {
      auto argument = dyn_cast<BlockArgument>(operand);
      if (Operation *definition = operand.getDefiningOp())
        open.push_back(definition);
      else if (argument.getOwner() != read->getBlock() || argument.getArgNumber() == head)
        continue;
      else if (argument.getArgNumber() != rowPosition)
        return IndexedBy::Pair;
      else
        found = IndexedBy::Row;
    }
  }
  return found;
}

static bool isScalar(Type type) { return type.isF32() || type.isInteger(32) || type.isInteger(1); }

namespace {

/// Verifies the contents of a region of scalars.
class ScalarRegion {
public:
  /// `what`: the region's name in messages.
  ScalarRegion(Operation *owner, Region &region, StringRef what) : owner(owner), region(region), what(what) {}

  /// `expected`: the legal operations, for messages.
  LogicalResult verify(function_ref<bool(Operation *)> isLegal, StringRef expected) const {
    for (Operation &op : region.front()) {
      if (!isLegal(&op))
        return error(&op) << "is not allowed in a " << what << "; expected " << expected;
      auto isIllegal = [](Type type) { return !isScalar(type); };
      // A read checks its own tensor.
      TypeRange operands = isa<ReadOp>(op) ? TypeRange() : TypeRange(op.getOperandTypes());
      SmallVector<Type> types(operands);
      llvm::append_range(types, op.getResultTypes());
      if (auto *type = llvm::find_if(types, isIllegal); type != types.end())
        return error(&op) << "expected f32, i32 or i1 in a " << what << ", got " << *type;
      for (Value operand : op.getOperands())
        if (operand.getParentRegion() != &region && !isa<TensorType>(operand.getType()) &&
            !matchPattern(operand, m_Constant()))
          return error(&op) << "expected a value from outside the " << what
                            << " to be a constant; tensors are read with attn.read";
      if (failed(verifyConstantOperand(&op)) || failed(verifyTruthValues(&op)))
        return failure();
    }
    return success();
  }

private:
  /// Emits an error at the offending operation, and a note at the operation that owns the region.
  InFlightDiagnostic error(Operation *op) const {
    InFlightDiagnostic diagnostic = op->emitOpError();
    diagnostic.attachNote(owner->getLoc()) << "in the " << what << " of this operation";
    return diagnostic;
  }

  /// Division by zero and oversized shifts are undefined: only constants are known to be legal.
  LogicalResult verifyConstantOperand(Operation *op) const {
    bool divides = isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp>(op);
    if (!divides && !isa<arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp>(op))
      return success();
    APInt value;
    unsigned width = op->getResult(0).getType().getIntOrFloatBitWidth();
    if (!matchPattern(op->getOperand(1), m_ConstantInt(&value)))
      return error(op) << "expected the right operand to be a constant in a " << what;
    if (divides && !value.isStrictlyPositive())
      return error(op) << "expected a positive constant as divisor in a " << what << ", got "
                       << value.getSExtValue();
    if (!divides && value.uge(width))
      return error(op) << "expected a shift from 0 to " << width - 1 << " in a " << what << ", got "
                       << value.getSExtValue();
    return success();
  }

  /// Truth values have no arithmetic: signs and carries of one bit are ambiguous.
  LogicalResult verifyTruthValues(Operation *op) const {
    bool legal =
        isa<arith::AndIOp, arith::OrIOp, arith::XOrIOp, arith::SelectOp, arith::ExtSIOp, arith::ExtUIOp,
            arith::UIToFPOp, arith::TruncIOp, arith::CmpIOp, arith::CmpFOp, arith::ConstantOp>(op) ||
        op->hasTrait<OpTrait::IsTerminator>();
    for (Value operand : op->getOperands())
      if (operand.getType().isInteger(1) && (!legal || isa<arith::CmpIOp>(op)))
        return error(op) << "expected i32 operands in a " << what << ", got 'i1'";
    return success();
  }

  Operation *owner;
  Region &region;
  StringRef what;
};

} // namespace

LogicalResult mlir::attn::detail::verifyScore(Operation *owner, Region &score) {
  if (score.empty())
    return success();
  Block &block = score.front();
  MLIRContext *context = owner->getContext();
  Type i32 = IntegerType::get(context, 32);
  Type expected[] = {Float32Type::get(context), i32, i32, i32};
  if (block.getArgumentTypes() != TypeRange(expected)) {
    InFlightDiagnostic error = owner->emitOpError(
        "expected the score region to take (f32, i32, i32, i32): the score, the query head and "
        "the positions of query and key; got (");
    llvm::interleaveComma(block.getArgumentTypes(), error);
    return error << ")";
  }
  if (block.empty() || !isa<YieldOp>(block.back()))
    return owner->emitOpError("expected the score region to end with attn.yield");
  return ScalarRegion(owner, score, "score region")
      .verify(isLegalInScore,
              "scalar arith, attn.read, or math.tanh, exp, exp2, log, log2, absf, sqrt or fma");
}

LogicalResult mlir::attn::detail::verifyPolicy(Operation *owner, Region &region, StringRef name,
                                               TypeRange expected, StringRef terminator) {
  const std::string what = (name + " region").str();
  Block &block = region.front();
  if (block.getArgumentTypes() != expected) {
    InFlightDiagnostic error = owner->emitOpError("expected the ") << what << " to take (";
    llvm::interleaveComma(expected, error);
    error << "), got (";
    llvm::interleaveComma(block.getArgumentTypes(), error);
    return error << ")";
  }
  auto isEnd = [&](Operation *op) { return op->getName().getStringRef() == terminator; };
  if (block.empty() || !isEnd(&block.back()))
    return owner->emitOpError("expected the ") << what << " to end with " << terminator;
  auto isLegal = [&](Operation *op) {
    return isEnd(op) || (isLegalInScore(op) && !isa<ReadOp, YieldOp>(op));
  };
  return ScalarRegion(owner, region, what)
      .verify(isLegal, "scalar arith, or math.tanh, exp, exp2, log, log2, absf, sqrt or fma");
}
