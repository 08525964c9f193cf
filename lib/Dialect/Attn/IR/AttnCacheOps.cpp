//===- AttnCacheOps.cpp - Rows into, within and out of a cache ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Attn/IR/Stores.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::attn;

std::optional<RowCopy> mlir::attn::rowCopyOf(Operation *op) {
  return TypeSwitch<Operation *, std::optional<RowCopy>>(op)
      .Case([&](AppendRowsOp append) {
        return RowCopy{.op = op,
                       .cache = append.getKv(),
                       .to = append.getSlots(),
                       .k = append.getK(),
                       .v = append.getV(),
                       .status = append.getStatus()};
      })
      .Case([&](MoveRowsOp move) {
        return RowCopy{.op = op, .cache = move.getKv(), .from = move.getFrom(), .to = move.getTo()};
      })
      .Case([&](GatherRowsOp gather) {
        return RowCopy{.op = op,
                       .cache = gather.getKv(),
                       .from = gather.getSlots(),
                       .k = gather.getK(),
                       .v = gather.getV()};
      })
      .Case([&](RequantizeRowsOp requantize) {
        return RowCopy{.op = op,
                       .cache = requantize.getKv(),
                       .into = requantize.getInto(),
                       .from = requantize.getFrom(),
                       .to = requantize.getTo(),
                       .status = requantize.getStatus()};
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

static LogicalResult verifyCache(Operation *op, KVType type) {
  if (type.getStore() == Store::Dense)
    return op->emitOpError("expected a paged or a packed cache, got ")
           << type << "; dense memory is a packed cache of instances * tokens slots";
  if (type.isOfClass())
    return op->emitOpError("expected a cache with a number of KV heads, got ")
           << type << "; heads = ? is for attentions: give the number of heads of the class";
  if (type.getRagged() && (type.getStore() != Store::Unified || type.getHeads() != 1))
    return op->emitOpError("expected a cache whose slots hold all KV heads, got ")
           << type << "; write each head of a ragged cache as a separate cache with heads = 1";
  return success();
}

/// Verifies rows of keys or of values: in the stored type or, if it is quantized, in 16 bits.
static LogicalResult verifyRows(const RowCopy &copy, StringRef what, Value rows, int64_t dim, Type stored) {
  auto expected = [&](Type element) {
    return RankedTensorType::get({ShapedType::kDynamic, ShapedType::kDynamic, copy.type().getHeads(), dim},
                                 element);
  };
  MLIRContext *context = copy.op->getContext();
  Type half = Float16Type::get(context), bfloat = BFloat16Type::get(context);
  bool codes = isa<QuantizedType>(stored);
  if (!rows || (codes ? rows.getType() == expected(half) || rows.getType() == expected(bfloat)
                      : rows.getType() == expected(stored)))
    return success();
  InFlightDiagnostic error = copy.op->emitOpError("expected ")
                             << what << " by row of a cache of that type to be "
                             << expected(codes ? bfloat : stored);
  if (codes)
    error << ", or of f16";
  return error << ", got " << rows.getType();
}

/// Verifies two caches of equal heads and dims, the second of fewer bits.
static LogicalResult verifyRequantized(const RowCopy &copy) {
  auto into = cast<KVType>(copy.into.getType());
  KVType type = copy.type();
  if (failed(verifyCache(copy.op, into)))
    return failure();
  if (into.getHeads() != type.getHeads() || into.getKeyDim() != type.getKeyDim() ||
      into.getValueDim() != type.getValueDim())
    return copy.op->emitOpError("expected caches of the same heads and dims, got ")
           << type << " and " << into;
  if (type.getLatent() || into.getLatent())
    return copy.op->emitOpError("expected caches with values of their own, got ") << type << " and " << into;
  const rt::Store source = storeOf(type), target = storeOf(into);
  for (auto [what, from, to] : {std::tuple("keys", source.keys.format, target.keys.format),
                                std::tuple("values", source.values.format, target.values.format)})
    if (from != to && (to.isPlain() || to.bits > from.bits))
      return copy.op->emitOpError("expected ")
             << what << " to be requantized to at most as many bits, or to stay unchanged, got "
             << from.text() << " to " << to.text() << "; attn.gather dequantizes";
  return success();
}

static LogicalResult verifyRowCopy(const RowCopy &copy) {
  Operation *op = copy.op;
  KVType type = copy.type();
  if (failed(verifyCache(op, type)) || (copy.into && failed(verifyRequantized(copy))))
    return failure();
  Type i32 = IntegerType::get(op->getContext(), 32);
  auto list = RankedTensorType::get({ShapedType::kDynamic}, i32), one = RankedTensorType::get({1}, i32);
  for (Value slots : {copy.from, copy.to})
    if (slots && slots.getType() != list)
      return op->emitOpError("expected slots to be ") << list << ", got " << slots.getType();
  if (copy.status && copy.status.getType() != one)
    return op->emitOpError("expected the status to be ") << one << ", got " << copy.status.getType();
  auto target = cast<KVType>(copy.written().getType());
  if (copy.status && !isa<QuantizedType>(target.getKey()) && !isa<QuantizedType>(target.getValue()))
    return op->emitOpError("expected a quantized cache with a status, which counts numbers that cannot be "
                           "quantized, got ")
           << target;
  if (failed(verifyRows(copy, "keys", copy.k, type.getKeyDim(), type.getKey())))
    return failure();
  if (copy.k && bool(copy.v) == type.getLatent())
    return op->emitOpError("expected ") << (copy.v ? "keys alone: values of " : "keys and values: those of ")
                                        << type << (copy.v ? " are a part of them" : " lie apart");
  return verifyRows(copy, "values", copy.v, type.getValueDim(), type.getValue());
}

LogicalResult AppendRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
LogicalResult MoveRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
LogicalResult GatherRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
LogicalResult RequantizeRowsOp::verify() { return verifyRowCopy(*rowCopyOf(*this)); }
