//===- LaneCodes.cpp - Scales of the codes that a lane has ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lane has runs of neighbouring features, and so codes of few blocks: of a span of
// 128 kept features each of eight lanes has 16. Which blocks these are differs from
// lane to lane, so a lane picks the bytes of its own out of words that have the
// scales of four blocks each, instead of converting the scales of all.
//
//===----------------------------------------------------------------------===//
#include "LaneCodes.h"

using namespace mlir;
using namespace mlir::tile;

BlockScales::BlockScales(Emitter &e, FragmentType type, BlocksAttr blocks, ArrayRef<ValueRange> all,
                         ValueRange most, int64_t raised)
    : e(e), type(type), blocks(blocks), most(most), raised(raised), kept(type.getFeatureAxis() == 0) {
  for (ValueRange each : all)
    words.emplace_back(each);
}

BlockScales::Block BlockScales::blockOf(Place place) {
  const int64_t size = blocks.getSize(), last = blocks.getCount() - 1;
  const int64_t lanes = kept ? 8 : 4, run = place.size / lanes;
  const int64_t first = (place.first + (run >= size ? place.offset / size * size : 0)) / size;
  auto [it, isNew] = known.insert({{first, place.size}, {}});
  Block &block = it->second;
  if (!isNew)
    return block;
  if (place.size <= size)
    return block = {std::min(first, last), std::min(first, last), {}};
  const int64_t greatest = first + (lanes - 1) * run / size;
  block = {std::min(first, last), std::min(greatest, last), {}};
  if (block.least == block.most)
    return block;
  Value lane = kept ? e.lanes.group : e.lanes.quad;
  Value own = run >= size ? e.mul(lane, run / size) : e.shr(lane, llvm::Log2_64(size / run));
  block.lane = e.add(own, first);
  if (greatest > last)
    block.lane = e.min(block.lane, e.i32(static_cast<int32_t>(last)));
  return block;
}

Value BlockScales::scaleOf(int64_t token, const Block &block) {
  Value word = words[block.most / 4][token];
  if (!block.lane)
    return e.shr(word, block.most % 4 * 8);
  for (int64_t number = block.most / 4; number-- > block.least / 4;) {
    Value isBefore = e.less(block.lane, e.i32(static_cast<int32_t>(4 * number + 4)));
    word = e.select(isBefore, words[number][token], word);
  }
  return e.b.createOrFold<arith::ShRUIOp>(e.loc, word, e.mul(e.band(block.lane, 3), 8));
}

Value BlockScales::pairOf(int64_t line, Place place) {
  const Block block = blockOf(place);
  Value &pair = pairs[{line, {place.size, block.least}}];
  if (!pair)
    pair = most.empty() ? pairOfE4M3(line, block) : pairOfPowers(line, block);
  return pair;
}

Value BlockScales::pairOfE4M3(int64_t line, const Block &block) {
  Value low = scaleOf(kept ? 2 * line : line, block), high = kept ? scaleOf(2 * line + 1, block) : low;
  Value both = e.band(e.bytes(low, high, {0, 4, 0, 4}), 0x7f7f);
  Value two = arith::TruncIOp::create(e.b, e.loc, e.b.getI16Type(), both);
  Value bytes = LLVM::BitcastOp::create(e.b, e.loc, VectorType::get(2, e.b.getI8Type()), two);
  auto f16 = VectorType::get(2, e.b.getF16Type());
  return NVVM::ConvertF8x2ToF16x2Op::create(e.b, e.loc, f16, bytes, /*relu=*/false,
                                            e.b.getType<Float8E4M3FNType>());
}

Value BlockScales::pairOfPowers(int64_t line, const Block &block) {
  constexpr int64_t biasOfF32 = 127, placeInF32 = 23;
  auto power = [&](int64_t token) -> Value {
    Value less = e.sub(e.band(scaleOf(token, block), 255), most[token]);
    Value exponent = arith::MaxSIOp::create(e.b, e.loc, e.add(less, biasOfF32 + raised), e.i32(0));
    Value bits = arith::ShLIOp::create(e.b, e.loc, exponent, e.i32(placeInF32));
    return LLVM::BitcastOp::create(e.b, e.loc, e.b.getF32Type(), bits);
  };
  Value packed = e.pack(power(2 * line), power(2 * line + 1), e.b.getF16Type());
  return LLVM::BitcastOp::create(e.b, e.loc, VectorType::get(2, e.b.getF16Type()), packed);
}
