//===- SumPatterns.cpp - Sums in global memory that blocks share ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lane holds two neighbouring columns of each block of 8 of an accumulator.
// Only attn's kernels read sums, so sums keep the order of lanes: of the four
// blocks of a panel (128 bytes of a line), a lane's eight columns lie together.
// It writes and reads 16 bytes at a time, and the swizzled chunks of any eight
// lanes that shared memory serves at once are in different banks.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// The columns of a panel, and the columns of a lane that move at once: of two blocks.
constexpr int64_t panelColumns = 32, laneColumns = 4;

/// The registers of a lane that move at once: those of two blocks, for the `row`-th eight lines of the
/// fragment.
SmallVector<int64_t> registersOf(FragmentType type, int64_t row, int64_t pair) {
  int64_t blocks = type.getSizes()[1] / 8;
  SmallVector<int64_t> numbers;
  for (int64_t i = 0; i < laneColumns; ++i)
    numbers.push_back(((row / 2) * blocks + 2 * pair + i / 2) * 4 + (row % 2) * 2 + i % 2);
  return numbers;
}

struct LoadSumsPattern : TilePattern<LoadSumsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadSumsOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type f32 = rewriter.getF32Type();
    FragmentType type = op.getFragment().getType();
    SmallVector<Value> registers(type.getRegisters());
    Value last = e.add(adaptor.getLines().front(), -1);
    for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row) {
      Value line = e.min(e.add(e.lanes.group, row * 8), last);
      Value begin = e.mul(e.widen(inlineRegion(op.getSlot(), line, rewriter)), op.getStride());
      begin = e.add(begin, e.widen(e.mul(e.lanes.quad, 2 * laneColumns)));
      for (int64_t pair = 0; pair < type.getSizes()[1] / 16; ++pair) {
        Value index = e.add(begin, pair / 2 * panelColumns + pair % 2 * laneColumns);
        Value four = e.loadGlobal(adaptor.getBuffer().front(), f32, index, VectorType::get(laneColumns, f32),
                                  /*alignment=*/16);
        for (auto [i, number] : llvm::enumerate(registersOf(type, row, pair)))
          registers[number] = LLVM::ExtractElementOp::create(rewriter, op.getLoc(), four, e.i32(i));
      }
    }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

} // namespace

void tile::stageSums(Emitter &e, SharedType tile, FragmentType type, ValueRange registers, Value base,
                     Value line) {
  Type f32 = e.b.getF32Type();
  for (const SharedType::Panel &panel : tile.getPanels())
    for (int64_t half = 0; half < 2; ++half) {
      // The fragment's lines begin at multiples of 16, after which swizzles repeat.
      Value chunk = e.add(e.mul(e.lanes.quad, 2), half);
      Value place = e.sharedAt(base, e.mul(line, panel.width));
      place = e.sharedAt(place, e.placeOf(tile, panel.width, e.lanes.group, chunk));
      for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row) {
        Value four = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(laneColumns, f32));
        for (auto [i, number] : llvm::enumerate(registersOf(type, row, panel.chunk / 4 + half)))
          four = LLVM::InsertElementOp::create(e.b, e.loc, four, registers[number], e.i32(i));
        LLVM::StoreOp::create(e.b, e.loc, four, e.sharedAt(place, panel.offset + row * 8 * panel.width), 16);
      }
    }
}

void tile::populateSumPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                               const LaneMap &lanes) {
  patterns.add<LoadSumsPattern>(converter, patterns.getContext(), lanes);
}
