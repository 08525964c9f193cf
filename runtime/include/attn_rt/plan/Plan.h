//===- Plan.h - Attention as a list of key ranges with a cost ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All attention work is one list. A *work tile* is a tile of packed query rows (row,
// head of the group) together with the token ranges its rows see; every KV head
// does the same work tiles, so tasks = work tiles x KV heads. A task is a number of
// key tiles and, because partial softmax is a monoid, it may be cut between any two
// of them and its parts merged later:
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
// If there are enough tasks of like size, cuts gain nothing: tasks are then assigned
// whole, longest first. Estimated time decides between the two and the number of
// shares. No share is so short that reading Q again would be noticeable beside its
// keys and values.
//
// With shares, the place of a cut, and so the rounding of a sequence's result, depends
// on the rest of the batch. To avoid that, cuts can have a fixed size; the shares are
// then assembled from many small tasks (PlanOptions::fixedSplit).
//
// The next step of decoding hardly ever needs another plan: every task reads on to the
// present end of its sequence (Planner::update), until the shares have drifted apart.
//
// A launch does not depend on lengths, only the contents of buffers do; their sizes
// follow from limits that are known before the first step (PlanLimits).
//
// KV heads may belong to classes that see different tokens. A class has its own work
// tiles, done once for each of its *ordinals*; the kernels look up the head of an ordinal,
// so that one plan serves every layer with as many heads in each class.
//
// Heads of ragged operands have work tiles each, since no two have the same tokens. A
// plan then serves only the layer whose lengths it was made from.
//
// An instance seen by the rows of several sequences (a shared prompt, the inner
// node of a tree) can be read once for all of them: `flatten` gives it a work tile of
// its own with all its rows if the bytes saved outweigh the partials added; `by-query`
// never does; `by-node` and `by-node-chunk` always do and never cut into equal shares
// (Strategy.h): they serve as yardsticks. Speculated tokens, each seen by few rows,
// become lists of tokens with a bit for each row (Lists.cpp).
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

/// The cost of a plan by the cost model.
struct PlanStats {
  int64_t tasks = 0, cuts = 0, tiles = 0;
  int64_t kvBytes = 0, qBytes = 0, partialBytes = 0, metadataBytes = 0, outputBytes = 0;
  double flops = 0;   ///< done by whole tiles, padding and masked keys included
  int usedBlocks = 0; ///< blocks with work: fewer than all if shares would get too short
  double balance = 1; ///< largest share of cost over the mean of the used blocks
  double maxCost = 0, meanCost = 0, tileCost = 1; ///< in one work tile, in which fixedCost is also counted
  double fixedCost = 0;
  double estimatedSeconds = 0; ///< by the model of the GPU that the plan was made for

  int64_t bytes() const { return kvBytes + qBytes + partialBytes + metadataBytes + outputBytes; }
};

/// The work of all blocks of a launch. PlanRecords.def defines its form on a device.
struct Plan {
  int kernel = 0; ///< index into Manifest::kernels of the plan's kernel, one of Manifest::plannedKernels
  Strategy strategy = Strategy::Flatten; ///< that made it
  int blocks = 0;
  std::vector<int32_t> blockTasks; ///< [blocks + 1]
  std::vector<PlanTask> tasks;
  std::vector<PlanSegment> segments;
  std::vector<PlanTokenTask> tokenTasks; ///< of a backward pass
  std::vector<PlanTokenSum> tokenSums;   ///< the token tasks that were cut
  std::vector<PlanScoreTask> scoreTasks; ///< of significance; a plan has these or tokenTasks
  std::vector<int32_t> unwritten;  ///< operands with tokens whose results no task writes: they begin as zeros
  std::vector<int32_t> mergeStart; ///< [merge rows + 1]; on the device preceded by the number of rows
  std::vector<int32_t> mergeRows;  ///< row * q_heads + ordinal * group + member of the group
  std::vector<int32_t> mergePartials;
  int64_t partialRows = 0;
  int64_t partialTokens = 0; ///< lines of sums of parts of token tasks
  int64_t scoreWords = 0;    ///< of stored scores
  int64_t semaphores = 0;    ///< of token tasks that add to rows in order
  /// Lists of single tokens, and the rows that see each.
  std::vector<int32_t> slots;
  std::vector<uint32_t> bits;
  std::vector<int32_t> ends;         ///< the sizes of windows and sinks that it was made with
  std::vector<int32_t> classHeads;   ///< the KV heads of each class that it was made with
  std::vector<int32_t> ordinalHeads; ///< the KV head of each ordinal, if Manifest::plansByHead; else empty
  /// A unique number of everything but `segments` and `stats`. Extending a plan keeps the number if nothing
  /// else changes.
  uint64_t structure = 0;
  PlanStats stats;
};

/// Limits of the batches that a plan's buffers must hold. `of` gives the limits of one batch.
struct PlanLimits {
  int64_t rows = 0;
  int64_t groups = 0;          ///< runs of rows that see the same instances: sequences, or nodes of a tree
  int64_t instancesPerRow = 1; ///< over all operands
  int64_t sharedInstances = 0; ///< instances that more than one group sees
  int64_t sharedRows = 0;      ///< sum of the rows that see shared instances
  int64_t tokensPerRow = 0;    ///< of the instances that one row sees; needed if tasks have a fixed size
  int64_t tokenTasks = 0;      ///< of a backward pass: tiles of keys, and of slots after them, of all heads
  int64_t cutTokenTasks = 0;   ///< token tasks that are cut, because many rows see them
  int64_t tokenParts = 0;      ///< parts of the cut token tasks
  int64_t scoreTasks = 0;      ///< of significance
  int64_t scoreTokens = 0;     ///< of significance: the numbers that it consists of
  static PlanLimits of(const Manifest &manifest, const Batch &batch);
  bool operator==(const PlanLimits &) const = default;
  /// The larger of each limit.
  static PlanLimits larger(const PlanLimits &a, const PlanLimits &b);
};

/// Sizes of the plan's device buffers, which never depend on lengths.
struct PlanCapacity {
  int64_t blocks = 0, tasks = 0, segments = 0, mergeRows = 0, mergePartials = 0, partialRows = 0;
  int64_t slots = 0, bits = 0;
  int64_t tokenTasks = 0, tokenSums = 0, partialTokens = 0, semaphores = 0; ///< of a backward pass
  int64_t scoreTasks = 0, scoreWords = 0;                                   ///< of significance
  int64_t scratch = 0, findings = 0; ///< of plans made on the device (DevicePlan.h)
};

struct PlanOptions {
  Strategy strategy = Strategy::Flatten;
  /// With Flatten and without fixed splits: if tokens would be shared, also make a plan by query, and keep
  /// the plan that the cost model calls faster. It may move more bytes in less time: small trees come from
  /// the L2 either way, and by query there is less to merge. Such a plan takes two or three times as long to
  /// make.
  bool quickest = false;
  /// Blocks of the launch. 0: as many as are resident at once, by kernel and multiprocessors, less those
  /// without work.
  int blocks = 0;
  /// One of Manifest::plannedKernels. -1: the kernel that suits the batch's rows.
  int kernel = -1;
  /// Tokens between cuts, a multiple of the kernel's key tile; 0: no fixed cuts. With fixed cuts
  /// - work is cut at the tokens of an instance that are a multiple of this
  /// - an instance is shared only if all of its rows see the same tokens of it
  /// - parts are merged in the order of their instances
  /// - the kernel is the one for few rows, if `kernel` names none
  /// So only the tokens that a row sees and the order of its instances decide the bits of its result. The
  /// rest of the batch, the number of blocks and the strategy change none.
  int fixedSplit = 0;
  int multiprocessors = 132; ///< of the device
  const GpuModel *gpu = &defaultGpu();
  bool operator==(const PlanOptions &) const = default;
};

/// The capacity for every batch within the limits, whatever its lengths.
PlanCapacity planCapacity(const Manifest &manifest, const PlanLimits &limits, const PlanOptions &options);

/// Makes plans for one kernel, and keeps its scratch memory between them. The manifest must outlive the
/// planner. Batches must have passed checkBatch. Deterministic: equal input gives equal plans.
class Planner {
public:
  Planner(const Manifest &manifest, PlanOptions options, PlanCapacity capacity);
  ~Planner();
  Planner(Planner &&) noexcept;
  Planner &operator=(Planner &&) noexcept;

  /// Makes a plan. Fails only if the capacity does not hold the plan, or if no kernel can do what the options
  /// ask.
  Status plan(const Batch &batch, Plan &plan);

  /// Plans the next step, from `plan`, the last plan of this planner. If only lengths and positions have
  /// grown, its tasks stay and read on to the new ends, and true is returned; that takes a few ns per task.
  /// Otherwise it makes a new plan. Deterministic: equal batches since the last new plan give equal plans. A
  /// new plan is made if
  /// - rows or instances came or went
  /// - the plan has lists of tokens
  /// - a task that was cut would read other segments
  /// - a block would have more work than the last new plan's balance, a tile and 5 % of the mean allow
  /// - all blocks would have a sixteenth more work than in that plan
  Result<bool> update(const Batch &batch, Plan &plan);

  /// The first half of an update: true if the plan's tasks read on; otherwise the plan is unchanged.
  bool extend(const Batch &batch, Plan &plan);
  /// Undoes the last `extend` that returned true. The next plan is then a new one.
  void retract(Plan &plan);

private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Plans one batch with a capacity of its own.
Result<Plan> makePlan(const Manifest &manifest, const Batch &batch, const PlanOptions &options = {});

/// The bytes and FLOPs that the problem needs, however it is computed: a lower bound of the host device's
/// counters.
struct ProblemFloor {
  int64_t queryBytes = 0, kvBytes = 0, tableBytes = 0, resultBytes = 0;
  double usefulFlops = 0; ///< of the (row, head, token) triples that see each other
  int64_t bytes() const { return queryBytes + kvBytes + tableBytes + resultBytes; }
};
ProblemFloor problemFloor(const Manifest &manifest, const Batch &batch);

/// Explains a plan in a page of text: bytes, FLOPs, balance, and the roofline's time on a GPU.
std::string explainPlan(const Manifest &manifest, const Batch &batch, const Plan &plan,
                        const GpuModel &gpu = defaultGpu());

} // namespace attn::rt

#endif
