//===- DecodeSchedules.cpp - Schedules for few rows -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decode lives on bytes in flight, as long as instructions are few enough: in
// 16 bits it takes two blocks per multiprocessor with as many stages as fit.
// Quantized values are fewer bytes and more instructions, so several blocks
// overlap those, and stages are as few as will do.
//
// An H200 decided that (2026-11-29, ms; tiles of 8 rows and 128 keys, 32/8 heads
// of 128, pages whose heads come first, 512 MiB of quantized values;
// benchmarks/results/2026-11-29-quantized-schedules-h200.json):
//
//   blocks x stages   2 x 2   2 x 3   2 x 4   3 x 2   3 x 3   4 x 2
//   int8 / int8       0.1299  0.1330          0.1345
//   int8 / int4       0.1340  0.1366  0.1365  0.1320          0.1347
//   int4 / int4       0.1518  0.1533  0.1540  0.1391  0.1419  0.1404
//   int4 / int2       0.1767  0.1737  0.1779  0.1567  0.1601  0.1618
//   mxfp8             0.1306  0.1345          0.1355
//   mxfp4             0.1815  0.1862  0.1837  0.1705  0.1706  0.1859
//   nvfp4             0.1649  0.1667  0.1680  0.1529  0.1549  0.1596
//
//===----------------------------------------------------------------------===//
#include "DecodeSchedules.h"

using namespace mlir;
using namespace mlir::attn;
using tile::ScheduleAttr;
using tile::ScheduleKind;

/// The tokens of the values that an instruction of mma reads: the least that a warp has.
static constexpr int64_t mmaKeys = 16;
/// Stages, from most to fewest. Three already have three times in flight what latency and bandwidth ask for
/// (docs/rationale/forward.md). With one stage nothing is in flight while a tile is computed, so it is the
/// last resort.
static constexpr int64_t mostStages = 4, fewestStages = 2, lastStages = 1;
/// Bytes of quantized values in flight on a multiprocessor; more were not faster.
static constexpr int64_t codesInFlight = 36 << 10;

namespace {

class Decode {
public:
  Decode(MLIRContext *context, const ScheduleModel &model, const ScheduleShape &shape, const Chip &chip,
         int64_t rows)
      : context(context), model(model), shape(shape), chip(chip), rows(rows),
        few(rows <= ScheduleAttr::fewRows) {}

  ScheduleAttr choose() const {
    if (shape.valueSlices() > 1)
      return chooseSliced();
    for (int64_t blocks = mostBlocks(); blocks > 0; --blocks)
      for (int64_t warps : {4, 2})
        for (int64_t stages = stagesOf(blocks, warps); stages >= fewestStages; --stages) {
          ScheduleAttr schedule = scheduleOf(warps, stages, blocks, warpKeys());
          if (fits(schedule) && (warps == 4 || blocks == 1))
            return schedule;
        }
    return chooseLeast();
  }

private:
  bool fits(ScheduleAttr schedule) const {
    return model.fitsBlock(schedule) && model.fitsMultiprocessor(schedule);
  }

  /// Warps that share rows read one tile of the block. Two blocks hide each other's latencies; a tile of 32
  /// keys has four sums of scores in flight where one of 16 has two. Quantized latents are half as many bytes
  /// and more instructions: two warps for each of the four schedulers share these. Two warps share weights,
  /// too, where those take no scales of values: each then converts half of a tile's keys.
  ScheduleAttr chooseSliced() const {
    for (int64_t blocks = shape.converted() ? 4 : 2; blocks > 0; blocks /= 2)
      for (int64_t keys = slicedKeys(); keys >= mmaKeys; keys -= mmaKeys)
        for (int64_t stages = mostStages; stages >= fewestStages; --stages) {
          tile::ScheduleFields f;
          f.rows = rows, f.keys = keys, f.warps = shape.valueSlices(), f.stages = stages, f.blocks = blocks;
          f.splitKeys = false, f.queryInRegisters = false, f.valueSlices = shape.valueSlices();
          if (keys % (2 * mmaKeys) == 0 && model.mayShareWeightsOfWarps())
            f.sharedWeights = true;
          if (auto schedule = ScheduleAttr::get(context, f); fits(schedule))
            return schedule;
        }
    return {};
  }

  /// With 32 quantized keys ptxas spills 76 bytes on chips before Hopper.
  int64_t slicedKeys() const { return shape.converted() && !chip.overlapsLaunches ? mmaKeys : 2 * mmaKeys; }

  /// Regions of different formats have rings of their own. Chips with the least shared memory hold these only
  /// in shorter tiles or fewer stages: long heads in 16 bits beside quantized values.
  ScheduleAttr chooseLeast() const {
    constexpr int64_t warps = 2, blocks = 1;
    for (int64_t stages : {fewestStages, lastStages})
      if (ScheduleAttr schedule = scheduleOf(warps, stages, blocks, mmaKeys); fits(schedule))
        return schedule;
    return {};
  }

  ScheduleAttr scheduleOf(int64_t warps, int64_t stages, int64_t blocks, int64_t keys) const {
    return ScheduleAttr::get(context, ScheduleKind::Mma, rows, keys * warps, warps, stages, blocks,
                             /*splitKeys=*/true, model.keepsQueries() && (few || !model.mixesCodes()));
  }

  /// A warp takes twice as many quantized tokens at a time, as many as its lanes look up. Bytes come no
  /// slower, and more tokens share a tile's latencies (exchanges, MMAs one after the other). Chips before
  /// Hopper convert by more instructions: beside several groups and a score region, 32 tokens of a warp take
  /// more than 255 registers.
  int64_t warpKeys() const {
    const bool crowded = shape.groups > 1 && !shape.rawScores && !chip.overlapsLaunches;
    return shape.converted() && model.keepsQueries() && !crowded ? 2 * mmaKeys : mmaKeys;
  }

  int64_t stagesOf(int64_t blocks, int64_t warps) const {
    if (!shape.converted())
      return mostStages;
    int64_t tokenBytes = 0;
    for (KVType region : shape.regions)
      tokenBytes = std::max(tokenBytes, storeOf(region).tokenBytes());
    int64_t stage = tokenBytes * warpKeys() * warps * blocks;
    return std::clamp((codesInFlight + stage - 1) / stage + 1, fewestStages, mostStages);
  }

  /// More than two blocks need a kernel that takes few registers: few rows, heads no longer than was tried,
  /// one mask, and plain scores. Three blocks leave 168 registers, too few for chips before Hopper to convert
  /// two regions of quantized values. Four leave 128, and were slower for each format.
  int64_t mostBlocks() const {
    constexpr int64_t usual = 2, ofLessThan8Bits = 3, longestHead = 128;
    const auto regions = static_cast<int64_t>(shape.regions.size());
    const int64_t mostRegions = chip.overlapsLaunches && shape.plain ? 2 : 1;
    if (!shape.converted() || !few || regions > mostRegions || shape.masks > regions || !shape.rawScores ||
        shape.keyDim > longestHead || shape.valueDim > longestHead)
      return usual;
    int64_t bits = 0;
    for (KVType region : shape.regions) {
      rt::Store store = storeOf(region);
      int64_t bytes =
          store.keys.format.rowBytes(store.keys.dim) + store.values.format.rowBytes(store.values.dim);
      bits = std::max(bits, 8 * bytes / (store.keys.dim + store.values.dim));
    }
    return bits < 8 ? ofLessThan8Bits : usual;
  }

  MLIRContext *context;
  const ScheduleModel &model;
  const ScheduleShape &shape;
  const Chip &chip;
  int64_t rows;
  bool few;
};

} // namespace

ScheduleAttr mlir::attn::chooseDecodeSchedule(MLIRContext *context, const ScheduleModel &model,
                                              const ScheduleShape &shape, const Chip &chip, int64_t rows) {
  return Decode(context, model, shape, chip, rows).choose();
}
