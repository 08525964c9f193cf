//===- DevicePlan.h - Plans that are made where they are read ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel of role "plan" turns query starts and lengths in device memory into the arrays
// of a plan, in a launch before the attention's; no number comes back to the host. The
// parameters of the launches are the same for all batches within limits:
//
//   DevicePlan plan = *makeDevicePlan(manifest, {.rows = …, .sequences = …}, options);
//   session.bindTables(largestBatch);
//   session.useDevicePlan(plan);
//   for (;;) { session.launchPlan(); for (each layer) session.launch(); }
//
// Rows of a sequence see one instance of each operand, the one with the sequence's index,
// and are its last tokens. Prompts that sequences share, trees and lists are planned on the host.
//
// Significance is that of steps of decoding: at most one row of each sequence, which sees all of its tokens
// and stores their scores.
//
// With fixed splits, the parts and the order in which they are merged are those of the
// host's plan by query, and so are the bits of results. Otherwise, shares are equal as the
// host's are, but found in one pass, not as the smallest shares that suffice.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_DEVICEPLAN_H
#define ATTN_RT_PLAN_DEVICEPLAN_H

#include "attn_rt/plan/Plan.h"

namespace attn::rt {

/// Limits of the batches that a plan may be made from.
struct DevicePlanLimits {
  int64_t rows = 0;            ///< of all sequences
  int64_t sequences = 0;       ///< including those without rows
  int64_t rowsPerSequence = 0; ///< decides the kernel if options name none; 0: as many as `rows`
  int64_t tokens = 0;          ///< of an instance
  int64_t scoreTasks = 0;      ///< of significance: its tasks that tables hold, counted as in PlanLimits
  int64_t scoreTokens = 0;     ///< of significance: the numbers that it consists of
};

/// The parameters that all launches have in common.
struct DevicePlan {
  int kernel = 0, blocks = 0;
  PlanCapacity capacity;
  std::array<int32_t, std::size(planDimNames)> dims = {}; ///< by PlanDim
  std::vector<int32_t> ends;
};

/// Fails if the attention was not compiled with a planning kernel, or if no plan of it can do what the
/// options ask.
Result<DevicePlan> makeDevicePlan(const Manifest &manifest, const DevicePlanLimits &limits,
                                  const PlanOptions &options = {});

/// The finding of the kernel as a sentence; empty if there is no fault. `pages`: pages of the pool of the
/// finding's operand.
std::string faultText(const Manifest &manifest, const PlanFinding &finding, int64_t pages);

} // namespace attn::rt

#endif
