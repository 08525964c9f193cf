//===- BatchTest.cpp - Tests: One problem's sizes, checked ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mirror.h"
#include "Samples.h"
#include "attn_rt/cache/CacheBatch.h"
#include "attn_rt/plan/Plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

std::string message(const Status &status) { return status ? "no error" : status.error().message; }

/// A manifest with paged operands as the options require.
Manifest manifestFor(const Cache &cache, const CacheBatchOptions &options) {
  Manifest m = sampleManifest({.operands = static_cast<int>(options.operands.size())});
  for (size_t o = 0; o < options.operands.size(); ++o) {
    m.arguments[o + 1].page = options.operands[o].page(cache.options());
    m.operands[o].visibility = visibility(Visibility::Kind::Causal);
  }
  return m;
}

/// The numbers that a row sees through one operand, by position, found as a kernel finds them.
void collectSeen(const Mirror &m, const CacheBatchOptions &options, const Batch &batch, size_t o, int32_t row,
                 std::map<int32_t, uint64_t> &seen) {
  const OperandBatch &operand = batch.operands[o];
  const int32_t page = options.operands[o].page(m.cache.options()), pageTokens = m.cache.options().pageTokens;
  const int32_t q = batch.qPos[static_cast<size_t>(row)];
  for (size_t i = 0; i < operand.instances(); ++i) {
    if (row < operand.rowFirst[i] || row >= operand.rowLast[i])
      continue;
    for (int32_t t = 0; t < operand.lengths[i] && operand.pos0[i] + t <= q; ++t) {
      const int32_t slot =
          operand.blockTable[i * static_cast<size_t>(operand.maxPages) + static_cast<size_t>(t / page)] *
              page +
          t % page;
      const uint64_t number =
          m.numberAt(options.operands[o].headClass, {slot / pageTokens, slot % pageTokens});
      ASSERT_TRUE(seen.emplace(operand.pos0[i] + t, number).second)
          << "row " << row << " sees position " << operand.pos0[i] + t << " twice";
    }
  }
}

struct Expected {
  std::vector<uint64_t> path; ///< to the row's own token
};

/// The tokens that the user's rows must see, from the model.
std::vector<Expected> expectedRows(Mirror &m, std::span<const RowGroup> groups) {
  std::vector<Expected> rows;
  for (const RowGroup &group : groups) {
    const Mirror::Node &node = m.at(group.node);
    for (int32_t i = group.rows; i > 0; --i)
      rows.push_back({{node.path.begin(), node.path.end() - i + 1}});
    for (size_t t = 0; group.draft && t < node.draft.size(); ++t) {
      std::vector<uint64_t> own;
      for (auto token = static_cast<int32_t>(t); token >= 0;
           token = node.draftParents[static_cast<size_t>(token)])
        own.push_back(node.draft[static_cast<size_t>(token)]);
      rows.push_back({node.path});
      rows.back().path.insert(rows.back().path.end(), own.rbegin(), own.rend());
    }
  }
  return rows;
}

void verifyBatch(Mirror &m, const CacheBatchOptions &options, std::span<const RowGroup> groups,
                 const CacheBatch &made) {
  const Batch &batch = made.batch;
  const Manifest manifest = manifestFor(m.cache, options);
  const Status checked = checkBatch(manifest, batch);
  ASSERT_TRUE(checked) << checked.error().message;
  const std::vector<Expected> expected = expectedRows(m, groups);
  ASSERT_EQ(batch.rows, std::ssize(expected));
  ASSERT_EQ(std::set<int32_t>(made.userRow.begin(), made.userRow.end()).size(), expected.size());
  for (int32_t row = 0; row < batch.rows; ++row) {
    const int32_t user = made.userRow[static_cast<size_t>(row)];
    ASSERT_EQ(made.batchRow[static_cast<size_t>(user)], row);
    const std::vector<uint64_t> &path = expected[static_cast<size_t>(user)].path;
    ASSERT_EQ(batch.qPos[static_cast<size_t>(row)], std::ssize(path) - 1);
    for (int32_t c = 0; c < std::ssize(m.cache.options().classes); ++c) {
      const CacheClass &info = m.cache.options().classes[static_cast<size_t>(c)];
      std::map<int32_t, uint64_t> seen;
      bool any = false;
      for (size_t o = 0; o < options.operands.size(); ++o)
        if (options.operands[o].headClass == c) {
          any = true;
          collectSeen(m, options, batch, o, row, seen);
        }
      for (int32_t p = 0; any && p < std::ssize(path); ++p) {
        const auto found = seen.find(p);
        const bool visible = !info.streaming() || p < info.sink || p > std::ssize(path) - 1 - info.recent;
        ASSERT_TRUE(found != seen.end() || !visible) << "row " << row << ", position " << p;
        if (found != seen.end())
          ASSERT_EQ(found->second, path[static_cast<size_t>(p)]) << "row " << row << ", position " << p;
      }
      ASSERT_TRUE(seen.empty() || seen.rbegin()->first < std::ssize(path));
    }
  }
  const Result<Plan> plan = makePlan(manifest, batch);
  ASSERT_TRUE(plan) << plan.error().message;
}

// Rows on any nodes of any forest see exactly the tokens on their path, each once.
TEST(CacheBatch, rowsSeeTheirPaths) {
  int64_t rows = 0, drafts = 0;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(rounds(50)); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const int32_t pageTokens = int32_t{1} << below(rng, 5);
    const int32_t draftPage = below(rng, 2) ? std::max(1, pageTokens >> below(rng, 5)) : pageTokens;
    Mirror m({pageTokens,
              draftPage,
              {{"all", 1500, 0, 0, 0},
               {"streaming", 1500, static_cast<int32_t>(1 + below(rng, 40)),
                static_cast<int32_t>(below(rng, 30)), 0}}});
    CacheBatchOptions options;
    options.maxPages = below(rng, 3) ? 0 : static_cast<int32_t>(1 + below(rng, 3));
    options.operands.clear();
    for (int32_t c = 0; c < 2; ++c) {
      if (CacheOperand{c, true, true}.page(m.cache.options()))
        options.operands.push_back({c, true, true});
      else
        options.operands.insert(options.operands.end(), {{c, true, false}, {c, false, true}});
    }
    BatchBuilder builder(options);
    CacheBatch made;
    for (int i = 0; i < 60; ++i) {
      if (m.nodes.empty() || below(rng, 12) == 0)
        ASSERT_TRUE(m.append(m.createRoot(), static_cast<int32_t>(1 + below(rng, 100))));
      const NodeId node = m.pick(rng);
      switch (below(rng, 8)) {
      case 0:
        (void)m.apply(
            {{}, {}, {{node, static_cast<int32_t>(1 + below(rng, 4)), static_cast<int32_t>(below(rng, 3))}}});
        break;
      case 1:
        (void)m.fork(node);
        break;
      case 2:
        (void)m.speculate(node, randomTree(rng, 30));
        break;
      case 3:
        if (const TokenTree *draft = m.cache.draft(node))
          ASSERT_TRUE(m.commit(node, static_cast<int32_t>(below(rng, static_cast<size_t>(draft->size())))));
        break;
      case 4:
        if (below(rng, 6) == 0)
          ASSERT_TRUE(m.apply({{node}, {}, {}}));
        break;
      default:
        (void)m.append(node, static_cast<int32_t>(1 + below(rng, 20)));
      }
      // Any nodes that have tokens at or after their frontier, in any order.
      std::vector<RowGroup> groups;
      for (const auto &[key, of] : m.nodes) {
        const NodeId id = Mirror::idOf(key);
        const int32_t most =
            std::min(m.cache.tokens(id), static_cast<int32_t>(std::ssize(of.path)) - of.frontier);
        const bool draft = !of.draft.empty() && below(rng, 4);
        const auto count = static_cast<int32_t>(below(rng, static_cast<size_t>(most) + 1));
        if (count || draft)
          groups.push_back({id, count, draft});
        drafts += draft;
      }
      std::shuffle(groups.begin(), groups.end(), rng);
      const Status built = builder.build(m.cache, groups, made);
      ASSERT_TRUE(built) << built.error().message;
      rows += made.batch.rows;
      verifyBatch(m, options, groups, made);
      if (HasFatalFailure())
        return;
    }
  }
  EXPECT_GT(rows, 10000);
  EXPECT_GT(drafts, 50);
}

// After each step in place, rows see the right tokens, and the batch is rebuilt only if it must be.
TEST(CacheBatch, updatesInPlace) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const int32_t recent = seed % 2 ? 0 : 40;
    Mirror m({8, 0, {{"all", 900, 0, 0, 0}, {"other", 900, recent, 0, 0}}});
    CacheBatchOptions options;
    options.operands = {{0, true, true}, {1, true, true}};
    options.maxPages = seed % 3 ? 0 : 4;
    for (NodeId root : {m.createRoot(), m.createRoot()}) {
      ASSERT_TRUE(m.append(root, static_cast<int32_t>(30 + below(rng, 60))));
      if (below(rng, 3))
        ASSERT_TRUE(m.fork(root));
      else
        ASSERT_TRUE(m.apply({{}, {}, {{root, 3, 2}}}));
    }
    std::vector<RowGroup> groups;
    for (const auto &[key, node] : m.nodes)
      if (m.cache.tokens(Mirror::idOf(key)) && (m.cache.isLeaf(Mirror::idOf(key)) || recent == 0))
        groups.push_back({Mirror::idOf(key)});
    std::shuffle(groups.begin(), groups.end(), rng);
    BatchBuilder builder(options);
    CacheBatch made;
    int updates = 0, builds = 0;
    for (int i = 0; i < 60; ++i) {
      CacheStep step;
      for (const RowGroup &group : groups)
        if (m.cache.isLeaf(group.node) && (recent || below(rng, 4))) // the window of other nodes also moves
          step.append.push_back({group.node, 1});
      ASSERT_TRUE(m.apply(step));
      const CacheBatch before = made;
      if (builder.update(m.cache, made)) {
        ++updates;
      } else {
        EXPECT_EQ(made.batch.qPos, before.batch.qPos);
        ASSERT_TRUE(builder.build(m.cache, groups, made));
        ++builds;
      }
      verifyBatch(m, options, groups, made);
      if (HasFatalFailure())
        return;
    }
    EXPECT_GT(updates, recent ? 2 * builds / 3 : 5 * builds);
    // Any change but an append requires a new batch.
    ASSERT_TRUE(builder.build(m.cache, groups, made));
    EXPECT_TRUE(builder.update(m.cache, made));
    m.createRoot();
    EXPECT_FALSE(builder.update(m.cache, made));
    ASSERT_TRUE(builder.build(m.cache, groups, made));
    EXPECT_FALSE(BatchBuilder(options).update(m.cache, made));
    ASSERT_TRUE(m.speculate(m.cache.children(m.cache.roots()[0])[0], {-1}));
    EXPECT_FALSE(builder.update(m.cache, made));
  }
}

TEST(CacheBatch, oneInstancePerNode) {
  Mirror m({4, 0, {{"all", 64, 0, 0, 0}}});
  const NodeId root = m.createRoot();
  std::vector<NodeId> thoughts, answers;
  ASSERT_TRUE(m.append(root, 6));
  ASSERT_TRUE(m.apply({{}, {}, {{root, 2, 3}}}, &thoughts));
  ASSERT_TRUE(m.apply({{}, {}, {{thoughts[0], 2, 1}}}, &answers));
  CacheBatch made;
  const std::vector<RowGroup> groups{{answers[1]}, {thoughts[1]}, {answers[0]}};
  ASSERT_TRUE(BatchBuilder().build(m.cache, groups, made));
  // The user names B, C, A; depth first the order is B, A, C, since the row on B came first.
  EXPECT_EQ(made.userRow, (std::vector<int32_t>{0, 2, 1}));
  EXPECT_EQ(made.batchRow, (std::vector<int32_t>{0, 2, 1}));
  const OperandBatch &kv = made.batch.operands[0];
  EXPECT_EQ(made.nodes[0], (std::vector<NodeId>{root, thoughts[0], answers[1], answers[0], thoughts[1]}));
  EXPECT_EQ(kv.lengths, (std::vector<int32_t>{6, 3, 1, 1, 3}));
  EXPECT_EQ(kv.pos0, (std::vector<int32_t>{0, 6, 9, 9, 6}));
  EXPECT_EQ(kv.rowFirst, (std::vector<int32_t>{0, 0, 0, 1, 2}));
  EXPECT_EQ(kv.rowLast, (std::vector<int32_t>{3, 2, 1, 2, 3}));
  EXPECT_EQ(made.batch.qPos, (std::vector<int32_t>{9, 9, 8}));
  // A node that no row sees has no instance.
  ASSERT_TRUE(BatchBuilder().build(m.cache, std::vector<RowGroup>{{thoughts[1]}}, made));
  EXPECT_EQ(made.nodes[0], (std::vector<NodeId>{root, thoughts[1]}));
}

TEST(CacheBatch, aTreeOfOnePathIsASequence) {
  Mirror m({4, 0, {{"all", 64, 0, 0, 0}}});
  const NodeId leaf = m.createRoot();
  ASSERT_TRUE(m.append(leaf, 10));
  const NodeId twin = *m.fork(leaf);
  CacheBatch made;
  ASSERT_TRUE(BatchBuilder().build(m.cache, std::vector<RowGroup>{{leaf}}, made));
  EXPECT_EQ(made.batch.operands[0].lengths, (std::vector<int32_t>{10}));
  ASSERT_TRUE(BatchBuilder().build(m.cache, std::vector<RowGroup>{{leaf}, {twin}}, made));
  EXPECT_EQ(made.batch.operands[0].lengths, (std::vector<int32_t>{8, 2, 2}));
}

// A chain may end wherever tokens differ in the rows that see them.
TEST(CacheBatch, aDraftIsAsManyInstancesAsChains) {
  for (int32_t draftPage : {1, 16}) {
    Mirror m({16, draftPage, {{"all", 2000, 0, 0, 0}}});
    const NodeId a = m.createRoot(), b = m.createRoot();
    ASSERT_TRUE(m.apply({{}, {{a, 100}, {b, 20}}, {}}));
    std::vector<int32_t> chain;
    for (int32_t t = 0; t < maxTreeTokens; ++t)
      chain.push_back(t - 1);
    ASSERT_TRUE(m.speculate(a, chain));
    ASSERT_TRUE(m.speculate(b, {-1, 0, 0, 1, 3, 3, -1}));
    CacheBatchOptions options;
    options.operands = {{0, true, false}, {0, false, true}};
    CacheBatch made;
    const std::vector<RowGroup> groups{{a, 1, true}, {b, 1, true}};
    ASSERT_TRUE(BatchBuilder(options).build(m.cache, groups, made));
    EXPECT_EQ(made.batch.rows, 1024 + 7 + 2);
    EXPECT_EQ(made.batch.operands[0].lengths, (std::vector<int32_t>{100, 20}));
    EXPECT_EQ(made.batch.operands[1].lengths, (std::vector<int32_t>{1024, 1, 2, 1, 1, 1, 1}));
    EXPECT_EQ(made.batch.operands[1].pages, 2000 * 16 / draftPage);
    verifyBatch(m, options, groups, made);
  }
}

TEST(CacheBatch, tablesSayWhatTheBatchSays) {
  Mirror m({16, 1, {{"all", 64, 0, 0, 0}}});
  const NodeId root = m.createRoot();
  ASSERT_TRUE(m.append(root, 40));
  ASSERT_TRUE(m.speculate(root, {-1, 0, 0, 1}));
  CacheBatchOptions options;
  options.operands = {{0, true, false}, {0, false, true}};
  CacheBatch made;
  ASSERT_TRUE(BatchBuilder(options).build(m.cache, std::vector<RowGroup>{{root, 3, true}}, made));
  const Manifest manifest = manifestFor(m.cache, options);
  TensorMap tensors = tablesOf(manifest, made.batch);
  tensors["q"] = Tensor(manifest.dtype, {made.batch.rows, manifest.qHeads, manifest.keyDim});
  for (size_t o = 0; o < 2; ++o)
    for (const char *pages : {".k_pages", ".v_pages"})
      tensors[manifest.operands[o].argument + pages] =
          Tensor(DType::BF16, {made.batch.operands[o].pages, manifest.argumentOf(manifest.operands[o]).page,
                               manifest.kvHeads, manifest.keyDim});
  const Result<Batch> again = batchFromTensors(manifest, tensors);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->rows, made.batch.rows);
  EXPECT_EQ(again->qStart, made.batch.qStart);
  EXPECT_EQ(again->qPos, made.batch.qPos);
  for (size_t o = 0; o < 2; ++o) {
    const OperandBatch &a = again->operands[o], &b = made.batch.operands[o];
    EXPECT_EQ(std::tie(a.lengths, a.pos0, a.rowFirst, a.rowLast, a.blockTable, a.pages, a.maxPages),
              std::tie(b.lengths, b.pos0, b.rowFirst, b.rowLast, b.blockTable, b.pages, b.maxPages));
  }
}

TEST(CacheBatch, longRunsAreCutIntoSeveralInstances) {
  Mirror m({4, 0, {{"all", 64, 0, 0, 0}}});
  const NodeId root = m.createRoot();
  ASSERT_TRUE(m.append(root, 27));
  CacheBatchOptions options;
  options.maxPages = 3;
  CacheBatch made;
  ASSERT_TRUE(BatchBuilder(options).build(m.cache, std::vector<RowGroup>{{root}}, made));
  EXPECT_EQ(made.batch.operands[0].lengths, (std::vector<int32_t>{12, 12, 3}));
  EXPECT_EQ(made.batch.operands[0].pos0, (std::vector<int32_t>{0, 12, 24}));
  verifyBatch(m, options, std::vector<RowGroup>{{root}}, made);
}

// A node that has gained or lost tokens, or was pruned, is told from a change that moves no token of its
// rows.
TEST(CacheBatch, noticesThatANodeHasChanged) {
  Mirror m({4, 1, {{"all", 640, 0, 0, 0}}});
  const NodeId a = m.createRoot(), b = m.createRoot(), other = m.createRoot();
  ASSERT_TRUE(m.apply({{}, {{a, 9}, {b, 5}, {other, 3}}, {}}));
  const std::vector<RowGroup> groups = {{a}, {b}};
  CacheBatchOptions options;
  options.operands = {{0, true, false}};
  BatchBuilder builder(options);
  CacheBatch batch;
  LogCounts counts;
  const auto build = [&] {
    ASSERT_TRUE(builder.build(m.cache, groups, batch));
    counts = LogCounts::of(batch);
    EXPECT_EQ(message(checkCurrent(batch, counts)), "no error");
  };
  const auto isStale = [&](const std::string &why) {
    EXPECT_FALSE(counts.areCurrent(batch));
    for (int i = 0; i < 2; ++i) // until the batch is rebuilt
      EXPECT_EQ(message(checkCurrent(batch, counts)), why);
  };
  build();
  std::vector<NodeId> children;
  ASSERT_TRUE(m.append(other, 30));
  ASSERT_TRUE(m.apply({{other}, {}, {{b, 2, 3}}}, &children));
  ASSERT_TRUE(m.fork(a));
  EXPECT_FALSE(counts.areCurrent(batch));
  EXPECT_EQ(message(checkCurrent(batch, counts)), "no error");
  EXPECT_TRUE(counts.areCurrent(batch));
  ASSERT_TRUE(m.append(a, 1));
  isStale("node 1 has gained tokens since");
  build();
  ASSERT_TRUE(m.append(a, 1));
  isStale("node 1 has gained tokens since");
  ASSERT_TRUE(m.apply({{children[0], children[1]}, {}, {}}));
  build();
  ASSERT_TRUE(m.append(a, 1));
  isStale("node 1 has gained tokens since");
  ASSERT_TRUE(builder.update(m.cache, batch));
  counts = LogCounts::of(batch);
  EXPECT_EQ(message(checkCurrent(batch, counts)), "no error");
  ASSERT_TRUE(m.truncate(a, 2));
  isStale("node 1 has lost tokens since");
  build();
  ASSERT_TRUE(m.apply({{b}, {}, {}}));
  isStale("node 2 was pruned since");
}

TEST(CacheBatch, refusesWithTheNodeNamed) {
  Mirror m({4, 1, {{"all", 640, 0, 0, 0}, {"streaming", 640, 8, 4, 0}}});
  const NodeId root = m.createRoot(), gone = m.createRoot();
  ASSERT_TRUE(m.apply({{gone}, {{root, 20}}, {}}));
  ASSERT_TRUE(m.append(root, 1));
  std::vector<NodeId> children;
  ASSERT_TRUE(m.apply({{}, {}, {{root, 1, 2}}}, &children));
  CacheBatchOptions both, streaming, none;
  both.operands = {{0, true, false}, {0, false, true}};
  streaming.operands = {{1, true, false}};
  none.operands = {{2, true, false}};
  const auto build = [&](const CacheBatchOptions &options, std::vector<RowGroup> groups) {
    CacheBatch made;
    return message(BatchBuilder(options).build(m.cache, groups, made));
  };
  const std::string child = nodeText(children[0]);
  EXPECT_EQ(build(both, {{children[0]}}), "no error");
  EXPECT_EQ(build(both, {{children[0]}, {gone}}), "rows[1]: node 2 was pruned");
  EXPECT_EQ(build(both, {{{77, 0}}}), "rows[0]: there is no node 77");
  EXPECT_EQ(build(both, {{root}, {children[0]}, {root}}), "rows[2]: node 1 has rows already, rows[0]");
  EXPECT_EQ(build(both, {{children[0], 3}}),
            "rows[0]: expected 1 to 2 rows on the tokens of " + child + ", got 3");
  EXPECT_EQ(build(both, {{children[0], 0}}),
            "rows[0]: expected 1 to 2 rows on the tokens of " + child + ", got 0");
  const NodeId empty = m.createRoot();
  EXPECT_EQ(build(both, {{empty}}),
            "rows[0]: " + nodeText(empty) +
                " has no tokens of its own, and rows are on such tokens: append some first");
  EXPECT_EQ(build(both, {{children[0], 1, true}}), "rows[0]: " + child + " has no draft");
  EXPECT_EQ(build(CacheBatchOptions(), {{root}}),
            "operands[0]: nodes have pages of 4 tokens, drafts of 1: show drafts by an operand of their own");
  EXPECT_EQ(build(none, {{root}}), "operands[0]: expected one of 2 head classes, got 2");
  none.maxPages = -1;
  EXPECT_EQ(build(none, {{root}}), "maxPages: expected at least 0, got -1");
  // The row at 20 would see 13, in a page that was freed when the root was branched at 21.
  EXPECT_EQ(build(streaming, {{children[0]}}), "no error");
  EXPECT_EQ(build(streaming, {{root, 5}, {children[0]}}),
            "the row at position 16 of node 1 sees position 9, which class 'streaming' has freed from node "
            "1: rows are launched before the next change to their node");
  EXPECT_EQ(build(streaming, {{root, 20}}),
            "the row at position 4 of node 1 sees position 4, which class 'streaming' has freed from node 1: "
            "rows are launched before the next change to their node");
  EXPECT_EQ(build(streaming, {{root, 2}}), "no error"); // 19 sees 12, the first token that was kept
  EXPECT_EQ(build(streaming, {{root, 3}, {children[0]}}),
            "the row at position 18 of node 1 sees position 11, which class 'streaming' has freed from node "
            "1: rows are launched before the next change to their node");
  ASSERT_TRUE(m.evict(root));
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(m.append(children[0], 4));
  EXPECT_EQ(build(streaming, {{children[0], 4}}), "no error");
  EXPECT_EQ(build(streaming, {{children[0], 22}}), "the row at position 21 of " + child +
                                                       " sees position 14, which class 'streaming' has freed "
                                                       "from node 1: rows are launched before the "
                                                       "next change to their node");
  // A refusal leaves no trace in the builder.
  BatchBuilder builder(both);
  CacheBatch made;
  EXPECT_FALSE(builder.build(m.cache, std::vector<RowGroup>{{root}, {gone}}, made));
  EXPECT_TRUE(builder.build(m.cache, std::vector<RowGroup>{{root}}, made));
}

} // namespace
