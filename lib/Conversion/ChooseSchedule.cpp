//===- ChooseSchedule.cpp - Tiles, warps and stages for each kernel -------===//
#include "attn/Conversion/Chain.h"
#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Target/Chip.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {
#define GEN_PASS_DEF_CHOOSESCHEDULEPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using tile::ScheduleAttr;
using tile::ScheduleKind;

namespace {

/// What decides how much memory and how many registers a schedule needs; all elements have 16 bits.
struct Shape {
  int64_t keyDim, valueDim; ///< as tiles hold them
  int64_t masks, group;
  bool plain;               ///< scores go to the softmax as they are, and no visibility has a size
  SmallVector<KVType> kept; ///< types of the operands

  bool mayFetch(int64_t keys) const {
    return llvm::all_of(kept, [&](KVType type) { return fetchLines(type, keys) > 0; });
  }
  /// Whether the tiles of a ring begin where swizzles do, every 1024 bytes.
  bool alignsTiles(int64_t keys) const {
    return keys * keyDim * 2 % 1024 == 0 && keys * valueDim * 2 % 1024 == 0;
  }
  /// Whether pages that would make copies of 32 lines and more are fetched in less.
  bool tearsPages(int64_t keys) const {
    return llvm::any_of(kept, [&](KVType type) {
      int64_t lines = fetchLines(type, keys);
      return lines && lines < 32 && type.getStore() == Store::Paged && type.getPage() > lines;
    });
  }
  /// Whether boxes are whole tiles, or whole pages in panels of one width: what a producer can address in the
  /// few registers that three consumers leave it.
  bool fetchesSimply(int64_t keys) const {
    return llvm::all_of(kept, [&](KVType type) {
      int64_t lines = fetchLines(type, keys);
      bool oneWidth = keyDim % 64 == 0 && valueDim % 64 == 0;
      return lines == keys || (lines == type.getPage() && oneWidth);
    });
  }

  int64_t sharedBytes(ScheduleAttr s) const {
    int64_t queries = llvm::alignTo(s.getQueryTiles(keyDim, valueDim) * s.getRows() * keyDim * 2, 1024);
    int64_t tiles = s.getStages() * s.getKeys() * 2;
    int64_t ring = llvm::alignTo(tiles * keyDim, 1024) + tiles * valueDim;
    int64_t scratch = s.getSplitKeys() ? s.getWarps() * (s.getRows() * valueDim * 4 + s.getRows() * 8) : 0;
    // Under wgmma six barriers or rings of them follow.
    int64_t barriers = s.getKind() == ScheduleKind::Wgmma ? 1024 : 0;
    return queries + std::max(ring, scratch) + barriers;
  }
  /// Query fragments stay in registers where they leave the accumulator enough of the 255.
  bool queryFitsRegisters() const { return keyDim / 4 + valueDim / 2 <= 128; }
  /// Registers of the fragments that are live at once: scores, weights, the accumulator, and the queries
  /// where they stay. ptxas needs some 80 more for addresses, rows and masks.
  int64_t fragmentRegisters(int64_t warpKeys, bool queryInRegisters) const {
    return warpKeys / 2 + warpKeys / 4 + valueDim / 2 + (queryInRegisters ? keyDim / 4 : 0);
  }
};

struct ChooseSchedule : attn::impl::ChooseSchedulePassBase<ChooseSchedule> {
  using ChooseSchedulePassBase::ChooseSchedulePassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    auto finish = function.getOps<FinishOp>();
    auto inits = function.getOps<InitOp>();
    if (finish.empty() || inits.empty())
      return;
    const Chip *chip = findChip(target);
    if (!chip) {
      function.emitError() << "unknown target '" << target << "'; known are " << listChips();
      return signalPassFailure();
    }
    auto query = cast<RankedTensorType>((*inits.begin()).getQuery().getType());
    auto updates = function.getOps<UpdateOp>();
    Shape shape{paddedDim(query.getDimSize(2)),
                paddedDim((*finish.begin()).getState().getType().getValueDim()),
                0,
                1,
                true,
                {}};
    for (UpdateOp update : updates) {
      shape.group = query.getDimSize(1) / update.getKVHeads();
      SmallVector<int64_t> ends;
      update.getVisibility().collectEnds(ends);
      shape.plain &= update.getScore().empty() && ends.empty();
      shape.kept.push_back(update.getKv().getType());
      HeadClassesAttr classes = update.getHeadClassesAttr();
      shape.masks += classes && !update.getClassOfRegion() ? classes.size() : 1;
      shape.plain &= !classes;
    }

    if (auto given = function->getAttrOfType<ArrayAttr>("tile.schedules")) {
      for (auto schedule : given.getAsRange<ScheduleAttr>()) {
        if (schedule.getKind() == ScheduleKind::Wgmma && chip->name != "sm_90a") {
          function.emitError() << schedule << " needs sm_90a, the only chip with wgmma; got " << chip->name;
          return signalPassFailure();
        }
        if (schedule.getKind() == ScheduleKind::Wgmma && !shape.alignsTiles(schedule.getKeys())) {
          function.emitError() << schedule
                               << " has tiles of keys and values that are no multiples of 1024 bytes, "
                               << "after which swizzles repeat; the nearest number of keys that has is "
                               << llvm::alignTo(schedule.getKeys(), 32);
          return signalPassFailure();
        }
        if (shape.sharedBytes(schedule) > chip->sharedPerBlock) {
          function.emitError() << schedule << " needs " << shape.sharedBytes(schedule)
                               << " bytes of shared memory, " << chip->name << " has " << chip->sharedPerBlock
                               << " per block";
          return signalPassFailure();
        }
      }
      return;
    }
    SmallVector<Attribute> schedules;
    ScheduleAttr many = prefill(shape, *chip);
    // Where there are many rows the tensor cores are the limit, and only wgmma reaches it: on an H200 it
    // was 1.8 to 2.8 times as fast as mma at every shape (benchmarks/results).
    if (schedule == "wgmma" || (schedule == "auto" && chip->hasWgmma)) {
      if (ScheduleAttr hopper = hopperPrefill(shape, *chip)) {
        many = hopper;
        if (schedule == "auto")
          function.emitRemark() << "schedule wgmma for prefill: a tile of " << many.getRows() << " rows does "
                                << many.getRows()
                                << " operations per byte of keys and values, so tensor cores are "
                                << "the limit; decode stays mma: its limit is memory";
        if (schedule == "auto" && llvm::any_of(shape.kept, [](KVType type) { return type.isOfClass(); }))
          function.emitRemark()
              << "schedule wgmma gathers keys and values: boxes have strides that are known "
                 "before the kernel runs, and stores of one head class (heads = ?) have not";
      } else {
        function.emitRemark() << "schedule mma instead of wgmma: "
                              << (chip->hasWgmma ? "no tile of this dim fits shared memory and registers"
                                                 : "wgmma needs sm_90a");
      }
    }
    for (ScheduleAttr schedule : {decode(shape, *chip), many}) {
      if (!schedule) {
        function.emitError() << "no schedule for dim " << shape.keyDim << " and value dim " << shape.valueDim
                             << " fits the " << chip->sharedPerBlock << " bytes of shared memory of "
                             << chip->name;
        return signalPassFailure();
      }
      schedules.push_back(schedule);
    }
    function->setAttr("tile.schedules", ArrayAttr::get(&getContext(), schedules));
  }

  ScheduleAttr make(const Shape &shape, int64_t rows, int64_t keys, int64_t warps, int64_t stages,
                    int64_t blocks, bool splitKeys) {
    return ScheduleAttr::get(&getContext(), ScheduleKind::Mma, rows, keys, warps, stages, blocks, splitKeys,
                             shape.queryFitsRegisters());
  }

  /// Decode lives on bytes in flight: two blocks per multiprocessor with as many stages as fit, else one.
  ScheduleAttr decode(const Shape &shape, const Chip &chip) {
    for (int64_t blocks : {2, 1}) {
      for (int64_t warps : {4, 2}) {
        for (int64_t stages = 4; stages >= 2; --stages) {
          ScheduleAttr schedule = make(shape, 16, 16 * warps, warps, stages, blocks, /*splitKeys=*/true);
          if (shape.sharedBytes(schedule) <= chip.sharedPerBlock &&
              (shape.sharedBytes(schedule) + 1024) * blocks <= chip.sharedPerMultiprocessor &&
              (warps == 4 || blocks == 1))
            return schedule;
        }
      }
    }
    return {};
  }

  /// A consumer warpgroup has 64 rows, and holds the scores of a tile, the weights of the one before and the
  /// accumulator at once, in the registers that producers leave it. `room` is what ptxas 13.0 needs to spill
  /// nothing with every mask and score region (2026-11-20); the order is that of speed measured on an H200.
  ScheduleAttr hopperPrefill(const Shape &shape, const Chip &chip) {
    if (!chip.hasWgmma)
      return {};
    bool simple = shape.plain && shape.masks == 1;
    // The shorter the dim, the more the exponentials weigh: a third warpgroup to hide them behind. Its
    // registers come from the producer, too, which then cannot address parts of pages or several stores.
    if (shape.valueDim <= 80 && shape.keyDim <= 80 && shape.kept.size() == 1 && shape.masks <= 3)
      if (ScheduleAttr three =
              hopperTile(shape, chip, 12, simple ? 128 : 104 - (shape.masks > 1 ? 12 : 0), true);
          three && shape.fetchesSimply(three.getKeys()))
        return three;
    // Where the heads of a group do not fill the tile's rows evenly, queries are gathered, by more registers.
    bool even = 128 % shape.group == 0;
    bool roomy = shape.masks == 1 && (simple || even || shape.valueDim > 208);
    // A mask for each region and class of heads leaves less for the fragments.
    int64_t masks = shape.masks > 3 ? 24 : shape.masks > 1 && !even ? 12 : 0;
    if (ScheduleAttr fetched = hopperTile(shape, chip, 8, roomy ? 176 : 160 - masks, true))
      return fetched;
    // So do several masks at all, and more descriptors for longer keys; wide values have more registers (see
    // Registers in WgmmaKernel.cpp).
    bool crowded = shape.masks > 1 || shape.keyDim > 128;
    return hopperTile(shape, chip, 8, (crowded && shape.valueDim <= 208 ? 144 : 160) - masks, false);
  }

  /// Multiples of 32: lengths usually are, too, and a tail costs a mask and a clearing. (144 keys at d128
  /// were as fast as 128 from 8K on and 8 % slower at 2K, measured on an H200.)
  ScheduleAttr hopperTile(const Shape &shape, const Chip &chip, int64_t warps, int64_t room, bool fetch) {
    for (int64_t keys = fetch ? 160 : 128; keys >= 32; keys -= 32) {
      auto schedule =
          ScheduleAttr::get(&getContext(), ScheduleKind::Wgmma, 16 * warps, keys, warps, 2, 1, false, false);
      if (shape.mayFetch(keys) == fetch && !shape.tearsPages(keys) && shape.alignsTiles(keys) &&
          shape.fragmentRegisters(keys, false) <= room && shape.sharedBytes(schedule) <= chip.sharedPerBlock)
        return schedule;
    }
    return {};
  }

  /// Prefill lives on reuse: the most rows, then the longest key tile.
  ScheduleAttr prefill(const Shape &shape, const Chip &chip) {
    for (int64_t rows : {128, 64}) {
      for (int64_t keys : {64, 32}) {
        ScheduleAttr schedule = make(shape, rows, keys, rows / 16, 2, 1, /*splitKeys=*/false);
        if (shape.fragmentRegisters(keys, shape.queryFitsRegisters()) < (shape.masks > 3 ? 160 : 168) &&
            shape.sharedBytes(schedule) <= chip.sharedPerBlock)
          return schedule;
      }
    }
    return {};
  }
};

} // namespace
