//===- LowerListMask.cpp - Masks of lists of single tokens ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERLISTMASKPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct LowerListMask : mlir::attn::impl::LowerListMaskPassBase<LowerListMask> {
  void runOnOperation() override { lowered += lowerSteps<ListMaskOp>(getOperation(), lower); }

  static SmallVector<Value> lower(ListMaskOp op, KernelBuilder &b) {
    constexpr int64_t bits = 32; // of a word
    FragmentType type = op.getResult().getType();
    Type i32 = b.getI32Type();
    FragmentType ofRows = along(b, type, Axis::Query, i32);
    auto lane = LaneCoordinatesOp::create(b, i32, along(b, type, Axis::Key, i32));
    Value shift = b.add(lane.getFirst(), b.rem(op.getFirst(), bits));
    Value pitch = b.i32(op.getPitch()), firstWord = b.div(op.getFirst(), bits);
    SmallVector<Value> inputs{lane.getOffsets()};
    for (int64_t word = 0; word * bits < sizeOf(type, Axis::Key); ++word) {
      auto words = LoadVectorOp::create(b, ofRows, op.getWords());
      b.fill(words.getIndex(), {i32}, [&](ValueRange line) {
        Value packed = b.min(b.add(op.getPacked(), line[0]), op.getLast());
        Value row = b.sub(b.div(packed, op.getGroup()), op.getOrigin());
        return b.add(b.mul(b.add(firstWord, b.i32(word)), pitch), row);
      });
      inputs.push_back(b.map(ofRows, ValueRange{words},
                             [&](ValueRange v) -> Value { return arith::ShRUIOp::create(b, v[0], shift); }));
    }
    auto mask =
        tile::MaskOp::create(b, type, op.getScores(), inputs, b.createOrFold<arith::ConstantIntOp>(1, 1));
    b.fill(mask.getVisible(), SmallVector<Type>(inputs.size(), i32), [&](ValueRange v) -> Value {
      Value word = v[1]; // offsets are constants: all of this folds
      for (int64_t i = 1; i + 1 < static_cast<int64_t>(v.size()); ++i)
        word = b.select(b.less(v[0], b.i32(i * bits)), word, v[i + 1]);
      Value bit = b.createOrFold<arith::ShRUIOp>(word, b.rem(v[0], bits));
      return b.compare(arith::CmpIPredicate::ne, b.createOrFold<arith::AndIOp>(bit, b.i32(1)), b.i32(0));
    });
    return {mask};
  }
};

} // namespace
