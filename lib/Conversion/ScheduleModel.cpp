//===- ScheduleModel.cpp - What schedules need, and what chips have -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/ScheduleModel.h"

#include "ScheduleLimits.h"

#include "attn/Conversion/TokenTiles.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Dialect/Tile/IR/SharedMemory.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The swizzle pattern repeats after this many bytes.
static constexpr int64_t swizzlePeriod = 1024;
/// The number of boxes limits paged prefill, because one lane issues them (docs/rationale/forward.md). Boxes
/// of this many lines are few enough.
static constexpr int64_t longBox = 32;
/// The features in the widest panel of a tile of 16-bit elements: 128 bytes, the widest swizzle.
static constexpr int64_t panelFeatures = 64;
/// The tokens of the values that one wgmma instruction reads.
static constexpr int64_t mmaTokens = 16;

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

bool ScheduleModel::mayLoadByTma(int64_t keys) const {
  return !shape.converted() &&
         llvm::all_of(shape.regions, [&](KVType type) { return tmaLoadLines(type, keys) > 0; });
}

bool ScheduleModel::tearsPages(int64_t keys) const {
  return llvm::any_of(shape.regions, [&](KVType type) {
    return tmaLoadLines(type, keys) < longBox && storeOf(type).tearsPages(keys);
  });
}

bool ScheduleModel::loadsSimplyByTma(int64_t keys) const {
  return llvm::all_of(shape.regions, [&](KVType type) {
    bool oneWidth = shape.keyDim % panelFeatures == 0 && shape.valueDim % panelFeatures == 0;
    return tmaLoadLines(type, keys) == keys || (!storeOf(type).tearsPages(keys) && oneWidth);
  });
}

bool ScheduleModel::alignsTiles(int64_t keys) const {
  return keyTile(keys).getBytes() % swizzlePeriod == 0 && valueTile(keys).getBytes() % swizzlePeriod == 0;
}

/// Values may lie in shared memory as their pages arrive, because the MMA reads them along tokens, sixteen at
/// a time. (It reads keys along features, all tokens at once.) One copy per page then replaces one copy per
/// panel.
int64_t ScheduleModel::valueBoxesOf(ArrayRef<int64_t> copies, int64_t keys) const {
  int64_t boxes = 0;
  // Latent values lie in the tile of the keys; of sliced values a warpgroup reads some columns.
  if (shape.areLatent() || shape.valueSlices() > 1)
    return 0;
  for (int64_t lines : copies) {
    if (lines == ScheduleAttr::gathered || lines % mmaTokens != 0 || lines == keys ||
        valueTile(lines).getBytes() % swizzlePeriod != 0 || (boxes && lines != boxes))
      return 0;
    boxes = lines;
  }
  return boxes;
}

/// Each warpgroup reads the features of its values in whole panels.
bool ScheduleModel::mayShareWeights(int64_t half) const {
  if (shape.converted())
    return shape.mayWidenLatents() && alignsTiles(half);
  return shape.valueSlices() == 2 && regionsByTiles(shape.regions).size() == 1 &&
         shape.valueDim % (2 * panelFeatures) == 0 && shape.keyDim % panelFeatures == 0 &&
         mayLoadByTma(half) && alignsTiles(half);
}

bool ScheduleModel::mayShareWeightsOfWarps() const {
  if (!shape.converted() || !shape.areLatent() || shape.valueSlices() != 2 || shape.regions.size() != 1 ||
      !shape.rawScores || shape.byRow) // their weights take no factors; a contract ends sums at each part
    return false;
  const rt::Store store = storeOf(shape.regions.front());
  return store.keys.format.hasSharedScale() && !store.isOfClass();
}

/// Results may leave by TMA store from the queries' stage, one box per warpgroup, while another stage takes
/// the next queries.
bool ScheduleModel::mayStoreByTma(ScheduleAttr schedule) const {
  return schedule.loadsTokensByTma() && schedule.getRows() % shape.group == 0 &&
         schedule.getQueryStages() == 2 && ScheduleAttr::groupRows % shape.group == 0 &&
         shape.valueDim <= shape.keyDim && schedule.getSlices() == 1 && !shape.quantizedOutput;
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

static SharedType tileOf(Axis axis, int64_t lines, int64_t features, Type element) {
  return SharedType::get(element.getContext(), axis, lines, Axis::Feature, features, element,
                         /*swizzled=*/false, /*boxes=*/0);
}

SharedType ScheduleModel::queryTile(int64_t lines) const {
  return tileOf(Axis::Query, lines, shape.keyDim, shape.element);
}

SharedType ScheduleModel::keyTile(int64_t lines) const {
  return tileOf(Axis::Key, lines, shape.keyDim, shape.element);
}

SharedType ScheduleModel::valueTile(int64_t lines) const {
  return tileOf(Axis::Key, lines, shape.valueDim, shape.element);
}

/// Places the tiles in the order in which kernels allocate them.
int64_t ScheduleModel::sharedBytes(ScheduleAttr schedule) const {
  MLIRContext *context = shape.element.getContext();
  SharedMemory memory;
  int64_t stages = schedule.getStages();
  SharedType queries = queryTile(schedule.getRows());
  if (schedule.getKind() == ScheduleKind::Mma) {
    int64_t copies = schedule.getSplitKeys() ? schedule.getWarps() : 1;
    memory.place(queries);
    std::optional<int64_t> rings;
    const int64_t lines = schedule.sharesWeights() ? schedule.getKeys() : schedule.getWarpKeys();
    for (const TokenRing &ring : tokenRings(regionsByTiles(shape.regions), lines, shape.keyDim,
                                            shape.valueDim, schedule.getSplitKeys()))
      if (!ring.under) {
        int64_t offset = memory.place(RingType::get(context, stages, ring.tile), copies);
        rings = rings.value_or(offset);
      }
    std::optional<int64_t> units;
    if (schedule.sharesWeights()) {
      memory.place(weightsTile(schedule, weightElement(schedule, shape.regions, shape.element)));
      units = memory.place(unitsTile(schedule));
    }
    if (narrowsQueries(schedule, shape.regions, shape.element)) {
      ScratchType largest = ScratchType::get(context, largestBytes(schedule));
      units ? memory.overlay(*units, largest) : (void)memory.place(largest);
    }
    if (int64_t bytes = schedule.getExchangeBytes(shape.valueDim))
      memory.overlay(*rings, ScratchType::get(context, bytes));
    return memory.getBytes();
  }
  auto barriers = [&](int64_t count) { memory.place(BarriersType::get(context, count)); };
  RingType keys = RingType::get(context, stages, keyTile(schedule.getWarpKeys()));
  RingType values = RingType::get(context, stages, valueTile(schedule.getWarpKeys()));
  int64_t slots = *schedule.getQueryStages();
  memory.place(RingType::get(context, slots, queries));
  if (shape.converted() && !schedule.sharesWeights() &&
      shape.mayWiden()) { // other rings have barriers behind each
    int64_t barriersOfStages = 0;
    for (const WideningRing &ring :
         wideningRings(shape.regions.front(), schedule.getWarpKeys(), shape.keyDim, shape.valueDim, stages)) {
      memory.place(ring.type);
      barriersOfStages += ring.isStored ? 0 : 2;
    }
    for (; barriersOfStages > 0; --barriersOfStages)
      barriers(stages);
    barriers(slots);
    barriers(slots);
    return memory.getBytes();
  }
  auto barriersOf = [&](bool hasValues) {
    // One more for tiles that are cleared first.
    barriers(schedule.loadsTokensByTma() && hasValues ? stages + 1 : stages); // full
    barriers(stages);                                                         // empty
  };
  if (schedule.sharesWeights()) { // barriers follow all tiles
    const SmallVector<HalfRing> rings =
        halfRings(shape.regions.front(), schedule, shape.keyDim, shape.valueDim, shape.element);
    for (const HalfRing &ring : rings)
      memory.place(RingType::get(context, stages, ring.tile));
    memory.place(weightsTile(schedule, weightElement(schedule, shape.regions, shape.element)));
    memory.place(unitsTile(schedule));
    for (const HalfRing &ring : rings)
      barriersOf(ring.hasValues);
  } else {
    memory.place(keys);
    barriersOf(shape.areLatent());
    if (!shape.areLatent()) {
      memory.place(values);
      barriersOf(/*hasValues=*/true);
    }
  }
  barriers(slots);
  barriers(slots);
  return memory.getBytes();
}

bool ScheduleModel::fitsBlock(ScheduleAttr schedule) const {
  return sharedBytes(schedule) <= chip.sharedPerBlock;
}

bool ScheduleModel::fitsMultiprocessor(ScheduleAttr schedule) const {
  return (sharedBytes(schedule) + systemShared) * schedule.getBlocks() <= chip.sharedPerMultiprocessor;
}

//===----------------------------------------------------------------------===//
// Completion
//===----------------------------------------------------------------------===//

/// One consumer's MMAs wait until another's have started if the softmax is long compared with the MMAs. On an
/// H200, heads shorter than 128 and score regions lost 1 to 10 % without ping-pong, and longer heads 1 to 2
/// %. Heads of 128 gained 1 % without it (5 % at 32K tokens without a mask).
bool ScheduleModel::pingPongs(ScheduleAttr schedule) const {
  bool freely =
      schedule.getConsumers() == 2 && shape.keyDim == 128 && shape.valueDim == 128 && shape.rawScores;
  return schedule.getConsumers() > 1 && !freely && !schedule.sharesWeights();
}

/// Sets a field that was left open.
template <typename T, typename Value> static void fill(std::optional<T> &field, Value chosen) {
  if (!field)
    field = chosen;
}

/// Completes a schedule with roles whose queries have `queryStages` stages.
ScheduleAttr ScheduleModel::completeRoles(ScheduleAttr schedule, int64_t queryStages) const {
  ScheduleFields f = schedule.getFields();
  MLIRContext *context = schedule.getContext();
  const int64_t warpKeys = schedule.getWarpKeys();
  f.queryStages = queryStages;
  const bool holds = widensOnTheWay(schedule, shape.regions);
  fill(f.producers, (holds ? 2 : 1) * ScheduleAttr::groupWarps);
  if (f.keyCopies.empty())
    f.keyCopies = f.valueCopies;
  if (f.keyCopies.empty())
    for (KVType type : shape.regions)
      f.keyCopies.push_back(mayLoadByTma(warpKeys) ? tmaLoadLines(type, warpKeys) : ScheduleAttr::gathered);
  f.valueCopies = f.keyCopies;
  fill(f.valueBoxes, valueBoxesOf(f.valueCopies, warpKeys));
  bool sends = mayStoreByTma(ScheduleAttr::get(context, f)) &&
               f.queryCopy.value_or(ScheduleAttr::groupRows) == ScheduleAttr::groupRows;
  fill(f.epilogue, sends ? Epilogue::Send : Epilogue::Store);
  bool fetches = ScheduleAttr::get(context, f).loadsTokensByTma() && *f.rows % shape.group == 0;
  int64_t lines = *f.epilogue == Epilogue::Send ? ScheduleAttr::groupRows : *f.rows;
  fill(f.queryCopy, fetches ? lines : ScheduleAttr::gathered);
  bool gathers = *f.queryCopy == ScheduleAttr::gathered;
  Registers registers = holds               ? registersOfHolding
                        : shape.converted() ? registersOfWidening
                                            : registersOfRoles(schedule.getConsumers(), gathers,
                                                               schedule.getSliceFeatures(shape.valueDim));
  fill(f.producerRegisters, registers.producer);
  // A single consumer begins with more registers than two consumers get.
  fill(f.consumerRegisters, std::max(registers.consumer, firstRegisters(ScheduleAttr::get(context, f))));
  fill(f.pingPong, pingPongs(schedule));
  return ScheduleAttr::get(context, f);
}

ScheduleAttr ScheduleModel::complete(ScheduleAttr schedule) const {
  if (schedule.getKind() == ScheduleKind::Wgmma) {
    ScheduleAttr two = completeRoles(schedule, schedule.getQueryStages().value_or(2));
    schedule = schedule.getQueryStages() || fitsBlock(two) ? two : completeRoles(schedule, 1);
  }
  ScheduleFields fields = schedule.getFields();
  fill(fields.sharedBytes, sharedBytes(schedule));
  return ScheduleAttr::get(schedule.getContext(), fields);
}

/// Parts in flight take 64 registers of a thread: a lane has four of each 128 columns. Together with the
/// other live values they fit the 102 registers that five blocks leave a thread. Five blocks also wait beside
/// two blocks of decode on a multiprocessor. More than 256 columns are divided between warps: one warp would
/// read four parts of a row at once, and a long sequence has hundreds. (On an H200, decoding behind 65,536
/// tokens takes 43 instead of 61 us with 16 heads over latents, and 56 instead of 73 with 128; 32 x 8,192
/// tokens of 128 heads, 4,096 rows of two parts, 141 instead of 134.)
MergeScheduleAttr ScheduleModel::merge(MLIRContext *context) const {
  constexpr int64_t warps = 4, blocks = 5, registersInFlight = 64;
  int64_t chunks = llvm::divideCeil(shape.valueDim, 128);
  int64_t slices = chunks > 2 ? std::min<int64_t>(llvm::bit_floor<uint64_t>(chunks), warps) : 1;
  int64_t columns = 4 * llvm::divideCeil(chunks, slices);
  return MergeScheduleAttr::get(context, warps, blocks,
                                llvm::bit_floor<uint64_t>(registersInFlight / columns), slices);
}
