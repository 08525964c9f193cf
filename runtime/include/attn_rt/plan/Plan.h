//===- Plan.h - Attention as a list of key ranges with a cost ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All attention work is one list. A *work tile* is a tile of packed query rows (row,
// head of the group) together with the token ranges its rows see; every KV head
// does the same work tiles, which makes tasks = work tiles x KV heads. A task is a number
// of key tiles, and because partial softmax is a monoid, it may be cut between
// any two of them and its parts merged later:
//
//     task 0        task 1  task 2                    task 3
//     [# # # # # #] [# #]   [# # # # # # # # # # #]   [# # # #]
//     '--- block 0 ---'-- block 1 --'-- block 2 --'-- block 3 --'
//
// Blocks walk equal shares of the concatenated list. Long and short sequences,
// batch 1 and batch 1000, windows beside full caches: all are the same list with
// other numbers in it, so none of them is a special case. A task inside one share
// writes its result; the parts of a cut task write partials, and a CSR map tells
// the merge kernel which partials make a row, in which order. The order is part
// of the plan, so the bits of the result depend on nothing else.
//
// Where there are enough tasks of like size, cutting buys nothing: they are then
// dealt out whole, longest first. Which of the two is done, and into how many
// shares, is decided by estimated time, and no share is made so short that
// reading Q again would show against its keys and values.
//
// That makes where a sequence is cut depend on what else is in the batch, and with it
// the rounding of its result. Where that must not be, cuts have a fixed size, and the
// shares are dealt out of many small tasks instead (PlanOptions::fixedSplit).
//
// The next step of decoding is hardly ever another plan: every task reads on to where
// its sequence ends now (Planner::update), until the shares have drifted apart.
//
// Nothing about a launch depends on lengths, only what is in the buffers; their sizes
// follow from limits that are known before the first step (PlanLimits).
//
// KV heads may belong to classes that see different tokens. A class has work tiles of its
// own, done once for each of its *ordinals*; which head an ordinal stands for is looked up by
// the kernels, so that one plan serves every layer with as many heads in each class.
//
// Heads of ragged operands have work tiles each, since none has the tokens of another. A plan
// then serves the layer whose lengths it was made of.
//
// An instance seen by the rows of several sequences (a shared prompt, the inner
// node of a tree) can be read once for all of them: `flatten` gives it a work tile of
// its own with all its rows where the bytes saved outweigh the partials added,
// `by-query` never does, and `by-node` and `by-node-chunk` always do and never cut
// into equal shares (Strategy.h): the yardsticks. Speculated tokens, of which few
// rows see each, become lists of tokens with a bit for each row (Lists.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_PLAN_H
#define ATTN_RT_PLAN_PLAN_H

#include "attn_rt/artifact/PlanRecords.h"
#include "attn_rt/batch/Batch.h"
#include "attn_rt/plan/Gpu.h"
#include "attn_rt/plan/Strategy.h"

#include <memory>

namespace attn::rt {

/// What a plan costs, as the cost model sees it.
struct PlanStats {
  int64_t tasks = 0, cuts = 0, tiles = 0;
  int64_t kvBytes = 0, qBytes = 0, partialBytes = 0, metadataBytes = 0, outputBytes = 0;
  double flops = 0;   ///< done by whole tiles, padding and masked keys included
  int usedBlocks = 0; ///< blocks that have something to do: fewer than all where shares would get too short
  double balance = 1; ///< largest share of cost over the mean of the used blocks
  double maxCost = 0, meanCost = 0, tileCost = 1; ///< in one work tile; a task's fixed part is fixedCost
  double fixedCost = 0;
  double estimatedSeconds = 0; ///< by the model of the GPU the plan was made for

  int64_t bytes() const { return kvBytes + qBytes + partialBytes + metadataBytes + outputBytes; }
};

/// What becomes of it on a device stands in PlanRecords.def.
struct Plan {
  int kernel = 0; ///< index into Manifest::kernels of the one of Manifest::plannedKernels this plan is for
  Strategy strategy = Strategy::Flatten; ///< it was made by
  int blocks = 0;
  std::vector<int32_t> blockTasks; ///< [blocks + 1]
  std::vector<PlanTask> tasks;
  std::vector<PlanSegment> segments;
  std::vector<PlanTokenTask> tokenTasks; ///< of a backward pass
  std::vector<PlanTokenSum> tokenSums;   ///< of those of them that were cut
  std::vector<PlanScoreTask> scoreTasks; ///< of significance: these, or those above
  std::vector<int32_t> unwritten;  ///< operands with tokens whose results no task writes: they begin as zeros
  std::vector<int32_t> mergeStart; ///< [merge rows + 1]; on the device their number stands before them
  std::vector<int32_t> mergeRows;  ///< row * q_heads + ordinal * group + member of the group
  std::vector<int32_t> mergePartials;
  int64_t partialRows = 0;
  int64_t partialTokens = 0; ///< lines of sums of parts of token tasks
  int64_t scoreWords = 0;    ///< of stored scores
  /// Lists of single tokens, and who sees which.
  std::vector<int32_t> slots;
  std::vector<uint32_t> bits;
  std::vector<int32_t> ends;         ///< the sizes of windows and sinks it was made with
  std::vector<int32_t> classHeads;   ///< and the KV heads of each class
  std::vector<int32_t> ordinalHeads; ///< the KV head of each ordinal, where Manifest::plansByHead; else empty
  /// A number of its own for everything but `segments` and `stats`. Extending a plan keeps it where that is
  /// all that changes.
  uint64_t structure = 0;
  PlanStats stats;
};

/// Bounds on what batches a plan's buffers must hold. `of` gives those of one batch.
struct PlanLimits {
  int64_t rows = 0;
  int64_t groups = 0;          ///< runs of rows that see the same instances: sequences, or nodes of a tree
  int64_t instancesPerRow = 1; ///< over all operands
  int64_t sharedInstances = 0; ///< instances that more than one group sees,
  int64_t sharedRows = 0;      ///< and the sum of their rows
  int64_t tokensPerRow = 0; ///< of the instances that one row sees; asked for where tasks have a fixed size
  int64_t tokenTasks = 0; ///< of a backward pass: tiles of keys, and of what lies behind them, of all heads,
  int64_t cutTokenTasks = 0; ///< those of them that many rows see, so that they are cut,
  int64_t tokenParts = 0;    ///< and the parts of these
  int64_t scoreTasks = 0;    ///< of significance,
  int64_t scoreTokens = 0;   ///< and the numbers that it is
  static PlanLimits of(const Manifest &manifest, const Batch &batch);
  bool operator==(const PlanLimits &) const = default;
  /// What holds both: the larger of each.
  static PlanLimits larger(const PlanLimits &a, const PlanLimits &b);
};

/// Sizes of the plan's device buffers, which never depend on lengths.
struct PlanCapacity {
  int64_t blocks = 0, tasks = 0, segments = 0, mergeRows = 0, mergePartials = 0, partialRows = 0;
  int64_t slots = 0, bits = 0;
  int64_t tokenTasks = 0, tokenSums = 0, partialTokens = 0; ///< of a backward pass
  int64_t scoreTasks = 0, scoreWords = 0;                   ///< of significance
  int64_t scratch = 0, findings = 0;                        ///< of plans made on the device (DevicePlan.h)
};

struct PlanOptions {
  Strategy strategy = Strategy::Flatten;
  /// With Flatten, and unless splits are fixed: where something would be shared, make a plan by query, too,
  /// and take the one that the cost model calls quicker. More bytes may then be moved in less time: small
  /// trees come from the L2 either way, and by query there is less to merge. Such a plan takes two or three
  /// times as long to make.
  bool quickest = false;
  /// Of the launch. 0: as many as are resident at once, by kernel and multiprocessors, less those that would
  /// have nothing to do.
  int blocks = 0;
  /// One of Manifest::plannedKernels. -1: the one that suits the batch's rows.
  int kernel = -1;
  /// Tokens, a multiple of the kernel's key tile; 0: none. Work is then cut where the tokens of an instance
  /// are a multiple of this, only what all of its rows see alike is shared, parts are merged in the order of
  /// their instances, and where `kernel` names none it is the one for few rows. So what a row sees and the
  /// order of its instances decide its result's bits: what else is in the batch, how many blocks there are
  /// and by which strategy it is read move none.
  int fixedSplit = 0;
  int multiprocessors = 132; ///< of the device
  const GpuModel *gpu = &defaultGpu();
  bool operator==(const PlanOptions &) const = default;
};

/// Enough for every batch within the limits, whatever its lengths.
PlanCapacity planCapacity(const Manifest &manifest, const PlanLimits &limits, const PlanOptions &options);

/// Makes plans for one kernel, keeping its scratch memory between them. The manifest must outlive it. The
/// batch must have passed checkBatch. Deterministic: equal input gives equal plans.
class Planner {
public:
  Planner(const Manifest &manifest, PlanOptions options, PlanCapacity capacity);
  ~Planner();
  Planner(Planner &&) noexcept;
  Planner &operator=(Planner &&) noexcept;

  /// Fails only where the capacity does not hold the plan, or no kernel can do what the options ask for.
  Status plan(const Batch &batch, Plan &plan);

  /// The next step: `plan` is what this planner made last. Where nothing but lengths and positions has grown
  /// since, its tasks stay and read on to the new ends, and true is returned; a few ns for each task. A new
  /// plan is made where that would not do: rows or instances came or went, there are lists of tokens, a task
  /// that was cut would read other segments, or a block would have more to do than the last new plan's
  /// balance, a tile and 5 % of the mean allow, or all of them a sixteenth more than that plan had.
  /// Deterministic: equal batches since the last new plan give equal plans.
  Result<bool> update(const Batch &batch, Plan &plan);

  /// The first half of an update: true where the plan's tasks read on; else the plan is as it was.
  bool extend(const Batch &batch, Plan &plan);
  /// Takes back what `extend` did last, of which it returned true. The next plan is then a new one.
  void retract(Plan &plan);

private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Plans one batch with a capacity of its own.
Result<Plan> makePlan(const Manifest &manifest, const Batch &batch, const PlanOptions &options = {});

/// What the problem itself needs, however it is computed: the floor of design's counters.
struct ProblemFloor {
  int64_t queryBytes = 0, kvBytes = 0, tableBytes = 0, resultBytes = 0;
  double usefulFlops = 0; ///< of (row, head, token) that see each other
  int64_t bytes() const { return queryBytes + kvBytes + tableBytes + resultBytes; }
};
ProblemFloor problemFloor(const Manifest &manifest, const Batch &batch);

/// A page of text: bytes, FLOPs, balance, and the roofline's time on a GPU.
std::string explainPlan(const Manifest &manifest, const Batch &batch, const Plan &plan,
                        const GpuModel &gpu = defaultGpu());

} // namespace attn::rt

#endif
