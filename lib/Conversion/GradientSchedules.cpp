//===- GradientSchedules.cpp - Schedules of a backward pass ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block keeps stationary lines, sixteen to a warp, with their sums in
// registers, and walks tiles of the other lines, some of which are on the chip.
// The tile is the longest whose fragments leave a thread the registers that
// ptxas needs for the rest.
//
// Of 128 lines, two warpgroups compute by wgmma, with warps beside them that
// copy: whole boxes of the tiles that are walked, of as many heads as fill a
// tile's lines evenly. Where these heads are a part of a group, the parts
// follow each other: with groups of five each head has tiles of its own.
// Stationary rows come once a task, and are gathered where the heads of a group
// do not fill lines evenly. Problems that fit no such tile are computed by mma,
// with 64 lines.
//
// Fused, the two warpgroups with stationary tokens add to rows, too: of a tile
// of 128 packed rows each has 64, the lines of an instruction, and of a tile of
// 64 half of the features. They exchange gradients of scores, in two
// alternating tiles where those fit beside the stages of the tiles that are
// walked: then they sync at a named barrier once a tile, not twice
// (GradientTile.cpp). Tiles of 128 rows have a stage less for it. The fit is
// counted to the byte, and allocation checks it (AllocateShared.cpp).
//
// If dk and dv do not fit registers together (heads of 192 and 256), each
// has a kernel of its own, which computes the scores again: eight MMAs instead
// of seven. Fused, the kernels for keys add to rows: six instead of five.
//
//===----------------------------------------------------------------------===//
#include "GradientSchedules.h"

#include "ScheduleLimits.h"

#include "attn/Dialect/Tile/IR/SharedMemory.h"

#include "attn_rt/artifact/Artifact.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The stationary lines of a warp.
static constexpr int64_t warpLines = 16;
/// Tiles in flight. A tile of wgmma takes about as long to compute as to arrive: a third is on its way
/// meanwhile, but not of fused tiles of 128 rows, which take twice as long to compute.
/// Kernels for values alone need two, whose MMAs run beside the exponentials of the next tile. If sums of
/// rows have a place in parts, two stages fit beside short values only, and spill 4 bytes in an order.
static constexpr int64_t mmaStages = 2, mostStages = 3, leastStagesOfValues = 2, stagesBesideParts = 1;
/// The warps of a block that compute, by mma and by wgmma.
static constexpr int64_t mmaWarps = 4, wgmmaWarps = 2 * ScheduleAttr::groupWarps;
/// The lines of a tile that is walked, from the longest.
static constexpr int64_t walked[] = {64, 32, 16}, walkedByWgmma[] = {128, 96, 80, 64, 48, 32};
/// Registers of fragments beside which ptxas 13.0 spills nothing: addresses, rows and masks need fewer than
/// beside a softmax. A score region takes some, except with the smallest tile. (17 pairs of dims plain, 12
/// with a soft cap, two chips, 2026-11-23.) Wide heads that are not whole panels take addresses, too.
static constexpr int64_t room = 184, roomOfRegions = 168, roomOfWidePanels = 136;
/// The limit beside sums of each row (RowSums.h), of which a lane has two rows. (Heads of 64, 96 and 128 with
/// one and two reads of tables, two regions, 2026-11-26.)
static constexpr int64_t roomOfTables = 160;
/// Limits of wgmma, whose threads get the registers of the warps that copy: with stationary rows, and with
/// stationary tokens. (17 pairs of dims: causal, without a mask, with two sizes, with a soft cap,
/// 2026-11-23.)
static constexpr int64_t wgmmaRoomOfRows = 176, wgmmaRoomOfTokens = 208;
/// `wgmmaRoomOfOne`: tokens are stationary for one of their two gradients, beside rings of several stages;
/// `WithMore` is for scores that are not plain. (17 pairs of dims of 64 to 256: causal, without a mask, with
/// two sizes, with a soft cap, 2026-11-28.)
/// `wgmmaRoomOfBoth`: stationary tokens add to rows, and tiles are longest; less beside slopes of a score
/// region, as values of 96 beside keys of 128 spill, and less again where lines are not whole panels, as
/// values of 48 and 80 do. (Heads of 64 and values of 48 and 64, causal and without a mask, 2026-11-25; with
/// a warp that stores, 2026-12-01.)
static constexpr int64_t wgmmaRoomOfOne = 200, wgmmaRoomOfOneWithMore = 176;
static constexpr int64_t wgmmaRoomOfBoth = 224, wgmmaRoomOfBothAndSlopes = 216,
                         wgmmaRoomOfBothAndSlopesOfPanels = 196;
/// The most features of a token whose gradients a warp holds.
static constexpr int64_t mostTogether = 320;
/// The most features of a key whose gradient a fused kernel makes beside that of its value.
static constexpr int64_t widestOfBoth = 192;
/// The most features of a key and a value: kernels of 320 and 256 spill on sm_80 (2026-12-01).
static constexpr int64_t mostFeatures = 544;
/// The most columns of a wgmma, which has all features of a sum.
static constexpr int64_t mostColumns = 256;
/// The most lines of tiles whose rows' positions have numbers beside them, such as a window's ends.
static constexpr int64_t mostNumbered = 64;
/// Registers of a thread of each role. If lines have panels of several widths, copies have an address for
/// each; gathers of rows have one for each line, of three tensors.
static constexpr int64_t panelFeatures = 64;
static constexpr Registers ofWhole = {24, 240}, ofPanels = {32, 232}, ofGathers = {80, 208};

/// The registers of a lane for a fragment of f32 of a warp's lines.
static int64_t registersOf(int64_t columns) { return warpLines * columns / 32; }

namespace {

/// The features of the stationary tiles of a block, and of the accumulators of a line.
struct Held {
  int64_t features, accumulated;
  bool tokens;
  bool addsToRows = false;
  bool one = false;        ///< only one of a token's two gradients
  bool onlyValues = false; ///< that of values, beside kernels that add to rows
};

class Chooser {
public:
  Chooser(const ScheduleShape &shape, const Chip &chip) : shape(shape), chip(chip) {}

  ScheduleAttr choose(Held held) const {
    if (shape.keyDim + shape.valueDim > mostFeatures)
      return {};
    for (int64_t lines : walked) {
      bool least = lines == walked[std::size(walked) - 1];
      int64_t slopes = least ? 0 : slopesOf(held, lines);
      int64_t bytes = sharedBytes(held, warpLines * mmaWarps, lines, mmaStages);
      bool adds = !held.tokens && shape.tableReads > 0;
      int64_t most = shape.rawScores || least ? room : adds ? roomOfTables : roomOfRegions;
      if (!isWhole() && isWide() && !least)
        most = std::min(most, roomOfWidePanels);
      int64_t sums = adds && !least ? 4 * (1 + shape.tableReads) : 0;
      if (fragments(held, lines) + slopes + sums > most || bytes > chip.sharedPerBlock)
        continue;
      int64_t blocks = 2 * (bytes + systemShared) <= chip.sharedPerMultiprocessor ? 2 : 1;
      return get(ScheduleKind::Mma, mmaWarps, lines, mmaStages, blocks);
    }
    return {};
  }

  /// The schedule of significance: each warp has stationary keys and walks queries, in tiles that begin with
  /// the first head of a group. In generation a block waits for its task, for pages, for keys, and is done: 3
  /// us on an H200, of which memory takes a third (41 x 8K, 2026-11-23). So the number of blocks that wait at
  /// once counts. Tiles of queries are short, and registers so few that eight blocks fit; six with several
  /// groups and four with long heads, as ptxas spills otherwise.
  ScheduleAttr chooseForSignificance(bool byHead) const {
    constexpr int64_t longestHead = 128;
    const int64_t mostBlocks = shape.keyDim > longestHead ? 4 : shape.groups > 1 ? 6 : 8;
    bool quantized = llvm::any_of(shape.regions, isQuantized);
    for (int64_t lines : llvm::reverse(walked)) {
      if ((byHead && lines < shape.group) || (quantized && lines > warpLines))
        continue;
      SharedMemory memory;
      memory.place(RingType::get(shape.element.getContext(), mmaStages, tileOf(lines, shape.keyDim)));
      int64_t bytes = memory.getBytes() + warpLines * mmaWarps * keyBytes() + 2 * alignment * mmaWarps;
      if (bytes > chip.sharedPerBlock)
        continue;
      int64_t blocks = chip.sharedPerMultiprocessor / (bytes + systemShared);
      return get(ScheduleKind::Mma, mmaWarps, lines, mmaStages, std::clamp<int64_t>(blocks, 1, mostBlocks));
    }
    return {};
  }

  /// The counterpart of `choose` on wgmma.
  ScheduleAttr chooseWgmma(Held held) const {
    if (std::max(shape.keyDim, shape.valueDim) > mostColumns)
      return {};
    for (int64_t lines : walkedByWgmma) {
      int64_t slopes = slopesOf(held, lines);
      if (held.addsToRows && lines % ScheduleAttr::groupRows != 0)
        continue;
      if (fragments(held, lines) + slopes > roomOf(held) ||
          (held.tokens && !shape.plain && lines > mostNumbered))
        continue;
      int64_t stages = held.addsToRows && placesParts() ? stagesBesideParts : mostStages;
      while (stages > 0 && !fitsWgmma(held, lines, stages))
        --stages;
      if (stages < (held.onlyValues ? leastStagesOfValues : 1))
        continue;
      if (held.addsToRows && lines > ScheduleAttr::groupRows)
        stages = stagesBesideExchanges(lines, stages);
      if (held.one && (stages > 1 || !shape.plain) &&
          fragments(held, lines) + slopes > (shape.plain ? wgmmaRoomOfOne : wgmmaRoomOfOneWithMore))
        continue;
      ScheduleFields f = get(ScheduleKind::Wgmma, wgmmaWarps, lines, stages, /*blocks=*/1).getFields();
      int64_t rows = held.tokens ? lines : *f.rows, keys = held.tokens ? *f.rows : lines;
      bool fills = rows % (held.tokens ? ::attn::rt::evenHeads(shape.group) : shape.group) == 0;
      if ((held.tokens && !fills) || !alignsTiles(lines) ||
          !llvm::all_of(shape.regions, [&](KVType region) { return tmaLoadLines(region, keys) == keys; }))
        continue;
      f.producers = ScheduleAttr::groupWarps;
      Registers registers = !fills ? ofGathers : isWhole() ? ofWhole : ofPanels;
      f.producerRegisters = registers.producer, f.consumerRegisters = registers.consumer;
      // The next task's rows arrive meanwhile if they fit.
      Held twice = held;
      twice.features *= 2;
      f.queryStages = !held.tokens && fitsWgmma(twice, lines, stages) ? 2 : 1,
      f.queryCopy = fills ? rows : ScheduleAttr::gathered;
      f.keyCopies.assign(shape.regions.size(), keys);
      f.valueCopies = f.keyCopies;
      f.valueBoxes = 0, f.pingPong = false, f.epilogue = Epilogue::Store;
      if (held.addsToRows)
        setExchanges(f);
      return ScheduleAttr::get(shape.element.getContext(), f);
    }
    return {};
  }

  /// The schedule of the kernels that begin and end the sums of rows, 128 rows at a time. Two blocks have as
  /// many loads in flight as memory takes: three and four were no faster (H200, 2026-12-02).
  ScheduleAttr chooseForSums() const {
    constexpr int64_t blocks = 2, keys = 64; // tasks are planned for tiles of this many
    return get(ScheduleKind::Mma, wgmmaWarps, keys, /*stages=*/1, blocks);
  }
  /// Whether a warpgroup can have half of the features of a key: whole panels, a part of one, or both. With
  /// 96 features, one warpgroup has 64, and the other has 32 and as many zeros. Sums leave in panels of 32.
  bool halvesFeatures() const { return llvm::is_contained({64, 96, 128, 192, 256}, shape.keyDim); }

  /// Whether lines are whole panels.
  bool isWhole() const { return shape.keyDim % panelFeatures == 0 && shape.valueDim % panelFeatures == 0; }

private:
  /// Whether dk and dv of a token do not fit registers together.
  bool isWide() const { return shape.keyDim + shape.valueDim > mostTogether; }
  int64_t roomOf(Held held) const {
    if (held.addsToRows)
      return shape.rawScores ? wgmmaRoomOfBoth
             : isWhole()     ? wgmmaRoomOfBothAndSlopes
                             : wgmmaRoomOfBothAndSlopesOfPanels;
    return held.tokens ? wgmmaRoomOfTokens : wgmmaRoomOfRows;
  }
  /// Registers of a score region's slopes: by the score and, with stationary rows, by each table that is
  /// read.
  int64_t slopesOf(Held held, int64_t lines) const {
    int64_t fragments = (shape.rawScores ? 0 : 1) + (held.tokens ? 0 : shape.tableReads);
    return fragments * registersOf(lines);
  }
  ScheduleAttr get(ScheduleKind kind, int64_t warps, int64_t lines, int64_t stages, int64_t blocks) const {
    return ScheduleAttr::get(shape.element.getContext(), kind, warpLines * warps, lines, warps, stages,
                             blocks,
                             /*splitKeys=*/false, /*queryInRegisters=*/false);
  }
  /// Whether the tiles fit shared memory, with barriers after each ring and rings of numbers of rows.
  bool fitsWgmma(Held held, int64_t lines, int64_t stages) const {
    constexpr int64_t others = 7 * alignment;
    int64_t bytes = held.addsToRows ? fusedBytes(lines, stages, /*exchanges=*/1)
                                    : sharedBytes(held, warpLines * wgmmaWarps, lines, stages) + others;
    return bytes <= chip.sharedPerBlock;
  }
  /// The stages of long tiles: as many as leave room for two exchange tiles, but two at least. Stages come
  /// first at tiles of 64 rows: with two, the kernel for tokens took 5 to 7 % longer (heads of 128, an H100,
  /// 2026-11-26).
  int64_t stagesBesideExchanges(int64_t lines, int64_t most) const {
    constexpr int64_t least = 2;
    for (int64_t stages = most; stages >= least; --stages)
      if (fusedBytes(lines, stages, /*exchanges=*/2) <= chip.sharedPerBlock)
        return stages;
    return most;
  }
  void setExchanges(ScheduleFields &f) const {
    auto bytes = [&](int64_t exchanges) { return fusedBytes(*f.keys, *f.stages, exchanges); };
    f.exchangeStages = !placesParts() && bytes(2) <= chip.sharedPerBlock ? 2 : 1;
    f.sharedBytes = bytes(*f.exchangeStages);
  }
  /// Whether sums of rows have a place in parts. The one tile of gradients of scores is another such place.
  bool placesParts() const { return placedSums(shape.keyDim) < shape.keyDim; }
  /// The bytes of a kernel with stationary tokens that adds to rows, in the order of its allocations
  /// (StageRowFills.cpp), with the barriers last. With plain scores, the numbers of rows lie in one ring.
  int64_t fusedBytes(int64_t lines, int64_t stages, int64_t exchanges) const {
    constexpr int64_t held = warpLines * wgmmaWarps, numbers = 3;
    MLIRContext *context = shape.element.getContext();
    Type f32 = Float32Type::get(context);
    SharedMemory memory;
    int64_t barriers = 0;
    auto place = [&](int64_t slots, SharedType tile) { memory.place(RingType::get(context, slots, tile)); };
    auto placeFilled = [&](int64_t slots, SharedType tile, bool clears) {
      place(slots, tile);
      barriers += 2 * slots + (clears ? 1 : 0);
    };
    int64_t keyTile = halvedKeyTile(shape.keyDim);
    for (auto [slots, each] : {std::pair(int64_t(1), held), std::pair(stages, lines)})
      for (int64_t features : {keyTile, shape.valueDim})
        placeFilled(slots, tileOf(each, features), /*clears=*/true);
    place(1, tileOf(lines, placedSums(keyTile), f32));
    place(exchanges, tileOf(held, lines));
    for (int64_t ring = 0; ring < (shape.rawScores ? 1 : numbers); ++ring)
      placeFilled(stages, tileOf(shape.rawScores ? numbers * lines : lines, 1, f32), /*clears=*/false);
    memory.place(BarriersType::get(context, barriers));
    return memory.getBytes();
  }
  /// Whether the tiles of rings begin where the swizzle pattern repeats, every `alignment` bytes.
  bool alignsTiles(int64_t lines) const {
    int64_t bits = lines * shape.element.getIntOrFloatBitWidth();
    return bits * shape.keyDim % (8 * alignment) == 0 && bits * shape.valueDim % (8 * alignment) == 0;
  }
  /// Registers of the sums, of scores and their gradients, and of one of them as an MMA takes it: not beside
  /// both of them where fused kernels end the MMA of values first (GradientTile.h).
  int64_t fragments(Held held, int64_t lines) const {
    int64_t ofMma = held.addsToRows && shape.keyDim > widestBeside ? 0 : registersOf(lines) / 2;
    return registersOf(held.accumulated) + (held.onlyValues ? 1 : 2) * registersOf(lines) + ofMma;
  }
  /// The bytes of a line of keys as it is stored, without metadata.
  int64_t keyBytes() const {
    unsigned bits = 0;
    for (KVType region : shape.regions)
      bits = std::max(bits, codesOf(region.getKey()).getIntOrFloatBitWidth());
    return shape.keyDim * bits / 8;
  }
  /// An upper bound, which follows no kernel's order: tiles are multiples of their alignment, or that is
  /// added.
  int64_t sharedBytes(Held held, int64_t heldLines, int64_t lines, int64_t stages) const {
    SharedMemory memory;
    memory.place(tileOf(heldLines, held.features));
    for (int64_t features : {shape.keyDim, shape.valueDim})
      memory.place(RingType::get(shape.element.getContext(), stages, tileOf(lines, features)));
    return memory.getBytes() + 3 * alignment; // the stationary tiles are up to three
  }
  SharedType tileOf(int64_t count, int64_t features, Type element = {}) const {
    return SharedType::get(shape.element.getContext(), Axis::Query, count, Axis::Feature, features,
                           element ? element : shape.element, /*swizzled=*/false, /*boxes=*/0);
  }

  static constexpr int64_t alignment = 1024;
  const ScheduleShape &shape;
  const Chip &chip;
};

/// Fuses the gradients of keys and rows, beside kernels for those of values.
GradientSchedules chooseFusedApart(const ScheduleShape &shape, const Chooser &chooser) {
  Held keys{shape.keyDim + shape.valueDim, shape.keyDim, /*tokens=*/true};
  keys.addsToRows = keys.one = true;
  GradientSchedules chosen;
  if (!chooser.isWhole() || !(chosen.tokens = chooser.chooseWgmma(keys)))
    return {};
  Held values{shape.keyDim, shape.valueDim, /*tokens=*/true};
  values.one = values.onlyValues = true;
  chosen.values = chooser.chooseWgmma(values);
  if (!chosen.values)
    return {};
  chosen.rows = chooser.chooseForSums();
  chosen.fused = chosen.splitsTokens = true;
  return chosen;
}

} // namespace

GradientSchedules mlir::attn::chooseGradientSchedules(const ScheduleShape &shape, const Chip &chip,
                                                      bool mayWgmma, bool mayFuse) {
  Chooser chooser(shape, chip);
  // Rows are stationary with their outputs and the gradients of those.
  Held rows{shape.keyDim + 2 * shape.valueDim, shape.keyDim, /*tokens=*/false};
  Held tokens{shape.keyDim + shape.valueDim, shape.keyDim + shape.valueDim, /*tokens=*/true};
  GradientSchedules chosen;
  if (mayFuse && mayWgmma && chip.hasWgmma && shape.tableReads == 0 && chooser.halvesFeatures()) {
    Held both = tokens;
    both.addsToRows = true;
    if (shape.keyDim <= widestOfBoth)
      chosen.tokens = chooser.chooseWgmma(both);
    chosen.rows = chosen.tokens ? chooser.chooseForSums() : ScheduleAttr();
    chosen.fused = chosen.tokens != nullptr;
    if (chosen.fused)
      return chosen;
    if (GradientSchedules apart = chooseFusedApart(shape, chooser); apart.fused)
      return apart;
  }
  if (mayWgmma && chip.hasWgmma) {
    chosen.rows = chooser.chooseWgmma(rows);
    chosen.tokens = chooser.chooseWgmma(tokens);
  }
  if (!chosen.rows)
    chosen.rows = chooser.choose(rows);
  if (!chosen.tokens)
    chosen.tokens = chooser.choose(tokens);
  if (chosen.tokens)
    return chosen;
  Held one = tokens;
  one.accumulated = std::max(shape.keyDim, shape.valueDim);
  one.one = true;
  if (mayWgmma && chip.hasWgmma && chooser.isWhole()) // ptxas serialises wgmma of others
    chosen.tokens = chooser.chooseWgmma(one);
  if (!chosen.tokens)
    chosen.tokens = chooser.choose(one);
  chosen.splitsTokens = chosen.tokens != nullptr;
  return chosen;
}

ScheduleAttr mlir::attn::chooseSignificanceSchedule(const ScheduleShape &shape, const Chip &chip,
                                                    bool byHead) {
  return Chooser(shape, chip).chooseForSignificance(byHead);
}
