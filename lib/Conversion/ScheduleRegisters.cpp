//===- ScheduleRegisters.cpp - Registers that schedules need --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScheduleLimits.h"

#include "attn/Conversion/ScheduleModel.h"
#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The rows of a warp's fragment.
static constexpr int64_t warpRows = 16;

/// The registers of a lane for its share of a warp's fragment.
static int64_t registersOf(int64_t rows, int64_t columns, int64_t bits) {
  return rows * columns * bits / 1024;
}

int64_t ScheduleModel::fragmentRegisters(ScheduleAttr schedule) const {
  int64_t rows = schedule.getWarpRows(), keys = schedule.getWarpKeys();
  int64_t bits = shape.element.getIntOrFloatBitWidth();
  int64_t scores = registersOf(rows, keys, 32), weights = registersOf(rows, keys, bits);
  int64_t queries = schedule.getQueryInRegisters() ? registersOf(rows, shape.keyDim, bits) : 0;
  return scores + weights + registersOf(rows, schedule.getSliceFeatures(shape.valueDim), 32) + queries;
}

/// Queries stay if they and the accumulator leave half of the 255 registers for scores, weights, addresses,
/// rows and masks.
bool ScheduleModel::keepsQueries() const {
  int64_t bits = shape.element.getIntOrFloatBitWidth();
  return registersOf(warpRows, shape.keyDim, bits) + registersOf(warpRows, shape.valueDim, 32) <=
         (threadRegisters + 1) / 2;
}

/// Each format of quantized values has conversion code of its own, whose constants and addresses are all live
/// in one loop. Beside queries in registers that is too much where conversions are arithmetic, as before
/// Hopper.
bool ScheduleModel::mixesCodes() const {
  SmallVector<std::pair<Type, Type>> formats;
  for (KVType region : shape.regions)
    if (isa<QuantizedType>(region.getKey()) || isa<QuantizedType>(region.getValue()))
      formats.emplace_back(region.getKey(), region.getValue());
  return !formats.empty() && !llvm::all_equal(formats);
}

/// Whether the lines of a format, and the groups in them, are runs of a power of two of features. Block
/// formats apply their scales on the way to an MMA, so their runs are as long as their lines.
static bool hasLongRuns(const rt::StorePart &part) {
  constexpr int64_t shortest = 64;
  return !part.format.isPlain() && llvm::isPowerOf2_64(part.dim) && part.dim >= shortest &&
         (part.format.groups(part.dim) == 1 || part.format.hasBlocks() || part.format.group >= shortest);
}

/// Weights that have taken the scales of integers are rounded to f16 before they are multiplied by values
/// that count from their zero point. The error is larger than that of f16 results, and small beside the
/// rounding of bf16.
bool ScheduleModel::takesFewRows() const {
  return shape.group <= ScheduleAttr::fewRows && keepsQueries() &&
         llvm::all_of(shape.regions, [&](KVType region) {
           rt::Store store = storeOf(region);
           return hasLongRuns(store.keys) && hasLongRuns(store.values) &&
                  (shape.element.isBF16() || !store.values.format.isInteger());
         });
}

// The registers that fragments may take so that ptxas 13.0 spills nothing, with every mask and score region
// that the tests name (2026-11-20). The rest goes to addresses, rows of the softmax, masks and descriptors.
// The limits were found by compiling every head size; test/Target/shapes.test and wgmma.test hold ptxas to
// them.
namespace room {
/// On mma, ptxas needs some 80 of the 255 registers for the rest, and 8 more for masks of several regions and
/// classes.
constexpr int64_t mma = 164, mmaOfManyMasks = 156;
/// Less for regions with masks of their own if the heads of a group do not fill the rows evenly and keys are
/// shorter than `shortKeys`.
constexpr int64_t ofUnevenRegions = 16, shortKeys = 64;
/// Less for such regions if their pages have one token, because each token then has an address of its own.
constexpr int64_t ofSingleTokens = 8;
/// Less for quantized values on their way to an MMA, and for the arithmetic that converts them where no
/// instruction does.
constexpr int64_t ofCodes = 16;
/// Less if e4m3 keys become f16 by arithmetic while queries are loaded for every tile: both are in registers
/// at once, beside addresses of the next tile.
constexpr int64_t ofArithmetic = 44;
/// Less for each feature group after the first: a scale and a zero point of keys and of values, and a sum of
/// queries.
constexpr int64_t ofGroup = 8;
/// Less for tiles of more than `shortTile` tokens with quantized lines of more than `longLine` features,
/// whose conversion has more addresses and scales.
constexpr int64_t ofLongLines = 20, longLine = 128, shortTile = 32;
/// Limits of the 160 registers of three consumers: for plain scores, for computed or masked scores, and for
/// several masks.
constexpr int64_t threePlain = 128, three = 104, threeOfMasks = 92;
/// Plain scores of up to this many keys have `threePlain` even if queries are gathered.
constexpr int64_t keysBesideGather = 128;
/// Limits of the 224 or 232 registers of two consumers whose tokens come in boxes. The roomy one holds for
/// rows that fill boxes, and for wide values, whose kernel has 232 in any case. The other holds if queries
/// are gathered or masks are several.
constexpr int64_t tmaRoomy = 176, tmaLoaded = 160;
/// Limits if tokens are gathered. Several masks, or longer keys and so more descriptors, leave less.
constexpr int64_t gathered = 160, gatheredCrowded = 144;
/// The limit for plain scores with one mask if producers widen tokens (2026-12-01). Other kernels have the
/// limits of gathered tokens.
constexpr int64_t widened = 168;
/// Less of either limit for more than three masks, and for several masks beside gathered queries.
constexpr int64_t ofManyMasks = 24, ofMasksAndGather = 12;
/// Consumers of wider values run short of registers, and get the producers'.
constexpr int64_t narrowValues = 208;
} // namespace room

/// The registers that several regions need beside a mask for each.
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
  // Queries are gathered, which takes more registers, if the heads of a group do not fill the tile's rows
  // evenly.
  bool even = schedule.getRows() % shape.group == 0;
  bool isLong =
      shape.converted() && shape.keyDim > room::longLine && schedule.getWarpKeys() > room::shortTile;
  if (schedule.getKind() == ScheduleKind::Mma)
    return (manyMasks ? room::mmaOfManyMasks : room::mma) - ofRegions(shape, even) -
           (shape.converted() ? room::ofCodes + room::ofGroup * (shape.groups - 1) : 0) -
           (isLong ? room::ofLongLines : 0) -
           (convertsByArithmetic() && schedule.getStages() > 1 ? room::ofArithmetic : 0);
  bool simple = shape.plain && !severalMasks;
  bool wide = schedule.getSliceFeatures(shape.valueDim) > room::narrowValues;
  if (schedule.getConsumers() > 2)
    return simple && (even || schedule.getKeys() <= room::keysBesideGather) ? room::threePlain
           : severalMasks                                                   ? room::threeOfMasks
                                                                            : room::three;
  int64_t masks = manyMasks ? room::ofManyMasks : severalMasks && !even ? room::ofMasksAndGather : 0;
  if (schedule.loadsTokensByTma() || schedule.sharesWeights())
    return !severalMasks && (simple || even || wide) ? room::tmaRoomy : room::tmaLoaded - masks;
  if (shape.converted() && simple)
    return room::widened;
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
