//===- ScheduleModel.cpp - What schedules need, and what chips have -------===//
#include "attn/Conversion/ScheduleModel.h"

#include "attn/Conversion/TokenTiles.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Dialect/Tile/IR/SharedMemory.h"
#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// What every block of a multiprocessor costs beside its own shared memory (CUDA C++ Programming Guide,
/// "Shared Memory" of compute capability 8.x and 9.0).
static constexpr int64_t systemShared = 1024;
/// A thread's registers (PTX ISA), what setmaxnreg gives one at most, and those of a multiprocessor.
static constexpr int64_t threadRegisters = 255, roleRegisters = 256, allRegisters = 65536;
/// Swizzles repeat after so many bytes.
static constexpr int64_t swizzlePeriod = 1024;
/// What limits paged prefill is the number of boxes, which one lane issues (docs/rationale.md): boxes of so
/// many lines are few enough.
static constexpr int64_t longBox = 32;
/// Features of the widest panel of a tile of 16-bit elements: 128 bytes, the widest swizzle.
static constexpr int64_t panelFeatures = 64;
/// Tokens that an instruction of wgmma reads of the values at a time.
static constexpr int64_t dotTokens = 16;
/// Rows of a warp's fragment.
static constexpr int64_t warpRows = 16;

//===----------------------------------------------------------------------===//
// Shape
//===----------------------------------------------------------------------===//

/// The updates that a result depends on, in the function's order.
static SmallVector<UpdateOp> updatesOf(func::FuncOp function, FinishOp finish) {
  llvm::SmallDenseSet<Operation *> needed;
  SmallVector<Operation *> open{finish};
  while (!open.empty())
    for (Value operand : open.pop_back_val()->getOperands())
      if (Operation *op = operand.getDefiningOp();
          op && isa<StateType>(operand.getType()) && needed.insert(op).second)
        open.push_back(op);
  SmallVector<UpdateOp> updates;
  for (UpdateOp update : function.getOps<UpdateOp>())
    if (needed.contains(update))
      updates.push_back(update);
  return updates;
}

std::optional<ScheduleShape> ScheduleShape::of(func::FuncOp function) {
  auto inits = function.getOps<InitOp>();
  auto finishes = function.getOps<FinishOp>();
  if (inits.empty() || finishes.empty())
    return {};
  FinishOp finish = *finishes.begin();
  auto query = cast<RankedTensorType>((*inits.begin()).getQuery().getType());
  ScheduleShape shape;
  shape.element = query.getElementType();
  for (UpdateOp update : updatesOf(function, finish)) {
    shape.group = query.getDimSize(1) / update.getKVHeads();
    SmallVector<int64_t> ends;
    update.getVisibility().collectEnds(ends);
    shape.rawScores &= update.getScore().empty();
    shape.plain &= update.getScore().empty() && ends.empty();
    shape.regions.push_back(update.getKv().getType());
    HeadClassesAttr classes = update.getHeadClassesAttr();
    shape.masks += classes && !update.getClassOfRegion() ? classes.size() : 1;
    shape.plain &= !classes;
  }
  int64_t keyDim = query.getDimSize(2), valueDim = finish.getState().getType().getValueDim();
  shape.keyDim = paddedDim(keyDim, shape.element);
  shape.valueDim = paddedDim(valueDim, shape.element);
  for (KVType region : shape.regions) {
    shape.keyDim = std::max(shape.keyDim, paddedDim(keyDim, codesOf(region.getKey())));
    shape.valueDim = std::max(shape.valueDim, paddedDim(valueDim, codesOf(region.getValue())));
    const rt::Store store = storeOf(region);
    for (const rt::StorePart *part : {&store.keys, &store.values})
      shape.groups = std::max(shape.groups, part->format.groups(part->dim));
  }
  return shape;
}

Type ScheduleShape::converted() const {
  for (KVType region : regions)
    for (Type stored : {region.getKey(), region.getValue()})
      if (isa<CodesType>(stored))
        return stored;
  return {};
}

bool ScheduleShape::hasClassStore() const {
  return llvm::any_of(regions, [](KVType type) { return type.isOfClass(); });
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

bool ScheduleModel::mayFetch(int64_t keys) const {
  return llvm::all_of(shape.regions, [&](KVType type) { return fetchLines(type, keys) > 0; });
}

bool ScheduleModel::tearsPages(int64_t keys) const {
  return llvm::any_of(shape.regions, [&](KVType type) {
    return fetchLines(type, keys) < longBox && storeOf(type).tearsPages(keys);
  });
}

bool ScheduleModel::fetchesSimply(int64_t keys) const {
  return llvm::all_of(shape.regions, [&](KVType type) {
    bool oneWidth = shape.keyDim % panelFeatures == 0 && shape.valueDim % panelFeatures == 0;
    return fetchLines(type, keys) == keys || (!storeOf(type).tearsPages(keys) && oneWidth);
  });
}

bool ScheduleModel::alignsTiles(int64_t keys) const {
  return keyTile(keys).getBytes() % swizzlePeriod == 0 && valueTile(keys).getBytes() % swizzlePeriod == 0;
}

/// Values may lie in shared memory as their pages arrive: the dot reads them along tokens, sixteen at a time.
/// (Keys are read along features, all tokens at once.) One copy for each page then does, instead of one for
/// each panel.
int64_t ScheduleModel::valueBoxesOf(ArrayRef<int64_t> copies, int64_t keys) const {
  int64_t boxes = 0;
  for (int64_t lines : copies) {
    if (lines == ScheduleAttr::gathered || lines % dotTokens != 0 || lines == keys ||
        valueTile(lines).getBytes() % swizzlePeriod != 0 || (boxes && lines != boxes))
      return 0;
    boxes = lines;
  }
  return boxes;
}

/// Results leave through the queries' slot, a box for each warpgroup, where another slot takes the next
/// queries meanwhile.
bool ScheduleModel::maySend(ScheduleAttr schedule) const {
  return schedule.fetchesTokens() && schedule.getRows() % shape.group == 0 && schedule.getQuerySlots() == 2 &&
         ScheduleAttr::groupRows % shape.group == 0 && shape.valueDim <= shape.keyDim;
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

/// In the order in which kernels allocate.
int64_t ScheduleModel::sharedBytes(ScheduleAttr schedule) const {
  MLIRContext *context = shape.element.getContext();
  SharedMemory memory;
  int64_t stages = schedule.getStages();
  SharedType queries = queryTile(schedule.getRows());
  if (schedule.getKind() == ScheduleKind::Mma) {
    int64_t copies = schedule.getSplitKeys() ? schedule.getWarps() : 1;
    memory.place(queries);
    std::optional<int64_t> rings;
    for (KVType kind : regionsByTiles(shape.regions))
      for (SharedType tile :
           TokenTiles::of(kind, schedule.getWarpKeys(), shape.keyDim, shape.valueDim).all()) {
        int64_t offset = memory.place(RingType::get(context, stages, tile), copies);
        rings = rings.value_or(offset);
      }
    if (int64_t bytes = schedule.getExchangeBytes(shape.valueDim))
      memory.overlay(*rings, ScratchType::get(context, bytes));
    return memory.getBytes();
  }
  auto barriers = [&](int64_t count) { memory.place(BarriersType::get(context, count)); };
  RingType keys = RingType::get(context, stages, keyTile(schedule.getWarpKeys()));
  RingType values = RingType::get(context, stages, valueTile(schedule.getWarpKeys()));
  int64_t slots = *schedule.getQuerySlots();
  memory.place(RingType::get(context, slots, queries));
  memory.place(keys);
  barriers(stages); // full
  barriers(stages); // empty
  memory.place(values);
  barriers(schedule.fetchesTokens() ? stages + 1 : stages); // one more for tiles that are cleared first
  barriers(stages);
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
// Registers
//===----------------------------------------------------------------------===//

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

// What fragments may take so that ptxas 13.0 spills nothing, with every mask and score region that the tests
// name (2026-11-20): what is left is addresses, rows of the softmax, masks and descriptors. Found by
// compiling every head size; test/Target/shapes.test and wgmma.test hold ptxas to it.
namespace room {
/// Of mma's 255 registers ptxas needs some 80 for the rest; masks of several regions and classes 8 more.
constexpr int64_t mma = 164, mmaOfManyMasks = 156;
/// Codes on their way to a dot take some, and so does the arithmetic that converts them where no instruction
/// does.
constexpr int64_t ofCodes = 16;
/// What each group but the first adds: a scale and a zero of keys, and of values, and a sum of queries.
constexpr int64_t ofGroup = 4;
/// Of 160 with three consumers: scores that are plain, that are computed or masked, and by several masks.
constexpr int64_t threePlain = 128, three = 104, threeOfMasks = 92;
/// Of 224 or 232 with two, where boxes come: rows that fill boxes or wide values (whose kernel has 232 in any
/// case), and rows of which queries are gathered or masks several.
constexpr int64_t fetchedRoomy = 176, fetched = 160;
/// Where tokens are gathered; and several masks, or longer keys and so more descriptors, take more.
constexpr int64_t gathered = 160, gatheredCrowded = 144;
/// What more than three masks, and several beside gathered queries, take of either.
constexpr int64_t ofManyMasks = 24, ofMasksAndGather = 12;
/// Values wider than this leave consumers short, who then get the producers' registers.
constexpr int64_t narrowValues = 208;
} // namespace room

int64_t ScheduleModel::fragmentRoom(ScheduleAttr schedule) const {
  bool severalMasks = shape.masks > 1, manyMasks = shape.masks > 3;
  if (schedule.getKind() == ScheduleKind::Mma)
    return (manyMasks ? room::mmaOfManyMasks : room::mma) -
           (shape.converted() ? room::ofCodes + room::ofGroup * (shape.groups - 1) : 0);
  bool simple = shape.plain && !severalMasks;
  if (schedule.getConsumers() > 2)
    return simple ? room::threePlain : severalMasks ? room::threeOfMasks : room::three;
  // Where the heads of a group do not fill the tile's rows evenly, queries are gathered, by more registers.
  bool even = schedule.getRows() % shape.group == 0, wide = shape.valueDim > room::narrowValues;
  int64_t masks = manyMasks ? room::ofManyMasks : severalMasks && !even ? room::ofMasksAndGather : 0;
  if (schedule.fetchesTokens())
    return !severalMasks && (simple || even || wide) ? room::fetchedRoomy : room::fetched - masks;
  bool crowded = (severalMasks || shape.keyDim > 128) && !wide;
  return (crowded ? room::gatheredCrowded : room::gathered) - masks;
}

namespace {
/// Registers per thread of the two roles, which share the 65,536: what ptxas 13.0 needs to spill nothing
/// (2026-11-20).
struct Registers {
  int64_t producer, consumer;
};
} // namespace

/// What a thread begins with where a kernel may take all registers: they are given by eights.
static int64_t firstRegisters(ScheduleAttr schedule) {
  return std::min(roleRegisters, allRegisters / (schedule.getBlocks() * schedule.getThreads()) / 8 * 8);
}

/// A producer that gathers computes addresses; three consumers and wide values leave it fewer.
static Registers registersOfRoles(int64_t consumers, bool gathers, int64_t valueDim) {
  if (consumers > 2)
    return {32, 160};
  return gathers && valueDim <= room::narrowValues ? Registers{56, 224} : Registers{40, 232};
}

//===----------------------------------------------------------------------===//
// Completion
//===----------------------------------------------------------------------===//

/// One consumer's dots wait for another's to be started where the softmax is long beside the dots: heads
/// shorter than 128 and score regions lost 1 to 10 % without turns on an H200, longer heads 1 to 2 %, and
/// heads of 128 gained 1 % (5 % at 32K tokens without a mask).
bool ScheduleModel::takesTurns(ScheduleAttr schedule) const {
  bool freely =
      schedule.getConsumers() == 2 && shape.keyDim == 128 && shape.valueDim == 128 && shape.rawScores;
  return schedule.getConsumers() > 1 && !freely;
}

/// Sets what was left open.
template <typename T, typename Value> static void fill(std::optional<T> &field, Value chosen) {
  if (!field)
    field = chosen;
}

/// What a schedule with roles leaves open, where queries have so many slots.
ScheduleAttr ScheduleModel::completeRoles(ScheduleAttr schedule, int64_t querySlots) const {
  ScheduleFields f = schedule.getFields();
  MLIRContext *context = schedule.getContext();
  f.querySlots = querySlots;
  fill(f.producers, ScheduleAttr::groupWarps);
  if (f.keyCopies.empty())
    f.keyCopies = f.valueCopies;
  if (f.keyCopies.empty())
    for (KVType type : shape.regions)
      f.keyCopies.push_back(mayFetch(*f.keys) ? fetchLines(type, *f.keys) : ScheduleAttr::gathered);
  f.valueCopies = f.keyCopies;
  fill(f.valueBoxes, valueBoxesOf(f.valueCopies, *f.keys));
  bool sends = maySend(ScheduleAttr::get(context, f)) &&
               f.queryCopy.value_or(ScheduleAttr::groupRows) == ScheduleAttr::groupRows;
  fill(f.epilogue, sends ? Epilogue::Send : Epilogue::Store);
  bool fetches = ScheduleAttr::get(context, f).fetchesTokens() && *f.rows % shape.group == 0;
  int64_t lines = *f.epilogue == Epilogue::Send ? ScheduleAttr::groupRows : *f.rows;
  fill(f.queryCopy, fetches ? lines : ScheduleAttr::gathered);
  bool gathers = *f.queryCopy == ScheduleAttr::gathered;
  Registers registers = registersOfRoles(schedule.getConsumers(), gathers, shape.valueDim);
  fill(f.producerRegisters, registers.producer);
  // A single consumer begins with more than two get.
  fill(f.consumerRegisters, std::max(registers.consumer, firstRegisters(ScheduleAttr::get(context, f))));
  fill(f.turns, takesTurns(schedule));
  return ScheduleAttr::get(context, f);
}

ScheduleAttr ScheduleModel::complete(ScheduleAttr schedule) const {
  if (schedule.getKind() == ScheduleKind::Wgmma) {
    ScheduleAttr two = completeRoles(schedule, schedule.getQuerySlots().value_or(2));
    schedule = schedule.getQuerySlots() || fitsBlock(two) ? two : completeRoles(schedule, 1);
  }
  ScheduleFields fields = schedule.getFields();
  fill(fields.sharedBytes, sharedBytes(schedule));
  return ScheduleAttr::get(schedule.getContext(), fields);
}

/// 64 registers of a thread are parts in flight, four columns of each 128 in a lane. With what else is live
/// they are few enough (102) for five blocks, which also wait beside two blocks of decode on a
/// multiprocessor.
MergeScheduleAttr ScheduleModel::merge(MLIRContext *context) const {
  constexpr int64_t warps = 4, blocks = 5, registersInFlight = 64;
  int64_t columns = 4 * llvm::divideCeil(shape.valueDim, 128);
  return MergeScheduleAttr::get(context, warps, blocks,
                                llvm::bit_floor<uint64_t>(registersInFlight / columns));
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

static std::string nameOfCopy(int64_t lines) {
  return lines == ScheduleAttr::gathered ? "gather" : "boxes " + std::to_string(lines);
}

LogicalResult ScheduleModel::verifyTokenCopies(ScheduleAttr schedule, EmitError emitError) const {
  ArrayRef<int64_t> copies = schedule.getKeyCopies();
  if (copies.size() != shape.regions.size())
    return emitError() << schedule << " has copies of " << copies.size() << " regions, and there are "
                       << shape.regions.size();
  for (auto [lines, type] : llvm::zip_equal(copies, shape.regions)) {
    int64_t possible = fetchLines(type, schedule.getKeys());
    if (lines != ScheduleAttr::gathered && lines != possible)
      return emitError() << schedule << " copies by " << nameOfCopy(lines) << ", and tiles of "
                         << schedule.getKeys() << " tokens of " << type << " come by "
                         << nameOfCopy(possible);
  }
  if (!schedule.fetchesTokens() && llvm::any_of(copies, [](int64_t lines) { return lines != 0; }))
    return emitError() << schedule << " gathers some regions and fetches boxes of others: expected one way";
  int64_t boxes = *schedule.getValueBoxes(), possible = valueBoxesOf(copies, schedule.getKeys());
  if (boxes != 0 && boxes != possible)
    return emitError() << schedule << " has value_boxes = " << boxes << ", expected 0"
                       << (possible ? " or " + std::to_string(possible) : "");
  return success();
}

LogicalResult ScheduleModel::verifyQueryCopies(ScheduleAttr schedule, EmitError emitError) const {
  int64_t lines = *schedule.getQueryCopy();
  if (schedule.sendsResults() && shape.valueDim > shape.keyDim)
    return emitError() << schedule << " sends rows of " << shape.valueDim
                       << " features from the queries' slots, which have " << shape.keyDim;
  if (schedule.sendsResults() && *schedule.getQuerySlots() != 2)
    return emitError() << schedule
                       << " sends results from the queries' slot: expected 2 query_slots, so that "
                          "the next queries have one meanwhile";
  if (lines == ScheduleAttr::gathered) {
    if (schedule.sendsResults())
      return emitError() << schedule << " sends results in boxes: expected query_copy = boxes "
                         << ScheduleAttr::groupRows;
    return success();
  }
  if (!schedule.fetchesTokens())
    return emitError() << schedule << " fetches queries and gathers tokens: expected query_copy = gather";
  int64_t expected = schedule.sendsResults() ? ScheduleAttr::groupRows : schedule.getRows();
  if (lines != expected)
    return emitError() << schedule << " has query_copy = boxes " << lines << ", expected boxes " << expected
                       << (schedule.sendsResults() ? ", the rows of a warpgroup, which sends its own"
                                                   : ", the rows of a tile");
  if (lines % shape.group != 0)
    return emitError() << schedule << " has boxes of " << lines << " queries, which the " << shape.group
                       << " heads of a group do not fill evenly";
  return success();
}

LogicalResult ScheduleModel::verifyRoles(ScheduleAttr schedule, EmitError emitError) const {
  int64_t producer = *schedule.getProducerRegisters(), consumer = *schedule.getConsumerRegisters();
  int64_t first = firstRegisters(schedule), has = first * schedule.getThreads();
  int64_t gives = 32 * (schedule.getProducerWarps() * producer + schedule.getWarps() * consumer);
  if (gives > has)
    return emitError() << schedule << " gives " << gives
                       << " registers to its roles, and a block begins with " << has;
  if (consumer < first)
    return emitError() << schedule << " has threads that begin with " << first
                       << " registers: expected consumer_registers to be no fewer, got " << consumer;
  if (*schedule.getTurns() && schedule.getConsumers() < 2)
    return emitError() << schedule << " has a single warpgroup that computes, which takes no turns";
  return success();
}

/// Whether fragments alone leave a thread no registers.
LogicalResult ScheduleModel::verifyFragments(ScheduleAttr schedule, EmitError emitError) const {
  int64_t share = allRegisters / (schedule.getBlocks() * schedule.getThreads());
  int64_t has = schedule.getConsumerRegisters().value_or(std::min(threadRegisters, share));
  if (int64_t fragments = fragmentRegisters(schedule); fragments > has)
    return emitError() << schedule << " needs " << fragments
                       << " registers of a thread for fragments alone, and it has " << has;
  return success();
}

LogicalResult ScheduleModel::verify(ScheduleAttr schedule,
                                    function_ref<InFlightDiagnostic()> emitError) const {
  if (schedule.getKind() == ScheduleKind::Wgmma) {
    if (!chip.hasWgmma)
      return emitError() << schedule << " needs sm_90a, the only chip with wgmma; got " << chip.name;
    if (Type converted = shape.converted())
      return emitError() << schedule << " multiplies keys and values as they are stored, f16 or bf16; got "
                         << converted << "; nearest legal: a schedule of kind mma";
    if (!alignsTiles(schedule.getKeys()))
      return emitError() << schedule << " has tiles of keys and values that are no multiples of 1024 bytes, "
                         << "after which swizzles repeat; the nearest number of keys that has is "
                         << llvm::alignTo(schedule.getKeys(), 32);
    if (failed(verifyTokenCopies(schedule, emitError)) || failed(verifyQueryCopies(schedule, emitError)))
      return failure();
    if (failed(verifyRoles(schedule, emitError)))
      return failure();
  }
  int64_t needs = sharedBytes(schedule);
  if (*schedule.getSharedBytes() != needs)
    return emitError() << schedule << " needs " << needs << " bytes of shared memory, and says "
                       << *schedule.getSharedBytes();
  if (!fitsBlock(schedule))
    return emitError() << schedule << " needs " << needs << " bytes of shared memory, " << chip.name
                       << " has " << chip.sharedPerBlock << " per block";
  if (!fitsMultiprocessor(schedule))
    return emitError() << schedule << " needs " << needs << " bytes of shared memory and " << systemShared
                       << " of the system's in each of " << schedule.getBlocks() << " blocks, " << chip.name
                       << " has " << chip.sharedPerMultiprocessor << " per multiprocessor";
  return verifyFragments(schedule, emitError);
}
