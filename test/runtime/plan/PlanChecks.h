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

/// Checks everything that a plan promises, by walking it as a kernel would and counting the tokens of every
/// (row, head). `ordered`: merge lists are in the order of tasks.
void expectRight(const Manifest &manifest, const Batch &batch, const Plan &plan, const PlanCapacity &capacity,
                 bool ordered = true);
/// Makes a plan and checks it, including its balance if tasks were cut. Returns whether tasks were cut.
bool checkPlan(const Manifest &manifest, const Batch &batch, const PlanOptions &options);
/// Whether `heads` neighbouring blocks walk the same tokens in lockstep, each for its own head.
bool goesInLockstep(const Plan &plan, int heads);
/// Whether plans are equal to the bit, except for their stats.
bool same(const Plan &a, const Plan &b);

/// Gives every head of every instance some of the tokens that all heads had; one head gets none. Tables get a
/// row for each head, which lists the same pages in its own order.
void makeRagged(const Manifest &manifest, Batch &batch, Rng &rng);

/// A random visibility of ends 0 and 1.
Visibility randomVisibility(Rng &rng);
/// A tree: a root that all rows see, two inner nodes, and a private instance for each of six sequences.
Batch treeBatch(Rng &rng, int32_t rootTokens);

/// The tokens of a task of tokenManifest.
inline constexpr int32_t tokenTile = 128;
/// The terms that tasks of tokens add to rows: none, terms in any order, or terms in one order.
enum class AddsToRows { No, Any, InOrder };
/// A backward pass: kernels for rows, for tokens, and for parts of tokens' tasks.
Manifest tokenManifest(AddsToRows adds, Visibility::Kind sees = Visibility::Kind::Causal);

/// Each node's parent and tokens; every token is also a row.
using Nodes = std::vector<std::pair<int, int32_t>>;
/// A forest of up to 40 nodes with up to 900 tokens each, or of up to 6 with up to 3,000.
Nodes randomNodes(Rng &rng, bool large);
/// A batch of nodes in depth-first order: the rows at or below a node see it.
Batch forestBatch(const Nodes &nodes);

} // namespace attn::rt::test

#endif
