//===- PlanChecks.h - What every plan promises ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_PLAN_PLANCHECKS_H
#define ATTN_TEST_RUNTIME_PLAN_PLANCHECKS_H

#include "Fuzz.h"
#include "Samples.h"
#include "attn_rt/plan/Plan.h"

namespace attn::rt::test {

/// Slow enough that small problems are worth cutting.
inline constexpr GpuModel slowGpu{"slow", 1e9, 1e12, 1};

/// Everything that a plan promises, checked by walking it as a kernel would and counting what every (row,
/// head) gets. `ordered`: lists to merge are in the order of tasks.
void expectRight(const Manifest &manifest, const Batch &batch, const Plan &plan, const PlanCapacity &capacity,
                 bool ordered = true);
/// Plans a batch and expects it right, and balanced where tasks were cut: returns whether they were.
bool checkPlan(const Manifest &manifest, const Batch &batch, const PlanOptions &options);
/// Whether so many neighbouring blocks walk the same tokens, each for its own head.
bool goesInLockstep(const Plan &plan, int heads);
/// To the bit, figures apart.
bool same(const Plan &a, const Plan &b);

/// Gives every head of every instance some of the tokens that all had, one of them none. Tables get a row for
/// each head, each a list of the same pages in an order of its own.
void makeRagged(const Manifest &manifest, Batch &batch, Rng &rng);

/// Of ends 0 and 1.
Visibility randomVisibility(Rng &rng);
/// A tree: a root that all rows see, two inner nodes, and a private instance for each of six sequences.
Batch treeBatch(Rng &rng, int32_t rootTokens);

} // namespace attn::rt::test

#endif
