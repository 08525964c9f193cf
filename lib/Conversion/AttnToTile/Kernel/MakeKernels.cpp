//===- MakeKernels.cpp - The kernels of a function ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Kernel.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/PageOps.h"
#include "attn/Dialect/Attn/IR/Signature.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {
#define GEN_PASS_DEF_MAKEKERNELSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

struct MakeKernels : mlir::attn::impl::MakeKernelsPassBase<MakeKernels> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (tile::schedulesAttr.isOn(function) || findRowCopy(function) || findPageOp(function))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      bool attends = !findRowCopy(function) && !findPageOp(function);
      if (failed(attends ? makeAttention(function) : makeOperation(function)))
        return signalPassFailure();
      function.erase();
    }
  }

  /// Makes the kernel of an operation on a cache, or on a table of pages.
  static LogicalResult makeOperation(func::FuncOp function) {
    if (failed(readSignature(function)))
      return failure();
    copyInto(makeModule(function), function, function.getName());
    return success();
  }

  static LogicalResult makeAttention(func::FuncOp function) {
    FailureOr<Chain> chain = findChain(function);
    if (failed(chain))
      return failure();
    for (BlockArgument argument : function.getArguments())
      if (argumentName(argument).empty())
        return function.emitError() << "argument #" << argument.getArgNumber()
                                    << " has no name: expected an attribute attn.name = \"...\"";
    for (StringRef asked : {StringRef(backwardAttr), StringRef(devicePlanAttr)})
      if (chain->first && function->hasAttr(asked))
        return function.emitError("finishes a state early, and cannot be marked ") << asked;
    if (backwardAttr.isOn(function))
      return makeBackward(*chain);
    auto merge = tile::mergeScheduleAttr.get(function);
    auto schedules = tile::schedulesAttr.get(function).getAsRange<tile::ScheduleAttr>();
    if (!merge || !llvm::all_of(schedules, [](tile::ScheduleAttr each) { return each.isComplete(); }))
      return function.emitError()
             << "has schedules that leave something open; --attn-choose-schedule completes them";
    gpu::GPUModuleOp module = makeModule(function);
    for (tile::ScheduleAttr schedule : schedules) {
      std::string name = (function.getName() + "_rows" + Twine(schedule.getRows())).str();
      func::FuncOp kernel = copyInto(module, function, name);
      tile::scheduleAttr.set(kernel, schedule);
      if (significanceAttr.isOn(function) && mayStoreScores(*chain, schedule))
        storesScoresAttr.mark(kernel);
    }
    func::FuncOp merging = copyInto(module, function, (function.getName() + "_merge").str());
    tile::mergeScheduleAttr.set(merging, merge);
    makeMerge(*chain, merging);
    if (significanceAttr.isOn(function) && failed(makeSignificance(*chain, module, merging)))
      return failure();
    if (devicePlanAttr.isOn(function)) {
      func::FuncOp planning = copyInto(module, function, (function.getName() + "_plan").str());
      plansAttr.mark(planning);
      if (significanceAttr.isOn(function))
        storesScoresAttr.mark(planning);
    }
    return success();
  }

  /// Makes the kernels of a backward pass: a copy with stationary rows and, for each region, one with its
  /// tokens stationary, or one for the gradient of its keys and one for that of its values. A last copy adds
  /// up the results of parts of tasks. If tokens' kernels add to rows, too, there are two copies with
  /// stationary rows: one before the others and one after.
  static LogicalResult makeBackward(Chain &chain) {
    func::FuncOp function = chain.function;
    if (devicePlanAttr.isOn(function))
      return function.emitError("cannot be planned on the device: it asks for a backward pass");
    auto schedules = tile::schedulesAttr.get(function).getAsRange<tile::ScheduleAttr>();
    auto ofTokens = tile::tokenScheduleAttr.get(function);
    if (!ofTokens || !llvm::hasSingleElement(schedules))
      return function.emitError("expected one of tile.schedules, of rows, and a tile.token_schedule; "
                                "--attn-choose-schedule chooses them");
    tile::ScheduleAttr ofRows = *schedules.begin(), ofValues = tile::valueScheduleAttr.get(function);
    gpu::GPUModuleOp module = makeModule(function);
    Builder b(function.getContext());
    auto make = [&](const Twine &name, tile::ScheduleAttr schedule, Stationary stationary) {
      func::FuncOp kernel = copyInto(module, function, (function.getName() + name).str());
      backwardAttr.remove(kernel);
      orderedAttr.remove(kernel);
      numericsAttr.remove(kernel);
      fusedAttr.remove(kernel);
      splitsTokensAttr.remove(kernel);
      tile::scheduleAttr.set(kernel, schedule);
      gradientAttr.set(kernel, StationaryAttr::get(b.getContext(), stationary));
      return kernel;
    };
    bool fused = fusedAttr.isOn(function);
    Attribute ordered = orderedAttr.get(function);
    const bool inOrder = ordered && ordered != b.getBoolAttr(false);
    auto setFused = [&](func::FuncOp kernel, FusedPart part) {
      if (fused)
        fusedPartAttr.set(kernel, FusedPartAttr::get(b.getContext(), part));
    };
    StringRef first = fused ? "_begin" : "_rows";
    func::FuncOp rows = make(first + Twine(ofRows.getRows()), ofRows, Stationary::Rows);
    setFused(rows, FusedPart::Begin);
    if (auto tables = dyn_cast<ArrayAttr>(backwardAttr.get(function)))
      tablesAttr.set(rows, tables);
    SmallVector<Stationary> stationary{Stationary::Tokens};
    if (splitsTokensAttr.isOn(function))
      stationary = {Stationary::Keys, Stationary::Values};
    for (auto [i, update] : llvm::enumerate(chain.updates))
      for (Stationary each : stationary) {
        const bool valuesAlone = each == Stationary::Values;
        tile::ScheduleAttr schedule = valuesAlone && ofValues ? ofValues : ofTokens;
        func::FuncOp kernel = make("_" + stringifyStationary(each) + Twine(schedule.getRows()) + "_" +
                                       argumentName(update.getKv()),
                                   schedule, each);
        operandAttr.set(kernel, b.getI32IntegerAttr(i));
        if (!valuesAlone)
          setFused(kernel, inOrder ? FusedPart::AddInOrder : FusedPart::Add);
      }
    func::FuncOp sums = copyInto(module, function, (function.getName() + "_sum").str());
    for (StringRef asked : {StringRef(backwardAttr), StringRef(orderedAttr), StringRef(fusedAttr),
                            StringRef(splitsTokensAttr), StringRef(numericsAttr)})
      sums->removeAttr(asked);
    sumsPartsAttr.mark(sums);
    if (fused)
      setFused(make("_end" + Twine(ofRows.getRows()), ofRows, Stationary::Rows), FusedPart::End);
    return success();
  }

  /// In a step of decoding, warps share the rows, and a task has one row.
  static bool mayStoreScores(Chain &chain, tile::ScheduleAttr schedule) {
    return schedule.getSplitKeys() && chain.group() <= schedule.getRows() && !chain.headClasses();
  }

  /// Makes, for each region, a copy with stationary tokens, which follows the kernels that finish rows. If
  /// one of those may store scores, also makes a copy that weighs them; it begins while the merge kernel
  /// waits.
  static LogicalResult makeSignificance(Chain &chain, gpu::GPUModuleOp module, func::FuncOp merging) {
    func::FuncOp function = chain.function;
    auto schedule = tile::tokenScheduleAttr.get(function);
    if (!schedule)
      return function.emitError("expected a tile.token_schedule; --attn-choose-schedule chooses it");
    StringAttr asked = significanceAttr.get(function);
    std::optional<Together> of = asked ? symbolizeTogether(asked.getValue()) : std::nullopt;
    if (!of)
      return function.emitError("expected ") << significanceAttr << " of max, mean or sum";
    auto together = TogetherAttr::get(function.getContext(), *of);
    for (auto [i, update] : llvm::enumerate(chain.updates)) {
      std::string name = (function.getName() + "_significance" + Twine(schedule.getRows()) + "_" +
                          argumentName(update.getKv()))
                             .str();
      func::FuncOp kernel = copyInto(module, function, name);
      tile::scheduleAttr.set(kernel, schedule);
      gradientAttr.set(kernel, StationaryAttr::get(function.getContext(), Stationary::Tokens));
      weighsTokensAttr.set(kernel, together);
      operandAttr.set(kernel, Builder(function.getContext()).getI32IntegerAttr(i));
    }
    auto schedules = tile::schedulesAttr.get(function).getAsRange<tile::ScheduleAttr>();
    if (llvm::none_of(schedules, [&](tile::ScheduleAttr each) { return mayStoreScores(chain, each); })) {
      if (devicePlanAttr.isOn(function))
        return function.emitError(
            "cannot be planned on the device: it asks for significance, and no schedule "
            "of a row stores scores; tokens that read keys are listed on the CPU");
      return success();
    }
    weighsScoresAttr.set(copyInto(module, function, (function.getName() + "_weigh").str()), together);
    startsNextAttr.mark(merging);
    return success();
  }

  /// Lets the copy finish the states that other kernels have stored, instead of a state of its own. The
  /// operations that make that state are erased.
  static void makeMerge(Chain &chain, func::FuncOp kernel) {
    Chain copied = findChainInKernel(kernel);
    FinishOp finish = copied.finish;
    if (FinishOp first = copied.first) { // the plan leaves nothing of it to merge
      first.replaceAllUsesWith(finish.getResults());
      first.erase();
    }
    OpBuilder b(finish);
    finish.getStateMutable().assign(PartsOp::create(b, finish.getLoc(), finish.getState().getType(),
                                                    kernel.getArgument(queryNumber(chain)), chain.kvHeads(),
                                                    chain.headClasses() != nullptr));
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(kernel.getFunctionBody().front())))
      if (llvm::any_of(op.getResultTypes(), llvm::IsaPred<StateType>) && !isa<PartsOp>(op))
        op.erase();
  }
  static unsigned queryNumber(Chain &chain) { return cast<BlockArgument>(chain.query()).getArgNumber(); }

  static func::FuncOp copyInto(gpu::GPUModuleOp module, func::FuncOp function, StringRef name) {
    func::FuncOp copy = function.clone();
    copy.setName(name);
    tile::schedulesAttr.remove(copy);
    tile::mergeScheduleAttr.remove(copy);
    tile::tokenScheduleAttr.remove(copy);
    tile::valueScheduleAttr.remove(copy);
    devicePlanAttr.remove(copy);
    significanceAttr.remove(copy);
    significanceRowsAttr.remove(copy);
    module.push_back(copy);
    return copy;
  }

  static gpu::GPUModuleOp makeModule(func::FuncOp function) {
    OpBuilder builder(function);
    return gpu::GPUModuleOp::create(builder, function.getLoc(), (function.getName() + "_kernels").str());
  }
};

} // namespace
