//===- GradientSchedules.cpp - Schedules of a backward pass ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block holds 64 lines, sixteen to a warp, with what is added up for them in
// registers, and walks tiles of the others, two of which are on the chip. The tile
// is the longest whose fragments leave a thread the registers that ptxas needs for
// the rest.
//
//===----------------------------------------------------------------------===//
#include "GradientSchedules.h"

#include "ScheduleLimits.h"

#include "attn/Dialect/Tile/IR/SharedMemory.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Lines that a warp holds, warps of a block, and tiles in flight.
static constexpr int64_t warpLines = 16, warps = 4, stages = 2;
/// Lines of a tile that is walked, from the longest.
static constexpr int64_t walked[] = {64, 32, 16};
/// Registers of fragments beside which ptxas 13.0 spills nothing: what it needs for addresses, rows and masks
/// is less than beside a softmax. A score region takes some, but with the least tile. (17 pairs of dims
/// plain, 12 with a soft cap, two chips, 2026-11-23.)
static constexpr int64_t room = 184, roomOfRegions = 168;

/// Registers of a lane for a fragment of f32 of the lines of a warp.
static int64_t registersOf(int64_t columns) { return warpLines * columns / 32; }

namespace {

/// Features of the tiles that a block holds, and of the accumulators of a line.
struct Held {
  int64_t features, accumulated;
};

class Chooser {
public:
  Chooser(const ScheduleShape &shape, const Chip &chip) : shape(shape), chip(chip) {}

  ScheduleAttr choose(Held held) const {
    for (int64_t lines : walked) {
      // Scores and their gradients, and one of them as a dot takes it.
      int64_t fragments = registersOf(held.accumulated) + 2 * registersOf(lines) + registersOf(lines) / 2;
      bool least = lines == walked[std::size(walked) - 1];
      int64_t slopes = shape.rawScores || least ? 0 : registersOf(lines);
      int64_t bytes = sharedBytes(held, lines);
      if (fragments + slopes > (shape.rawScores || least ? room : roomOfRegions) ||
          bytes > chip.sharedPerBlock)
        continue;
      int64_t blocks = 2 * (bytes + systemShared) <= chip.sharedPerMultiprocessor ? 2 : 1;
      return ScheduleAttr::get(shape.element.getContext(), ScheduleKind::Mma, warpLines * warps, lines, warps,
                               stages, blocks, /*splitKeys=*/false, /*queryInRegisters=*/false);
    }
    return {};
  }

private:
  /// In the order of no kernel: all tiles are multiples of what they are aligned to, or that is added.
  int64_t sharedBytes(Held held, int64_t lines) const {
    SharedMemory memory;
    auto tile = [&](int64_t count, int64_t features) {
      return SharedType::get(shape.element.getContext(), Axis::Query, count, Axis::Feature, features,
                             shape.element, /*swizzled=*/false, /*boxes=*/0);
    };
    memory.place(tile(warpLines * warps, held.features));
    for (int64_t features : {shape.keyDim, shape.valueDim})
      memory.place(RingType::get(shape.element.getContext(), stages, tile(lines, features)));
    constexpr int64_t alignment = 1024;
    return memory.getBytes() + 3 * alignment; // what is held are up to three tiles
  }

  const ScheduleShape &shape;
  const Chip &chip;
};

} // namespace

GradientSchedules mlir::attn::chooseGradientSchedules(const ScheduleShape &shape, const Chip &chip) {
  Chooser chooser(shape, chip);
  // Rows are held with their outputs and the gradients of those.
  return {chooser.choose({shape.keyDim + 2 * shape.valueDim, shape.keyDim}),
          chooser.choose({shape.keyDim + shape.valueDim, shape.keyDim + shape.valueDim})};
}
