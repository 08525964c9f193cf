//===- ChooseSchedule.cpp - Tiles, warps and stages for each kernel -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DecodeSchedules.h"
#include "GradientSchedules.h"

#include "attn/Conversion/Chain.h"
#include "attn/Conversion/Passes.h"
#include "attn/Conversion/ScheduleModel.h"

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

/// An instruction of mma has 16 rows and reads 16 tokens of the values: the least that a warp has.
constexpr int64_t mmaRows = 16, mmaKeys = 16;

namespace prefilling {
/// The rows of a block, in order of reuse.
constexpr int64_t mmaTileRows[] = {128, 64};
/// The rows of a block whose warps share rows: twice as many warps have half of the registers.
constexpr int64_t mmaSlicedRows[] = {64, 32};
/// The keys of a tile, from the longest. Only quantized values may be worth the shortest: it is a single step
/// of an MMA.
constexpr int64_t mmaTileKeys[] = {64, 32, mmaKeys};

/// Warps of two and of three consumers.
constexpr int64_t twoConsumers = 2 * ScheduleAttr::groupWarps, threeConsumers = 3 * ScheduleAttr::groupWarps;
/// Heads up to this long have three consumers. They were faster on an H200 where exponentials weigh more than
/// MMAs.
constexpr int64_t shortHead = 80;
/// The masks that fit the registers of three consumers.
constexpr int64_t fewMasks = 3;
/// The longest tiles that are tried, of keys that come in boxes and of gathered keys, and the step to shorter
/// ones. All are multiples of 32: lengths usually are, too, and a tail costs a mask and a clearing. (144 keys
/// at d128 were as fast as 128 from 8K on and 8 % slower at 2K, measured on an H200.)
constexpr int64_t tmaKeys = 160, gatheredKeys = 128, keyStep = 32;
/// The tokens of the halves of a tile that two warpgroups divide, from the longest.
constexpr int64_t sharedHalves[] = {64, 32};
/// One tile is read while the next arrives. More than two in flight made no difference at d64 on an H200.
constexpr int64_t stages = 2;
} // namespace prefilling

/// Constants of kernels on wgmma that share a numerics contract.
namespace byRow {
constexpr int64_t tileKeys[] = {128, 64, 32};
/// Blocks of a multiprocessor and stages of one, from most to fewest bytes in flight.
constexpr std::pair<int64_t, int64_t> inFlight[] = {{2, 4}, {2, 3}, {1, 4}, {2, 2}, {1, 3}, {1, 2}};
/// The registers of a producer's thread, and of one of each role together in a block alone.
constexpr int64_t gathering = 56, loading = 24, registers = 512;
} // namespace byRow

/// Constants of a kernel for short sequences (hopperBrief).
namespace briefly {
/// The rows and tokens up to which it was faster on an H200, and the head dims for which 120 registers
/// suffice.
constexpr int64_t longestSequence = 1024, longestHead = 64;
constexpr int64_t keys = 64, stages = 2, blocks = 3;
/// The registers of a thread of each role: threads of three blocks of 256 begin with 80.
constexpr int64_t producer = 24, consumer = 120;
} // namespace briefly

struct ChooseSchedule : mlir::attn::impl::ChooseSchedulePassBase<ChooseSchedule> {
  using ChooseSchedulePassBase::ChooseSchedulePassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    std::optional<ScheduleShape> shape = ScheduleShape::of(function);
    if (!shape)
      return;
    const Chip *chip = findChip(target);
    if (!chip) {
      function.emitError() << "unknown target '" << target << "'; known are " << listChips();
      return signalPassFailure();
    }
    if (backwardAttr.isOn(function)) {
      if (failed(chooseForGradients(function, *shape, *chip)))
        signalPassFailure();
      return;
    }
    if (failed(chooseForSignificance(function, *shape, *chip)))
      return signalPassFailure();
    ScheduleModel model(*shape, *chip);
    SmallVector<ScheduleAttr> chosen;
    if (auto given = tile::schedulesAttr.get(function))
      llvm::append_range(chosen, given.getAsRange<ScheduleAttr>());
    else if (failed(choose(function, model, *shape, *chip, chosen)))
      return signalPassFailure();
    else
      decided += chosen.size();
    SmallVector<Attribute> schedules;
    for (ScheduleAttr schedule : chosen) {
      schedules.push_back(model.complete(schedule));
      if (schedule.getKind() == ScheduleKind::Wgmma && shape->converted() && numericsAttr.isOn(function)) {
        function.emitError() << schedule << " widens " << shape->converted()
                             << ", which kernels of a numerics contract do not; nearest legal: a schedule of "
                                "kind mma";
        return signalPassFailure();
      }
      if (failed(model.verify(cast<ScheduleAttr>(schedules.back()), [&] { return function.emitError(); })))
        return signalPassFailure();
    }
    tile::schedulesAttr.set(function, ArrayAttr::get(&getContext(), schedules));
    if (!tile::mergeScheduleAttr.isOn(function))
      tile::mergeScheduleAttr.set(function, model.merge(&getContext()));
  }

  /// Whether gradients may be fused: if the function wants no order or, when it does not ask for two
  /// launches, if scores are plain and no visibility has a size. On an H100, five MMAs were then 1.03 to 1.20
  /// times as fast as seven in two launches for sequences of 4K tokens and more. At 2K they were 0.95 times
  /// as fast, because sums in memory are much beside the MMAs. Windows and score regions gain at heads of 64
  /// alone, and have no order of blocks: a task of a window has rows that the one before it has not
  /// (docs/rationale/backward.md). Gradients of sinks are sums of deltas, which are exact where rows are
  /// stationary (RowSums.h), so they fuse only on request.
  static bool mayFuse(func::FuncOp function, const ScheduleShape &shape) {
    Attribute ordered = orderedAttr.get(function);
    MLIRContext *context = function.getContext();
    if (ordered && ordered == StringAttr::get(context, orderedApart))
      return false;
    if (ordered && ordered == BoolAttr::get(context, false))
      return true;
    auto listed = dyn_cast<ArrayAttr>(backwardAttr.get(function));
    bool ofSinks = listed && llvm::is_contained(listed, StringAttr::get(context, sinkLogits));
    constexpr int64_t widestOfOthers = 64;
    return !ofSinks && (shape.plain || (!ordered && shape.keyDim <= widestOfOthers));
  }

  /// Sets two schedules: of the kernels with stationary rows, and of those with stationary tokens.
  LogicalResult chooseForGradients(func::FuncOp function, const ScheduleShape &shape, const Chip &chip) {
    if (tile::schedulesAttr.isOn(function))
      return function.emitError() << "has tile.schedules, and those of a backward pass are chosen: expected "
                                     "none beside "
                                  << backwardAttr;
    if (shape.areLatent() || shape.mixesLatent())
      return function.emitError()
             << "has no backward pass: values are a part of their keys; expected keys and "
                "values apart, as the expanded form of latent attention has them";
    GradientSchedules chosen =
        chooseGradientSchedules(shape, chip, /*mayWgmma=*/schedule != "mma", mayFuse(function, shape));
    if (!chosen.rows || !chosen.tokens)
      return function.emitError()
             << "no schedule of a backward pass for dim " << shape.keyDim << " and value dim "
             << shape.valueDim << " fits registers and the shared memory of " << chip.name
             << ": expected dims of up to 256 where a block has 163 KiB of shared memory, and "
                "less where it has less";
    if (chosen.fused)
      fusedAttr.mark(function);
    if (chosen.splitsTokens)
      splitsTokensAttr.mark(function);
    for (auto [held, each] : {std::pair("rows", chosen.rows), std::pair("tokens", chosen.tokens)})
      if (schedule == "wgmma" && !chosen.fused && each.getKind() != ScheduleKind::Wgmma)
        function.emitRemark() << "schedule mma instead of wgmma where a backward pass keeps " << held
                              << " stationary: wgmma needs sm_90a, and dims that fit its registers";
    tile::schedulesAttr.set(function, ArrayAttr::get(&getContext(), {chosen.rows}));
    tile::tokenScheduleAttr.set(function, chosen.tokens);
    if (chosen.values)
      tile::valueScheduleAttr.set(function, chosen.values);
    decided += chosen.values ? 3 : 2;
    return success();
  }

  /// Sets the schedule of the kernels with stationary tokens, if their significance is asked for.
  LogicalResult chooseForSignificance(func::FuncOp function, const ScheduleShape &shape, const Chip &chip) {
    auto of = significanceAttr.get(function);
    if (!of)
      return success();
    bool byHead = of == stringifyTogether(Together::Max);
    if (shape.areLatent() || shape.mixesLatent() || shape.valueSlices() > 1)
      return function.emitError() << "has no significance: expected keys and values apart, of dims up to 256";
    ScheduleAttr chosen = chooseSignificanceSchedule(shape, chip, byHead);
    if (!chosen)
      return function.emitError() << "no schedule of significance for dim " << shape.keyDim
                                  << " and groups of " << shape.group << " query heads fits " << chip.name
                                  << ": expected groups of up to 64 heads for max, and of up to 16 "
                                     "with quantized keys or values; mean and sum take groups of any size";
    tile::tokenScheduleAttr.set(function, chosen);
    ++decided;
    return success();
  }

  /// Chooses kernels that share a numerics contract. On wgmma two kernels have the same tiles of keys, one
  /// for the rows of one warpgroup and one for many. Elsewhere a single kernel, for few rows, does all: its
  /// warps divide the keys of a tile, as no kernel of many rows does.
  LogicalResult chooseByRow(func::FuncOp function, const ScheduleModel &model, const ScheduleShape &shape,
                            const Chip &chip, SmallVectorImpl<ScheduleAttr> &chosen) {
    if (llvm::any_of(function.getOps<FinishOp>(), [](FinishOp finish) { return firstAttr.isOn(finish); }))
      return function.emitError("finishes a state early, and has no numerics contract: expected no ")
             << numericsAttr;
    if (schedule == "wgmma" || (schedule == "auto" && chip.hasWgmma)) {
      std::string missing = wgmmaMissing(function, shape, chip);
      if (missing.empty() && chooseByRowOnHopper(model, shape, chosen))
        return success();
      function.emitRemark() << "schedule mma instead of wgmma: "
                            << (missing.empty() ? "no tile of this dim fits shared memory and registers"
                                                : missing);
    }
    const int64_t rows = model.takesFewRows() ? ScheduleAttr::fewRows : mmaRows;
    for (int64_t each : {rows, mmaRows})
      if (ScheduleAttr few = chooseDecodeSchedule(&getContext(), model, shape, chip, each)) {
        chosen.push_back(few);
        return success();
      }
    return function.emitError() << "no schedule for dim " << shape.keyDim << " and value dim "
                                << shape.valueDim << " fits the " << chip.sharedPerBlock
                                << " bytes of shared memory of " << chip.name;
  }

  /// A tile's keys are a power of two, so that parts end with a tile. One kernel serves all rows whose
  /// warpgroups share rows: its tile has 64.
  bool chooseByRowOnHopper(const ScheduleModel &model, const ScheduleShape &shape,
                           SmallVectorImpl<ScheduleAttr> &chosen) {
    using namespace prefilling;
    if (ScheduleAttr shared = sharedTile(model, shape)) {
      chosen.push_back(shared);
      return true;
    }
    const bool isShort = shape.valueDim <= shortHead && shape.keyDim <= shortHead &&
                         shape.regions.size() == 1 && shape.masks <= fewMasks;
    for (int64_t keys : byRow::tileKeys) {
      const bool tma = model.mayLoadByTma(keys);
      ScheduleAttr many;
      if (isShort && tma && model.loadsSimplyByTma(keys))
        many = hopperTileOf(model, shape, threeConsumers, keys);
      if (!many)
        many = hopperTileOf(model, shape, twoConsumers, keys);
      if (!many)
        continue;
      if (shape.valueSlices() == 1) {
        ScheduleAttr few = decodeByRow(model, shape, keys);
        if (!few)
          continue;
        chosen.push_back(few);
      }
      chosen.push_back(many);
      return true;
    }
    return false;
  }

  /// The schedule of one warpgroup, for decoding: as many bytes in flight as fit. Pages are gathered if that
  /// fits registers, because their boxes are 7 % slower where memory is the limit
  /// (docs/rationale/forward.md).
  ScheduleAttr decodeByRow(const ScheduleModel &model, const ScheduleShape &shape, int64_t keys) {
    const bool paged = llvm::any_of(shape.regions, [](KVType region) { return storeOf(region).isPaged(); });
    for (bool gathers : {true, false})
      for (auto [blocks, stages] : byRow::inFlight) {
        if (gathers && !paged)
          continue;
        tile::ScheduleFields f = fieldsOf(shape, ScheduleKind::Wgmma, ScheduleAttr::groupRows, keys,
                                          ScheduleAttr::groupWarps, stages);
        f.blocks = blocks;
        if (gathers)
          f.keyCopies.assign(shape.regions.size(), ScheduleAttr::gathered);
        if (blocks > 1) {
          const bool addresses =
              gathers || !model.mayLoadByTma(keys) || ScheduleAttr::groupRows % shape.group != 0;
          f.producerRegisters = addresses ? byRow::gathering : byRow::loading;
          f.consumerRegisters = byRow::registers / blocks - *f.producerRegisters;
        }
        for (int64_t queryStages : {2, 1}) {
          f.queryStages = queryStages;
          ScheduleAttr schedule = model.complete(ScheduleAttr::get(&getContext(), f));
          if (model.fragmentRegisters(schedule) <= model.fragmentRoom(schedule) &&
              model.fitsBlock(schedule) && model.fitsMultiprocessor(schedule))
            return schedule;
        }
      }
    return {};
  }

  LogicalResult choose(func::FuncOp function, const ScheduleModel &model, const ScheduleShape &shape,
                       const Chip &chip, SmallVectorImpl<ScheduleAttr> &chosen) {
    if (numericsAttr.isOn(function))
      return chooseByRow(function, model, shape, chip, chosen);
    ScheduleAttr many = prefill(model, shape);
    // Many rows are limited by the tensor cores, and only wgmma reaches their limit: on an H200 it was 1.8 to
    // 2.8 times as fast as mma at every shape (benchmarks/results).
    if (schedule == "wgmma" || (schedule == "auto" && chip.hasWgmma)) {
      std::string missing = wgmmaMissing(function, shape, chip);
      if (ScheduleAttr hopper = missing.empty() ? hopperPrefill(model, shape) : ScheduleAttr()) {
        many = hopper;
        if (schedule == "auto")
          explain(function, many);
      } else {
        function.emitRemark() << "schedule mma instead of wgmma: "
                              << (missing.empty() ? "no tile of this dim fits shared memory and registers"
                                                  : missing);
      }
    }
    // A state must be whole before the end of a task to be finished early. It is not if warps share the keys
    // of a tile.
    if (many &&
        llvm::any_of(function.getOps<FinishOp>(), [](FinishOp finish) { return firstAttr.isOn(finish); })) {
      chosen.push_back(many);
      return success();
    }
    ScheduleAttr few = chooseDecodeSchedule(&getContext(), model, shape, chip, mmaRows),
                 brief = hopperBrief(model, shape, many);
    if (few && many) {
      if (model.takesFewRows())
        if (ScheduleAttr fewer =
                chooseDecodeSchedule(&getContext(), model, shape, chip, ScheduleAttr::fewRows))
          chosen.push_back(fewer);
      chosen.push_back(few);
      if (brief)
        chosen.push_back(brief);
      // Over quantized latents two warps that share the weights of 16 rows convert each key once. They
      // are 1.9 to 2.2 times as fast as tiles of 64 rows on mma, with 128 heads, too (H200, 2026-12-02).
      if (!few.getSharedWeights() || many.getKind() == ScheduleKind::Wgmma)
        chosen.push_back(many);
      return success();
    }
    return function.emitError() << "no schedule for dim " << shape.keyDim << " and value dim "
                                << shape.valueDim << " fits the " << chip.sharedPerBlock
                                << " bytes of shared memory of " << chip.name;
  }

  /// The reason why an attention of any size has no kernel on wgmma; empty if it has one.
  static std::string wgmmaMissing(func::FuncOp function, const ScheduleShape &shape, const Chip &chip) {
    if (!chip.hasWgmma)
      return "wgmma needs sm_90a";
    if (findBranch(function))
      return "its kernel takes a single chain of updates";
    if (shape.mixesLatent())
      return "its rings have keys and values apart, or values that are a part of their keys, not both";
    // Kernels of a numerics contract multiply the same numbers, and kernels of few rows widen in registers.
    const bool byRow = numericsAttr.isOn(function);
    if (!shape.converted() || (shape.mayWiden() && !byRow) || shape.mayWidenLatents())
      return "";
    std::string text;
    llvm::raw_string_ostream(text) << "wgmma reads keys and values from shared memory as they are, and does "
                                      "not multiply "
                                   << shape.converted();
    if (byRow && shape.mayWiden())
      text += "; under a numerics contract no producer widens them";
    return text;
  }

  static void explain(func::FuncOp function, ScheduleAttr many) {
    function.emitRemark() << "schedule wgmma for prefill: a tile of " << many.getRows() << " rows does "
                          << many.getRows() << " operations per byte of keys and values, so tensor cores are "
                          << "the limit; decode stays mma: its limit is memory";
  }

  ScheduleAttr mma(const ScheduleModel &model, const ScheduleShape &shape, int64_t rows, int64_t keys,
                   int64_t warps, int64_t stages) {
    tile::ScheduleFields f = fieldsOf(shape, ScheduleKind::Mma, rows, keys, warps, stages);
    f.queryInRegisters = model.keepsQueries() && !model.mixesCodes();
    return ScheduleAttr::get(&getContext(), f);
  }

  /// The fields of a schedule of one block whose warps have rows of their own, or slices of the values.
  static tile::ScheduleFields fieldsOf(const ScheduleShape &shape, ScheduleKind kind, int64_t rows,
                                       int64_t keys, int64_t warps, int64_t stages) {
    tile::ScheduleFields f;
    f.kind = kind, f.rows = rows, f.keys = keys, f.warps = warps, f.stages = stages, f.blocks = 1;
    f.splitKeys = false, f.queryInRegisters = false;
    if (shape.valueSlices() > 1)
      f.valueSlices = shape.valueSlices();
    return f;
  }

  /// A consumer warpgroup has 64 rows. In the registers that producers leave it, it holds the scores of a
  /// tile, the weights of the tile before and the accumulator at once. The order is that of the speed
  /// measured on an H200.
  ScheduleAttr hopperPrefill(const ScheduleModel &model, const ScheduleShape &shape) {
    // The shorter the dim, the more the exponentials weigh, so a third warpgroup hides them. Its registers
    // come also from the producer, which then cannot address parts of pages or several stores.
    using namespace prefilling;
    if (ScheduleAttr shared = sharedTile(model, shape))
      return shared;
    if (shape.converted())
      return shape.mayWiden() ? hopperTile(model, shape, twoConsumers, /*tma=*/false) : ScheduleAttr();
    bool isShort = shape.valueDim <= shortHead && shape.keyDim <= shortHead;
    if (isShort && shape.regions.size() == 1 && shape.masks <= fewMasks)
      if (ScheduleAttr three = hopperTile(model, shape, threeConsumers, /*tma=*/true);
          three && model.loadsSimplyByTma(three.getKeys()))
        return three;
    if (ScheduleAttr tmaLoaded = hopperTile(model, shape, twoConsumers, /*tma=*/true))
      return tmaLoaded;
    return hopperTile(model, shape, twoConsumers, /*tma=*/false);
  }

  /// A schedule for short sequences, beside that of three warpgroups, which are the fastest from 2K rows on:
  /// short sequences end soon after their pipelines have filled. Three blocks of one warpgroup each fill a
  /// multiprocessor better, as they begin and end their tasks at different times. (32 x 512 causal, 32 heads
  /// of 64, on an H200: 0.130 instead of 0.139 ms; 16 x 1K 0.207 instead of 0.224, but 8 x 2K 0.354 instead
  /// of 0.323.)
  ScheduleAttr hopperBrief(const ScheduleModel &model, const ScheduleShape &shape, ScheduleAttr many) {
    using namespace briefly;
    if (!many || many.getConsumers() < 3 || shape.keyDim > longestHead || shape.valueDim > longestHead ||
        !shape.plain || shape.masks > 1 || ScheduleAttr::groupRows % shape.group != 0 ||
        !model.mayLoadByTma(keys) || model.tearsPages(keys) || !model.alignsTiles(keys) ||
        !model.loadsSimplyByTma(keys))
      return {};
    tile::ScheduleFields f = ScheduleAttr::get(&getContext(), ScheduleKind::Wgmma, ScheduleAttr::groupRows,
                                               keys, ScheduleAttr::groupWarps, stages, blocks,
                                               /*splitKeys=*/false, /*queryInRegisters=*/false)
                                 .getFields();
    f.producerRegisters = producer, f.consumerRegisters = consumer, f.sequencesUpTo = longestSequence;
    ScheduleAttr schedule = model.complete(ScheduleAttr::get(&getContext(), f));
    return model.fitsBlock(schedule) ? schedule : ScheduleAttr();
  }

  /// The schedule with the longest tile of keys that fits, of those whose boxes are long or whole pages if
  /// there is one: pages of 784 tokens have only short boxes.
  ScheduleAttr hopperTile(const ScheduleModel &model, const ScheduleShape &shape, int64_t warps, bool tma) {
    ScheduleAttr whole = hopperTile(model, shape, warps, tma, /*tears=*/false);
    return whole ? whole : hopperTile(model, shape, warps, tma, /*tears=*/true);
  }

  ScheduleAttr hopperTile(const ScheduleModel &model, const ScheduleShape &shape, int64_t warps, bool tma,
                          bool tears) {
    using namespace prefilling;
    for (int64_t keys = tma ? tmaKeys : gatheredKeys; keys >= keyStep; keys -= keyStep) {
      if (model.mayLoadByTma(keys) != tma || model.tearsPages(keys) != tears)
        continue;
      if (ScheduleAttr schedule = hopperTileOf(model, shape, warps, keys))
        return schedule;
    }
    return {};
  }

  ScheduleAttr hopperTileOf(const ScheduleModel &model, const ScheduleShape &shape, int64_t warps,
                            int64_t keys) {
    if (!model.alignsTiles(keys))
      return {};
    tile::ScheduleFields f = fieldsOf(shape, ScheduleKind::Wgmma, mmaRows * warps / shape.valueSlices(), keys,
                                      warps, prefilling::stages);
    // Quantized values become f16, and so do queries, in registers.
    f.queryInRegisters = shape.converted() && shape.element.isBF16();
    ScheduleAttr schedule = model.complete(ScheduleAttr::get(&getContext(), f));
    if (model.fragmentRegisters(schedule) <= model.fragmentRoom(schedule) && model.fitsBlock(schedule))
      return schedule;
    return {};
  }

  /// The schedule of two warpgroups that share the weights of their rows. Each half of a tile has a stage of
  /// its own. A half of 32 tokens takes longer to read the queries than to multiply them, and is for keys and
  /// values that lie apart, of which longer halves may not fit.
  ScheduleAttr sharedTile(const ScheduleModel &model, const ScheduleShape &shape) {
    using namespace prefilling;
    for (int64_t half : sharedHalves) {
      if (!model.mayShareWeights(half) || (shape.areLatent() && half != sharedHalves[0]))
        continue;
      tile::ScheduleFields f =
          fieldsOf(shape, ScheduleKind::Wgmma, ScheduleAttr::groupRows, 2 * half, twoConsumers, /*stages=*/1);
      f.sharedWeights = true;
      ScheduleAttr schedule = model.complete(ScheduleAttr::get(&getContext(), f));
      if (model.fragmentRegisters(schedule) <= model.fragmentRoom(schedule) && model.fitsBlock(schedule))
        return schedule;
    }
    return {};
  }

  /// Prefill lives on reuse: take the most rows, then the longest tile of keys.
  ScheduleAttr prefill(const ScheduleModel &model, const ScheduleShape &shape) {
    const auto &tileRows = shape.valueSlices() > 1 ? prefilling::mmaSlicedRows : prefilling::mmaTileRows;
    for (int64_t rows : tileRows) {
      for (int64_t keys : prefilling::mmaTileKeys) {
        bool isLast = rows == tileRows[1];
        if (keys == mmaKeys && !shape.converted() && !isLast)
          continue;
        // Quantized values with many groups may leave no tile enough registers; the smallest tile is then
        // taken.
        bool least = isLast && keys == mmaKeys;
        for (int64_t stages = prefilling::stages; stages > 0; --stages) {
          if (stages == 1 && (keys != mmaKeys || !model.convertsByArithmetic()))
            continue;
          ScheduleAttr schedule = mma(model, shape, rows, keys, rows / mmaRows * shape.valueSlices(), stages);
          if ((least || model.fragmentRegisters(schedule) <= model.fragmentRoom(schedule)) &&
              model.fitsBlock(schedule))
            return schedule;
        }
      }
    }
    return {};
  }
};

} // namespace
