//===- WalkPlan.cpp - Loops over the plan around online operations --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The plan cuts the work of a launch into *tasks*, rows that share a state, and
// the tokens that their rows see into *segments*, ranges of tokens of one
// instance. A kernel walks it:
//
//   for each task of this block
//     for each segment of the task
//       for each tile of keys
//         the updates, on the task's rows and the tile's tokens
//     what follows the updates; the task's results
//
// A short launch mostly waits: for the plan to name the tasks, for the task to
// name the segment, for the segment to name the pages, for the pages. So a
// block finds its tasks, the first task and the first segment of that task in a
// record of its own, `plan.starts`. With --tile-read-ahead, loops read each
// later record while the work before it still computes.
//
// A segment has one operand. Under mma each update has a loop over its tiles,
// which is empty if the segment has another operand. Where warpgroups compute,
// one loop does the updates of all operands (attn.one_of), because ptxas takes
// its time for code. A warpgroup whose rows a task does not reach computes
// nothing, but the loops are the block's: its producers copy for all. Such
// kernels read a task again when its results are written, because they are
// short of registers meanwhile.
//
// A kernel that adds up gradients of rows walks the same plan. A kernel that
// adds up gradients of tokens, or their significance, has one block for each of
// the plan's tiles of tokens (WalkTokens.h). Where these kernels add to the
// gradient of rows, too, the prologue and epilogue of dQ read no tokens
// (WalkAllRows.h).
//
//===----------------------------------------------------------------------===//
#include "WalkAllRows.h"
#include "WalkParts.h"
#include "WalkTasks.h"
#include "WalkTokens.h"

#include "attn/Conversion/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_WALKPLANPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

bool mergesParts(func::FuncOp source) { return !source.getOps<PartsOp>().empty(); }

/// Whether the function computes gradients or significance after an attention.
bool readsFinished(func::FuncOp source) {
  return !source.getOps<WriteGradientOp>().empty() || !source.getOps<WriteSignificanceOp>().empty();
}

/// Checks that the function has the schedule of its work, and no branches that the schedule cannot take.
LogicalResult checkSchedule(func::FuncOp source) {
  auto schedule = tile::scheduleAttr.get(source);
  bool merges = mergesParts(source);
  if (merges ? !tile::mergeScheduleAttr.isOn(source) : !schedule)
    return source.emitError("expected a kernel with a ")
           << scheduleAttr << ", or one that finishes attn.parts with a " << mergeScheduleAttr;
  bool inOneLoop = !merges && schedule.getKind() == ScheduleKind::Wgmma;
  Operation *branch = inOneLoop ? findBranch(source) : nullptr;
  if (!branch)
    return success();
  return branch->emitOpError("expected a single chain of updates for ")
         << schedule
         << (isa<MergeOp>(branch)
                 ? "; --canonicalize turns merges into chains, and mma takes them as they are"
                 : "; mma takes branches, and operations between updates");
}

/// Makes a kernel before the function, with its name. It has the function's arguments, which will stand
/// before parameters, and the constants that score regions use; `mapping` gets both. Attributes of other
/// dialects, or without a dialect, belong to passes of others: they stay.
func::FuncOp makeKernel(func::FuncOp source, IRMapping &mapping) {
  OpBuilder builder(source);
  auto kernel = func::FuncOp::create(builder, source.getLoc(), source.getName(),
                                     builder.getFunctionType(source.getArgumentTypes(), {}));
  kernel.setArgAttrsAttr(source.getArgAttrsAttr());
  StringRef schedule = mergesParts(source) ? StringRef(mergeScheduleAttr) : StringRef(scheduleAttr);
  for (StringRef name : {schedule, StringRef(operandAttr), StringRef(firstEndAttr), StringRef(tablesAttr),
                         StringRef(storesScoresAttr), StringRef(startsNextAttr), StringRef(numericsAttr)})
    if (Attribute value = source->getAttr(name))
      kernel->setAttr(name, value);
  for (NamedAttribute each : source->getDiscardableAttrs())
    if (!isa_and_nonnull<AttnDialect, TileDialect>(each.getNameDialect()))
      kernel->setAttr(each.getName(), each.getValue());
  builder.setInsertionPointToEnd(kernel.addEntryBlock());
  mapping.map(source.getArguments(), kernel.getArguments());
  for (Operation &op : source.getFunctionBody().front())
    if (op.hasTrait<OpTrait::ConstantLike>())
      builder.clone(op, mapping);
  return kernel;
}

struct WalkPlan : mlir::attn::impl::WalkPlanPassBase<WalkPlan> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> sources;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!tile::parametersAttr.isOn(function) && // otherwise it walks the plan already
          (!function.getOps<FinishOp>().empty() || readsFinished(function)))
        sources.push_back(function);
    for (func::FuncOp source : sources) {
      if (failed(checkSchedule(source)))
        return signalPassFailure();
      IRMapping mapping;
      func::FuncOp kernel = makeKernel(source, mapping);
      if (mergesParts(source)) {
        walkParts(*source.getOps<PartsOp>().begin(), kernel, mapping);
      } else if (readsFinished(source)) {
        Chain chain = findChainInKernel(source);
        chain.updates.empty() ? walkAllRows(chain, kernel, mapping)
        : chain.keepsTokens() ? walkTokens(chain, kernel, mapping)
                              : walkTasks(chain, kernel, mapping);
      } else {
        FailureOr<Chain> chain = findChain(source);
        if (failed(chain))
          return signalPassFailure();
        walkTasks(*chain, kernel, mapping);
        if (chain->seesSeveralRanges() && !numericsAttr.isOn(kernel))
          tile::severalRangesAttr.mark(kernel);
      }
      source.erase();
      ++kernels;
    }
  }
};

} // namespace
