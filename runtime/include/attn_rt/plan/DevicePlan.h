//===- DevicePlan.h - Plans that are made where they are read ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel of role "plan" turns query starts and lengths in device memory into the arrays
// of a plan, in a launch before the attention's; no number comes back to the host. What
// the launches need to know is the same for all batches within limits:
//
//   DevicePlan plan = *makeDevicePlan(manifest, {.rows = …, .sequences = …}, options);
//   session.bindTables(largestBatch);
//   session.useDevicePlan(plan);
//   for (;;) { session.launchPlan(); for (each layer) session.launch(); }
//
// Rows of a sequence see one instance of each operand, that of the sequence's number, and
// are its last tokens. Prompts that sequences share, trees and lists are planned on the host.
//
// Significance is that of steps of decoding: a row at most of each sequence, which sees all of its tokens and
// stores what they score.
//
// With fixed splits the parts and the order in which they are merged are those of the
// host's plan by query, and so are the bits of results. Without, shares are equal as the
// host's are, found in one pass rather than as the smallest that will do.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_DEVICEPLAN_H
#define ATTN_RT_PLAN_DEVICEPLAN_H

#include "attn_rt/plan/Plan.h"

namespace attn::rt {

/// Bounds on the batches that a plan may be made of.
struct DevicePlanLimits {
  int64_t rows = 0;            ///< of all sequences
  int64_t sequences = 0;       ///< including those without rows
  int64_t rowsPerSequence = 0; ///< decides the kernel, where options name none; 0: as many as there are rows
  int64_t tokens = 0;          ///< of an instance
  int64_t scoreTasks = 0;      ///< of significance, which tables have room for, as PlanLimits counts them,
  int64_t scoreTokens = 0;     ///< and the numbers that it is
};

/// What all launches have in common.
struct DevicePlan {
  int kernel = 0, blocks = 0;
  PlanCapacity capacity;
  std::array<int32_t, std::size(planDimNames)> dims = {}; ///< by PlanDim
  std::vector<int32_t> ends;
};

/// Fails where the attention was not compiled with a planning kernel, or no plan of it can do what is asked.
Result<DevicePlan> makeDevicePlan(const Manifest &manifest, const DevicePlanLimits &limits,
                                  const PlanOptions &options = {});

/// A sentence that says what the kernel has found; empty where nothing is wrong. `pages`: of the pool of the
/// finding's operand.
std::string faultText(const Manifest &manifest, const PlanFinding &finding, int64_t pages);

} // namespace attn::rt

#endif
