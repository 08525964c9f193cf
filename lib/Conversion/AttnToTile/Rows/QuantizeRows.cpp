//===- QuantizeRows.cpp - Quantization of rows ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lane holds eight neighbouring numbers of a row, and several neighbouring
// lanes hold a group. They exchange numbers to find its smallest and its
// largest, and each computes the metadata. Quantized values stay where the
// numbers were. One lane of a group passes the metadata to the lane in whose
// layout rows are neighbours (attn.share).
//
//   x -> finite x -> group's scale and zero -> quantized   as attn_rt/tensor/Format.h says
//
//===----------------------------------------------------------------------===//
#include "RowNumbers.h"

#include "attn/Dialect/Attn/IR/Stores.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;
namespace rt = ::attn::rt;

namespace {

/// A float whose last bit is 1: added to a small number, it rounds that number to an integer in its last
/// bits.
constexpr float toInteger = 12582912; // 1.5 * 2^23
constexpr uint32_t toIntegerBits = 0x4b400000;

struct Quantizer {
  Quantizer(RowExpansion &expansion, QuantizeRowsOp op)
      : e(expansion), n(e.b), b(e.b), op(op), share(op.getShare()),
        part(storeOf(op.getKv().getType()).part(op.getPart() == RowPart::Keys)), format(part.format),
        together(numbersTogether(part) / rowNumbers) {}

  void run();

private:
  /// The factors of a lane's quantized values.
  struct Meta {
    Value inverse, zero; ///< zero: for integers
    Value word;          ///< as it is stored; null if the scale is given
  };

  void clean(SmallVector<Value> &row);
  Value cleaned(Value x, Value &strange);
  Value reduce(ArrayRef<Value> row, llvm::function_ref<Value(Value, Value)> combine);
  Meta findGroup(ArrayRef<Value> row);
  Value largestOf(ArrayRef<Value> row);
  Meta findPower(ArrayRef<Value> row);
  Meta findBlock(ArrayRef<Value> row, Value ofTensor);
  Meta findToken(ArrayRef<Value> row);
  Meta metaOf(ArrayRef<Value> row, int64_t load);
  Words codesOf(ArrayRef<Value> row, const Meta &meta);
  Words handOver(ArrayRef<Value> words, int64_t load);
  Words pick(ArrayRef<Value> words, Value holder, Value wanted);
  void countInto(Value status, Value strange);

  RowExpansion &e;
  RowNumbers n;
  KernelBuilder &b;
  QuantizeRowsOp op;
  ShareAttr share;
  rt::StorePart part;
  rt::Format format;
  int64_t together; ///< lanes that share metadata
};

void Quantizer::run() {
  Type element = cast<RankedTensorType>(op.getRows().getType()).getElementType();
  SmallVector<Words> codes;
  SmallVector<Value> found;
  for (auto [load, words] : llvm::enumerate(e.held.at(op.getRows()))) {
    SmallVector<Value> row = n.unpack(words, element);
    clean(row);
    Meta meta = metaOf(row, load);
    codes.push_back(codesOf(row, meta));
    if (format.isMixed()) { // the line has its codes and their scale, or its bf16
      codes.back().push_back(meta.word);
      llvm::append_range(codes.back(), n.pack(row, b.getBF16Type()));
    }
    found.push_back(meta.word);
  }
  e.held[op.getCodes()] = codes;
  if (op.getMeta()) {
    SmallVector<Words> handed;
    int64_t groups = share.getWidth() / together * share.parts(), loads = llvm::divideCeil(groups, 32);
    for (int64_t load = 0; load < loads; ++load)
      handed.push_back(handOver(found, load));
    e.held[op.getMeta()] = handed;
  }
}

/// Replaces NaN by 0, and clamps to the largest number of the format. Hardly any row has such numbers: a lane
/// looks for them if its magnitudes add up to more, or to NaN.
void Quantizer::clean(SmallVector<Value> &row) {
  Value sum = n.magnitude(row.front());
  for (Value x : ArrayRef(row).drop_front())
    sum = n.add(sum, n.magnitude(x));
  Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::UGT, sum, b.f32(format.largest()));
  SmallVector<Type> types(row.size(), n.f32);
  auto branch = scf::IfOp::create(b, types, some, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, row);
  b.setInsertionPointToEnd(branch.thenBlock());
  Value strange;
  for (Value &x : row)
    x = cleaned(x, strange);
  if (op.getStatus())
    countInto(op.getStatus(), strange);
  scf::YieldOp::create(b, row);
  row = SmallVector<Value>(branch.getResults());
}

/// Returns what is quantized for a number, and adds one to `strange` if it is NaN or infinite.
Value Quantizer::cleaned(Value x, Value &strange) {
  float largest = format.largest();
  Value exponent = n.mask(n.bits(x), 0x7fffffff);
  Value is = b.compare(arith::CmpIPredicate::uge, exponent, b.i32(0x7f800000));
  Value one = b.createOrFold<arith::ExtUIOp>(n.i32, is);
  strange = strange ? b.add(strange, one) : one;
  Value isNaN = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, x, x);
  return b.select(isNaN, b.f32(0), n.min(n.max(x, b.f32(-largest)), b.f32(largest)));
}

/// Combines the numbers of all lanes of a group. Combining a number twice must be harmless: after k steps a
/// lane has combined 2^k neighbours, where the first follows the last.
Value Quantizer::reduce(ArrayRef<Value> row, llvm::function_ref<Value(Value, Value)> combine) {
  Value result = row.front();
  for (Value x : row.drop_front())
    result = combine(result, x);
  Value place = b.rem(e.lane, together), first = b.sub(e.lane, place);
  for (int64_t distance = 1; distance < together; distance *= 2) {
    Value other = llvm::isPowerOf2_64(together)
                      ? b.createOrFold<arith::XOrIOp>(e.lane, b.i32(distance))
                      : b.min(b.add(first, b.rem(b.add(place, b.i32(distance)), together)), b.i32(31));
    result = combine(result, FromLaneOp::create(b, result, other));
  }
  return result;
}

Quantizer::Meta Quantizer::findGroup(ArrayRef<Value> row) {
  // The sum makes a zero of either sign a positive one.
  Value low = n.add(reduce(row, [&](Value x, Value y) { return n.min(x, y); }), b.f32(0));
  Value high = n.add(reduce(row, [&](Value x, Value y) { return n.max(x, y); }), b.f32(0));
  float perLevel = 1.0F / static_cast<float>(format.levels());
  Value scale = n.toHalf(n.mul(n.sub(high, low), b.f32(perLevel)));
  scale = b.createOrFold<arith::MaxUIOp>(scale, b.i32(1)); // the smallest above 0
  Value zero = n.toHalf(low);
  return {n.inverseOfHalf(n.fromHalf(scale)), n.fromHalf(zero), n.either(scale, n.shl(zero, 16))};
}

/// The largest magnitude among the numbers of a group.
Value Quantizer::largestOf(ArrayRef<Value> row) {
  SmallVector<Value> magnitudes = llvm::map_to_vector(row, [&](Value x) { return n.magnitude(x); });
  return reduce(magnitudes, [&](Value x, Value y) { return n.max(x, y); });
}

/// The scale by which the largest number becomes the largest quantized value, in multiples of the tensor's
/// scale.
Quantizer::Meta Quantizer::findBlock(ArrayRef<Value> row, Value ofTensor) {
  float perLargest = 1.0F / static_cast<float>(format.element().largest());
  Value wanted = n.mul(n.mul(largestOf(row), b.f32(perLargest)), n.inverse(ofTensor));
  Value code = n.toCode(wanted, rt::elementType(rt::DType::F8E4M3FN));
  code = b.createOrFold<arith::MaxUIOp>(code, b.i32(1)); // the smallest above 0
  return {n.inverse(n.mul(n.blockScale(code, format), ofTensor)), Value(), code};
}

/// The exponent of the largest number, less that of the largest quantized value.
Quantizer::Meta Quantizer::findPower(ArrayRef<Value> row) {
  Value most = n.bits(largestOf(row));
  Value power = b.sub(n.shr(most, 23), b.i32(std::ilogb(format.element().largest())));
  power = b.createOrFold<arith::MaxSIOp>(power, b.i32(0));
  return {n.number(n.shl(b.sub(b.i32(254), power), 23)), Value(), power};
}

Quantizer::Meta Quantizer::findToken(ArrayRef<Value> row) {
  Value most = largestOf(row);
  float perLargest = 1.0F / static_cast<float>(format.element().largest());
  Value scale = n.max(n.mul(most, b.f32(perLargest)), b.f32(std::numeric_limits<float>::min()));
  return {n.inverse(scale), Value(), n.bits(scale)};
}

Quantizer::Meta Quantizer::metaOf(ArrayRef<Value> row, int64_t load) {
  Value given = format.hasSharedScale()
                    ? e.givenScale(op.getKv(), op.getPart(), op.getLayer(), op.getPiece(), share, load)
                    : Value();
  switch (format.blocks) {
  case rt::Format::Blocks::None:
    break;
  case rt::Format::Blocks::E8M0:
    return findPower(row);
  case rt::Format::Blocks::E4M3:
    return findBlock(row, given);
  }
  if (given)
    return {n.inverse(given), Value(), Value()};
  return format.isInteger() ? findGroup(row) : findToken(row);
}

Words Quantizer::codesOf(ArrayRef<Value> row, const Meta &meta) {
  SmallVector<Value> codes;
  if (!format.isInteger()) {
    SmallVector<Value> scaled = llvm::map_to_vector(row, [&](Value x) { return n.mul(x, meta.inverse); });
    if (format.element().dtype == rt::DType::F8E4M3FN)
      return n.pack(scaled, b.getType<Float8E4M3FNType>());
    for (Value x : scaled)
      codes.push_back(n.toCode(x, format.element()));
    return n.packCodes(codes, format.bits);
  }
  Value least = b.f32(toInteger), most = b.f32(toInteger + static_cast<float>(format.levels()));
  for (Value x : row) {
    Value code = math::FmaOp::create(b, n.sub(x, meta.zero), meta.inverse, least);
    codes.push_back(n.bits(n.min(n.max(code, least), most)));
  }
  return n.packCodes(codes, format.bits, toIntegerBits);
}

/// Passes metadata to the lanes that store it. Lane i gets that of row i % 8: of group i / 8 of the piece and
/// so on, from the first lane of the group.
Words Quantizer::handOver(ArrayRef<Value> words, int64_t load) {
  int64_t perLoad = share.getLanes() / share.getWidth();
  if (share.getHeads()) {
    // Entry i of the piece goes to lane i: the group i % groups of head i / groups.
    int64_t groups = share.getWidth() / together;
    Value entry = b.add(e.lane, b.i32(load * 32));
    Value head = b.div(entry, groups), first = b.mul(b.rem(entry, groups), b.i32(together));
    return pick(words, b.add(b.mul(b.rem(head, perLoad), b.i32(share.getWidth())), first),
                b.div(head, perLoad));
  }
  Value row = b.rem(e.lane, ShareAttr::rows);
  Value group = b.add(b.div(e.lane, ShareAttr::rows), b.i32(load * (32 / ShareAttr::rows)));
  Value holder = b.add(b.mul(b.rem(row, perLoad), b.i32(share.getWidth())), b.mul(group, b.i32(together)));
  return pick(words, holder, b.div(row, perLoad));
}

/// The word of the load `wanted` in the lane `holder`.
Words Quantizer::pick(ArrayRef<Value> words, Value holder, Value wanted) {
  holder = b.min(holder, b.i32(31)); // groups past the end of the piece
  Value result;
  for (auto [i, word] : llvm::enumerate(words)) {
    Value there = FromLaneOp::create(b, word, holder);
    if (!result) {
      result = there;
      continue;
    }
    result = b.select(b.compare(arith::CmpIPredicate::eq, wanted, b.i32(i)), there, result);
  }
  return {result};
}

void Quantizer::countInto(Value status, Value strange) {
  Value some = b.compare(arith::CmpIPredicate::ne, strange, b.i32(0));
  Value buffer = b.buffer(argumentName(status), n.i32);
  auto counted = scf::IfOp::create(b, some);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(counted.thenYield());
  AddToOp::create(b, strange, buffer, b.i64(0));
}

} // namespace

void RowExpansion::quantize(QuantizeRowsOp op) {
  b.setInsertionPoint(op);
  Quantizer(*this, op).run();
}
