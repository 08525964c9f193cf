//===- ChooseSchedule.cpp - Tiles, warps and stages for each kernel -------===//
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

/// The sizes that decide how much memory a schedule needs; all elements have 16 bits.
struct Shape {
  int64_t keyDim, valueDim, regions;

  int64_t sharedBytes(ScheduleAttr s) const {
    int64_t queries = llvm::alignTo(s.getRows() * keyDim * 2, 1024);
    int64_t tiles = s.getStages() * s.getKeys() * 2;
    int64_t ring = llvm::alignTo(tiles * keyDim, 1024) + tiles * valueDim;
    int64_t scratch = s.getSplitKeys() ? s.getWarps() * (s.getRows() * valueDim * 4 + s.getRows() * 8) : 0;
    // Under wgmma six barriers or rings of them follow, each on a line of its own.
    int64_t barriers = s.getKind() == ScheduleKind::Wgmma ? 6 * 1024 : 0;
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
    Shape shape{query.getDimSize(2), (*finish.begin()).getState().getType().getValueDim(),
                std::distance(updates.begin(), updates.end())};

    if (auto given = function->getAttrOfType<ArrayAttr>("tile.schedules")) {
      for (auto schedule : given.getAsRange<ScheduleAttr>()) {
        if (schedule.getKind() == ScheduleKind::Wgmma && chip->name != "sm_90a") {
          function.emitError() << schedule << " needs sm_90a, the only chip with wgmma; got " << chip->name;
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
    if (schedule == "wgmma") {
      if (ScheduleAttr hopper = hopperPrefill(shape, *chip))
        many = hopper;
      else
        function.emitRemark() << "schedule mma instead of wgmma: "
                              << (chip->hasWgmma ? "no tile of this dim fits shared memory and registers"
                                                 : "wgmma needs sm_90a");
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

  /// Two consumer warpgroups of 64 rows. A consumer holds the scores of a tile, the weights of the one before
  /// and the accumulator at once, in the 224 or 232 registers that the producers leave it.
  ScheduleAttr hopperPrefill(const Shape &shape, const Chip &chip) {
    if (!chip.hasWgmma)
      return {};
    // A mask per region, and more descriptors for longer keys, leave less for the fragments; wide values have
    // more registers (see Registers in WgmmaKernel.cpp).
    bool crowded = shape.regions > 1 || shape.keyDim > 128;
    int64_t room = crowded && shape.valueDim <= 208 ? 144 : 160;
    for (int64_t keys : {128, 96, 64, 48, 32}) {
      auto schedule = ScheduleAttr::get(&getContext(), ScheduleKind::Wgmma, 128, keys, 8, 2, 1, false, false);
      if (shape.fragmentRegisters(keys, false) <= room && shape.sharedBytes(schedule) <= chip.sharedPerBlock)
        return schedule;
    }
    return {};
  }

  /// Prefill lives on reuse: the most rows, then the longest key tile.
  ScheduleAttr prefill(const Shape &shape, const Chip &chip) {
    for (int64_t rows : {128, 64}) {
      for (int64_t keys : {64, 32}) {
        ScheduleAttr schedule = make(shape, rows, keys, rows / 16, 2, 1, /*splitKeys=*/false);
        if (shape.fragmentRegisters(keys, shape.queryFitsRegisters()) < 168 &&
            shape.sharedBytes(schedule) <= chip.sharedPerBlock)
          return schedule;
      }
    }
    return {};
  }
};

} // namespace
