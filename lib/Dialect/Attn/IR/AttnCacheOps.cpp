//===- AttnCacheOps.cpp - Rows into, within and out of a cache ------------===//
#include "Verify.h"
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Support/Elements.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::attn;

std::optional<RowCopy> mlir::attn::rowCopyOf(Operation *op) {
  return TypeSwitch<Operation *, std::optional<RowCopy>>(op)
      .Case([&](AppendRowsOp append) {
        return RowCopy{op, append.getKv(), Value(), append.getSlots(), append.getK(), append.getV()};
      })
      .Case([&](MoveRowsOp move) {
        return RowCopy{op, move.getKv(), move.getFrom(), move.getTo(), Value(), Value()};
      })
      .Case([&](GatherRowsOp gather) {
        return RowCopy{op, gather.getKv(), gather.getSlots(), Value(), gather.getK(), gather.getV()};
      })
      .Default(std::nullopt);
}

std::optional<RowCopy> mlir::attn::findRowCopy(func::FuncOp func) {
  std::optional<RowCopy> found;
  func.walk([&](Operation *op) {
    found = rowCopyOf(op);
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

static LogicalResult verifyRowCopy(const RowCopy &copy) {
  Operation *op = copy.op;
  KVType type = copy.type();
  if (type.getStore() == Store::Dense)
    return op->emitOpError("expected a paged or a packed cache, got ")
           << type << "; dense memory is a packed cache of instances * tokens slots";
  for (Type element : {type.getKey(), type.getValue()})
    if (!isMultiplied(element))
      return op->emitOpError("expected a cache of f16 or bf16, got ")
             << type << "; codes and their scales are attended, and not yet written, moved or gathered";
  if (type.isOfClass())
    return op->emitOpError("expected a cache that says how many KV heads it holds, got ")
           << type << "; heads = ? is for attentions: say how many heads the class has";
  if (type.getRagged())
    return op->emitOpError("expected a cache of which a slot holds all KV heads, got ")
           << type << "; write each head of a ragged one as a cache of its own, of heads = 1";
  Type i32 = IntegerType::get(op->getContext(), 32);
  auto list = RankedTensorType::get({ShapedType::kDynamic}, i32);
  for (Value slots : {copy.from, copy.to})
    if (slots && slots.getType() != list)
      return op->emitOpError("expected slots to be ") << list << ", got " << slots.getType();
  for (auto [what, rows, dim, element] :
       {std::tuple("keys", copy.k, type.getKeyDim(), type.getKey()),
        std::tuple("values", copy.v, type.getValueDim(), type.getValue())}) {
    auto expected =
        RankedTensorType::get({ShapedType::kDynamic, ShapedType::kDynamic, type.getHeads(), dim}, element);
    if (rows && rows.getType() != expected)
      return op->emitOpError("expected ")
             << what << " by row of a cache of that type to be " << expected << ", got " << rows.getType();
  }
  return success();
}

LogicalResult AppendRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
LogicalResult MoveRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
LogicalResult GatherRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
