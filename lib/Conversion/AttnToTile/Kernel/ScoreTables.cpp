//===- ScoreTables.cpp - Tables that score regions read -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScoreTables.h"

using namespace mlir;
using namespace mlir::attn;

Value mlir::attn::inlined(KernelBuilder &b, Value value, IRMapping &numbers) {
  if (Value mapped = numbers.lookupOrNull(value))
    return mapped;
  Operation *constant = value.getDefiningOp();
  if (!constant || !constant->hasTrait<OpTrait::ConstantLike>())
    return value;
  Value copy = b.clone(*constant)->getResult(cast<OpResult>(value).getResultNumber());
  numbers.map(value, copy);
  return copy;
}

Value mlir::attn::placeInTable(KernelBuilder &b, ReadOp read, IRMapping &numbers) {
  auto type = cast<RankedTensorType>(read.getTensor().getType());
  StringRef name = argumentName(read.getTensor());
  Value index = b.i64(0);
  for (auto [d, i] : llvm::enumerate(read.getIndices())) {
    Value extent =
        type.isDynamicDim(d) ? b.dimension((name + ".dim" + Twine(d)).str()) : b.i32(type.getDimSize(d));
    Value clamped = b.max(b.min(inlined(b, i, numbers), b.add(extent, b.i32(-1))), b.i32(0));
    index = b.add(b.mul(index, b.wide(extent)), b.wide(clamped));
  }
  return index;
}

Value mlir::attn::readTable(KernelBuilder &b, ReadOp read, IRMapping &numbers) {
  Type element = cast<RankedTensorType>(read.getTensor().getType()).getElementType();
  Value index = placeInTable(b, read, numbers);
  return b.read(b.buffer(argumentName(read.getTensor()), element), index);
}
