//===- LaneCodes.cpp - Scales of a lane's quantized values ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lane has runs of neighbouring features, and so quantized values of few
// blocks: of a span of 128 kept features, each of eight lanes has 16. The
// blocks differ from lane to lane, so a lane picks the bytes of its own blocks
// out of words that have the scales of four blocks each, instead of converting
// all scales.
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
  constexpr int64_t everywhere = 0x1111, perPair = 8;
  auto wordOf = [&](int64_t number) { return words[std::min<int64_t>(number, words.size() - 1)][token]; };
  auto pick = [&](int64_t pair, Value selector) {
    return e.permute(wordOf(2 * pair), wordOf(2 * pair + 1), selector);
  };
  if (!block.lane)
    return pick(block.most / perPair, e.i32(block.most % perPair * everywhere));
  Value within = block.most < perPair ? block.lane : e.band(block.lane, perPair - 1);
  Value selector = e.mul(within, everywhere), scale = pick(block.most / perPair, selector);
  for (int64_t pair = block.most / perPair; pair-- > block.least / perPair;) {
    Value isBefore = e.less(block.lane, e.i32(static_cast<int32_t>(perPair * (pair + 1))));
    scale = e.select(isBefore, pick(pair, selector), scale);
  }
  return scale;
}

Value BlockScales::scalesOf(int64_t line, const Block &block) {
  constexpr int64_t everywhere = 0x1111, highInTheMiddle = 0x0440, perWord = 4;
  if (!kept)
    return scaleOf(line, block);
  if (block.least / perWord != block.most / perWord)
    return e.bytes(scaleOf(2 * line, block), scaleOf(2 * line + 1, block), {0, 4, 4, 0});
  Value within = block.lane ? e.band(block.lane, perWord - 1) : e.i32(block.most % perWord);
  ArrayRef<Value> word = words[block.most / perWord];
  return e.permute(word[2 * line], word[2 * line + 1], e.add(e.mul(within, everywhere), highInTheMiddle));
}

Value BlockScales::pairOf(int64_t line, Place place) {
  const Block block = blockOf(place);
  Value &pair = pairs[{line, {place.size, block.least}}];
  if (!pair)
    pair = most.empty() ? pairOfE4M3(line, block) : pairOfPowers(line, block);
  return pair;
}

Value BlockScales::pairOfE4M3(int64_t line, const Block &block) {
  Value two = arith::TruncIOp::create(e.b, e.loc, e.b.getI16Type(), scalesOf(line, block));
  Value bytes = e.bitcast(VectorType::get(2, e.b.getI8Type()), two);
  auto f16 = VectorType::get(2, e.b.getF16Type());
  Value scales = NVVM::ConvertF8x2ToF16x2Op::create(e.b, e.loc, f16, bytes, /*relu=*/false,
                                                    e.b.getType<Float8E4M3FNType>());
  return LLVM::FAbsOp::create(e.b, e.loc, scales); // their sign is not used
}

/// The exponent of an f16 in each half: that of the largest scale, less the distance of this scale to it, and
/// at least 0, which stands for 0. f16 makes the same of products with as small a power.
Value BlockScales::pairOfPowers(int64_t line, const Block &block) {
  constexpr int64_t both = 0x10001, above = 256, biasOfF16 = 15, placeInF16 = 10;
  auto shl = [&](Value x, int64_t by) -> Value { return arith::ShLIOp::create(e.b, e.loc, x, e.i32(by)); };
  auto halves = VectorType::get(2, e.b.getF16Type());
  auto asHalves = [&](Value x) -> Value { return e.bitcast(halves, x); };
  // Halves do not borrow from each other: each minuend is greater than any exponent.
  Value own =
      arith::OrIOp::create(e.b, e.loc, e.band(scalesOf(line, block), 0xff * both), e.i32(above * both));
  Value largest = e.add(shl(most[2 * line + 1], 16), most[2 * line]);
  const int64_t least = (above - biasOfF16 - raised) * both;
  // Bits of floats without a sign have the order of their numbers.
  Value clamped = LLVM::MaxNumOp::create(e.b, e.loc, asHalves(e.sub(own, largest)), asHalves(e.i32(least)));
  Value exponents = e.sub(e.bitcast(e.b.getI32Type(), clamped), e.i32(least));
  return asHalves(shl(exponents, placeInF16));
}
