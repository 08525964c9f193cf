//===- ScheduleRegisters.cpp - Registers that schedules need --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScheduleLimits.h"

#include "attn/Conversion/ScheduleModel.h"
#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Rows of a warp's fragment.
static constexpr int64_t warpRows = 16;

/// Registers of a lane for its part of a fragment of a warp.
static int64_t registersOf(int64_t rows, int64_t columns, int64_t bits) {
  return rows * columns * bits / 1024;
}

int64_t ScheduleModel::fragmentRegisters(ScheduleAttr schedule) const {
  int64_t rows = schedule.getWarpRows(), keys = schedule.getWarpKeys();
  int64_t bits = shape.element.getIntOrFloatBitWidth();
  int64_t scores = registersOf(rows, keys, 32), weights = registersOf(rows, keys, bits);
  int64_t queries = schedule.getQueryInRegisters() ? registersOf(rows, shape.keyDim, bits) : 0;
  return scores + weights + registersOf(rows, shape.valueDim, 32) + queries;
}

/// Where they and the accumulator leave half of the 255 for scores, weights, addresses, rows and masks.
bool ScheduleModel::keepsQueries() const {
  int64_t bits = shape.element.getIntOrFloatBitWidth();
  return registersOf(warpRows, shape.keyDim, bits) + registersOf(warpRows, shape.valueDim, 32) <=
         (threadRegisters + 1) / 2;
}

/// Codes of several formats are each converted by code of their own, whose constants and addresses are live
/// in one loop: beside queries in registers that is too many where conversions are arithmetic, as before
/// Hopper.
bool ScheduleModel::mixesCodes() const {
  SmallVector<std::pair<Type, Type>> formats;
  for (KVType region : shape.regions)
    if (isa<QuantizedType>(region.getKey()) || isa<QuantizedType>(region.getValue()))
      formats.emplace_back(region.getKey(), region.getValue());
  return !formats.empty() && !llvm::all_equal(formats);
}

/// Whether a format's rows, and the groups in them, make runs that are powers of two of features. Codes that
/// take the scales of their blocks on the way to an mma have runs as long as their rows.
static bool hasLongRuns(const rt::StorePart &part) {
  constexpr int64_t shortest = 64;
  return !part.format.isPlain() && llvm::isPowerOf2_64(part.dim) && part.dim >= shortest &&
         (part.format.groups(part.dim) == 1 || part.format.hasBlocks() || part.format.group >= shortest);
}

/// Weights that have taken the scales of integers are rounded to f16 before they meet codes that count from
/// their zero: more than f16's own results may be off, and little beside the rounding of bf16.
bool ScheduleModel::takesFewRows() const {
  return shape.group <= ScheduleAttr::fewRows && keepsQueries() &&
         llvm::all_of(shape.regions, [&](KVType region) {
           rt::Store store = storeOf(region);
           return hasLongRuns(store.keys) && hasLongRuns(store.values) &&
                  (shape.element.isBF16() || !store.values.format.isInteger());
         });
}

// What fragments may take so that ptxas 13.0 spills nothing, with every mask and score region that the tests
// name (2026-11-20): what is left is addresses, rows of the softmax, masks and descriptors. Found by
// compiling every head size; test/Target/shapes.test and wgmma.test hold ptxas to it.
namespace room {
/// Of mma's 255 registers ptxas needs some 80 for the rest; masks of several regions and classes 8 more.
constexpr int64_t mma = 164, mmaOfManyMasks = 156;
/// What masks of regions of their own take beside rows that the heads of a group do not fill evenly, where
/// keys are shorter than this.
constexpr int64_t ofUnevenRegions = 16, shortKeys = 64;
/// What pages of one token take, each with an address of its own, in regions of their own.
constexpr int64_t ofSingleTokens = 8;
/// Codes on their way to an mma take some, and so does the arithmetic that converts them where no instruction
/// does.
constexpr int64_t ofCodes = 16;
/// Where no instruction makes f16 of e4m3 keys and queries are loaded for every tile, both are in registers
/// at once: too many beside addresses of the next tile.
constexpr int64_t ofArithmetic = 44;
/// What each group but the first adds: a scale and a zero of keys, and of values, and a sum of queries.
constexpr int64_t ofGroup = 4;
/// Of 160 with three consumers: scores that are plain, that are computed or masked, and by several masks.
constexpr int64_t threePlain = 128, three = 104, threeOfMasks = 92;
/// Keys up to which those that are plain have that room beside queries that are gathered.
constexpr int64_t keysBesideGather = 128;
/// Of 224 or 232 with two, where boxes come: rows that fill boxes or wide values (whose kernel has 232 in any
/// case), and rows of which queries are gathered or masks several.
constexpr int64_t tmaRoomy = 176, tmaLoaded = 160;
/// Where tokens are gathered; and several masks, or longer keys and so more descriptors, take more.
constexpr int64_t gathered = 160, gatheredCrowded = 144;
/// What more than three masks, and several beside gathered queries, take of either.
constexpr int64_t ofManyMasks = 24, ofMasksAndGather = 12;
/// Values wider than this leave consumers short, who then get the producers' registers.
constexpr int64_t narrowValues = 208;
} // namespace room

/// What regions of their own take beside a mask for each.
static int64_t ofRegions(const ScheduleShape &shape, bool isEven) {
  if (shape.regions.size() < 2 || shape.masks < 2)
    return 0;
  bool areSingle =
      llvm::any_of(shape.regions, [](KVType region) { return storeOf(region).hasSingleTokens(); });
  return (!isEven && shape.keyDim < room::shortKeys ? room::ofUnevenRegions : 0) +
         (areSingle ? room::ofSingleTokens : 0);
}

bool ScheduleModel::convertsByArithmetic() const {
  return !chip.convertsE4M3 && !keepsQueries() && llvm::any_of(shape.regions, [](KVType region) {
    return isa<Float8E4M3FNType>(codesOf(region.getKey()));
  });
}

int64_t ScheduleModel::fragmentRoom(ScheduleAttr schedule) const {
  bool severalMasks = shape.masks > 1, manyMasks = shape.masks > 3;
  // Where the heads of a group do not fill the tile's rows evenly, queries are gathered, by more registers.
  bool even = schedule.getRows() % shape.group == 0;
  if (schedule.getKind() == ScheduleKind::Mma)
    return (manyMasks ? room::mmaOfManyMasks : room::mma) - ofRegions(shape, even) -
           (shape.converted() ? room::ofCodes + room::ofGroup * (shape.groups - 1) : 0) -
           (convertsByArithmetic() && schedule.getStages() > 1 ? room::ofArithmetic : 0);
  bool simple = shape.plain && !severalMasks;
  bool wide = shape.valueDim > room::narrowValues;
  if (schedule.getConsumers() > 2)
    return simple && (even || schedule.getKeys() <= room::keysBesideGather) ? room::threePlain
           : severalMasks                                                   ? room::threeOfMasks
                                                                            : room::three;
  int64_t masks = manyMasks ? room::ofManyMasks : severalMasks && !even ? room::ofMasksAndGather : 0;
  if (schedule.loadsTokensByTma())
    return !severalMasks && (simple || even || wide) ? room::tmaRoomy : room::tmaLoaded - masks;
  bool crowded = (severalMasks || shape.keyDim > 128) && !wide;
  return (crowded ? room::gatheredCrowded : room::gathered) - masks;
}

int64_t mlir::attn::firstRegisters(ScheduleAttr schedule) {
  return std::min(roleRegisters, allRegisters / (schedule.getBlocks() * schedule.getThreads()) / 8 * 8);
}

Registers mlir::attn::registersOfRoles(int64_t consumers, bool gathers, int64_t valueDim) {
  if (consumers > 2)
    return {32, 160};
  return gathers && valueDim <= room::narrowValues ? Registers{56, 224} : Registers{40, 232};
}
