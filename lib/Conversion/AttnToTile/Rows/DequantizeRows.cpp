//===- DequantizeRows.cpp - Numbers of quantized rows ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Quantized values become numbers in the lane that has read them. Each lane
// gets the metadata of its group from the lane that has read it.
//
//===----------------------------------------------------------------------===//
#include "RowNumbers.h"

#include "attn/Dialect/Attn/IR/Stores.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;
namespace rt = ::attn::rt;

/// The metadata of this lane's group in a load. Lanes r, 8 + r, ... have read that of row r of the eight.
static Value metaWord(RowExpansion &e, DequantizeRowsOp op, int64_t together, int64_t load) {
  KernelBuilder &b = e.b;
  ShareAttr share = op.getShare();
  int64_t atOnce = 32 / ShareAttr::rows;
  Value row =
      share.isOneRow() ? b.i32(load) : b.div(b.add(e.lane, b.i32(load * share.getLanes())), share.getWidth());
  Value group = b.div(e.columnOf(share, load), together);
  Value holder = b.add(b.mul(b.rem(group, atOnce), b.i32(ShareAttr::rows)), row);
  holder = b.min(holder, b.i32(31)); // rows past the eighth
  Value result;
  for (auto [i, words] : llvm::enumerate(e.held.at(op.getMeta()))) {
    Value there = FromLaneOp::create(b, words[0], holder);
    Value ofLoad = b.compare(arith::CmpIPredicate::eq, b.div(group, atOnce), b.i32(i));
    result = result ? b.select(ofLoad, there, result) : there;
  }
  return result;
}

/// The numbers of a line's quantized part or of its rest.
static Words dequantizeMixed(RowExpansion &e, DequantizeRowsOp op, const rt::StorePart &part,
                             ArrayRef<Value> words, int64_t load, Type element) {
  KernelBuilder &b = e.b;
  RowNumbers n(b);
  ShareAttr share = op.getShare();
  Value column = b.add(e.columnOf(share, load), b.mul(op.getPiece(), b.i32(share.getWidth())));
  Value isRest = e.isRest(part, b.rem(column, part.dim / rowNumbers)), scale = n.number(words[2]);
  SmallVector<Value> numbers;
  for (auto [code, other] : llvm::zip_equal(n.unpackCodes(words.take_front(2), part.format.bits),
                                            n.unpack(words.drop_front(3), b.getBF16Type())))
    numbers.push_back(b.select(isRest, other, n.mul(n.fromCode(code, part.format.element()), scale)));
  return n.pack(numbers, element);
}

void RowExpansion::dequantize(DequantizeRowsOp op) {
  b.setInsertionPoint(op);
  RowNumbers n(b);
  const rt::StorePart part = storeOf(op.getKv().getType()).part(op.getPart() == RowPart::Keys);
  const rt::Format &format = part.format;
  Type element = cast<RankedTensorType>(op.getRows().getType()).getElementType();
  int64_t together = numbersTogether(part) / rowNumbers;
  SmallVector<Words> rows;
  for (auto [load, words] : llvm::enumerate(held.at(op.getCodes()))) {
    if (format.isMixed()) {
      rows.push_back(dequantizeMixed(*this, op, part, words, load, element));
      continue;
    }
    Value scale, zero;
    if (format.hasSharedScale())
      scale = givenScale(op.getKv(), op.getPart(), op.getLayer(), op.getPiece(), op.getShare(), load);
    Value word = format.hasLines() ? metaWord(*this, op, together, load) : Value();
    if (format.hasBlocks()) {
      Value ofBlock = n.blockScale(word, format);
      scale = scale ? n.mul(ofBlock, scale) : ofBlock;
    } else if (format.isInteger()) {
      scale = n.fromHalf(word), zero = n.fromHalf(n.shr(word, 16));
    } else if (word) {
      scale = n.number(word);
    }
    SmallVector<Value> numbers;
    for (Value code : n.unpackCodes(words, format.bits)) {
      if (format.isInteger()) {
        // The quantized value in the last bits of 2^23, less 2^23.
        Value exact = n.sub(n.number(n.either(code, b.i32(0x4b000000))), b.f32(8388608));
        numbers.push_back(math::FmaOp::create(b, exact, scale, zero));
      } else {
        numbers.push_back(n.mul(n.fromCode(code, format.element()), scale));
      }
    }
    rows.push_back(n.pack(numbers, element));
  }
  held[op.getRows()] = rows;
}
