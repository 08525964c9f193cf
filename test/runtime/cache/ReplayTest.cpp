//===- ReplayTest.cpp - Recorded and generated runs through a cache -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Data.h"
#include "attn_rt/cache/BranchController.h"
#include "attn_rt/workload/DecodingTree.h"
#include "attn_rt/workload/Speculation.h"

#include <algorithm>
#include <map>

using namespace attn::rt;

namespace {

/// The sizes of runs of tokens that the same rows see, with the numbers of these rows: of a forest, and of an
/// operand's instances. (A node that fills its pages is one instance with an only child.)
using Shape = std::multiset<std::pair<int32_t, int32_t>>;

Shape shapeOf(const std::map<std::pair<int32_t, int32_t>, int32_t> &tokensOfRange) {
  Shape shape;
  for (const auto &[rows, tokens] : tokensOfRange)
    shape.emplace(tokens, rows.second - rows.first);
  return shape;
}

Shape shapeOf(const WorkloadStep &step) {
  std::vector<int32_t> first, below(step.nodes.size());
  int32_t rows = 0;
  for (const ForestNode &node : step.nodes) {
    first.push_back(rows);
    rows += node.rows;
  }
  std::map<std::pair<int32_t, int32_t>, int32_t> tokens;
  for (size_t i = step.nodes.size(); i-- > 0;) {
    below[i] += step.nodes[i].rows;
    if (step.nodes[i].parent >= 0)
      below[static_cast<size_t>(step.nodes[i].parent)] += below[i];
    tokens[{first[i], first[i] + below[i]}] += step.nodes[i].tokens;
  }
  return shapeOf(tokens);
}

Shape shapeOf(const OperandBatch &operand) {
  std::map<std::pair<int32_t, int32_t>, int32_t> tokens;
  for (size_t i = 0; i < operand.instances(); ++i)
    tokens[{operand.rowFirst[i], operand.rowLast[i]}] += operand.lengths[i];
  return shapeOf(tokens);
}

/// Lets a controller grow the recorded tree: at each iteration the cache holds the forest of that step.
void replay(const DecodingTree &tree, int32_t iterations) {
  ASSERT_GT(tree.iterations(), 20);
  Cache cache = std::move(*Cache::create({64, 0, {{"all", 20000, 0, 0, 0}}}));
  const NodeId root = cache.createRoot();
  ASSERT_TRUE(cache.append(root, tree.nodes[0].tokens()));
  std::vector<std::vector<int32_t>> children(tree.nodes.size());
  for (size_t i = 1; i < tree.nodes.size(); ++i)
    children[static_cast<size_t>(tree.nodes[i].parent)].push_back(static_cast<int32_t>(i));
  std::map<int32_t, int32_t> recorded{{root.index, 0}};
  BatchBuilder builder;
  CacheBatch made;
  for (int32_t iteration = 1; iteration <= std::min(iterations, tree.iterations()); ++iteration) {
    std::vector<int32_t> born; // thoughts without a token are never in the cache
    const auto step = decodeStep(cache, [&](const Leaf &leaf) -> LeafChoice {
      const int32_t node = recorded.at(leaf.node.index);
      if (iteration <= tree.nodes[static_cast<size_t>(node)].end)
        return {LeafChoice::Kind::Continue};
      int32_t count = 0;
      for (int32_t child : children[static_cast<size_t>(node)])
        if (tree.nodes[static_cast<size_t>(child)].tokens() > 0) {
          born.push_back(child);
          ++count;
        }
      return count ? LeafChoice{LeafChoice::Kind::Branch, count} : LeafChoice{LeafChoice::Kind::Hold};
    });
    ASSERT_TRUE(step) << step.error().message;
    ASSERT_EQ(step->children.size(), born.size());
    for (size_t i = 0; i < born.size(); ++i)
      recorded[step->children[i].index] = born[i];
    ASSERT_TRUE(builder.build(cache, step->rows, made));
    ASSERT_EQ(shapeOf(made.batch.operands[0]), shapeOf(tree.step(iteration))) << "iteration " << iteration;
  }
}

TEST(Replay, aGeneratedReasoningTree) {
  replay(generateDecodingTree(2, 1104, {{10, 0, 60}, {5, 3, 60}, {10, 2, 60}}), 1000);
}

TEST(Replay, publishedReasoningTrees) {
  for (const char *name : {"sorting128ToT", "docmergeToT"}) {
    ATTN_DATA(text, std::string("deft/") + name + ".trees.json");
    const auto trees = readDecodingTrees(text, name);
    ASSERT_TRUE(trees) << trees.error().message;
    for (size_t i = 1; i < trees->size(); i += 10)
      replay((*trees)[i], 1500);
  }
}

/// Drafts the tree after a sequence in every step and commits as many tokens as were accepted.
void verifySteps(const TokenTree &tree, const std::vector<int32_t> &accepted) {
  Cache cache = std::move(*Cache::create({16, 1, {{"all", 400, 0, 0, 0}, {"streaming", 60, 128, 64, 256}}}));
  const NodeId root = cache.createRoot();
  ASSERT_TRUE(cache.append(root, 100));
  CacheBatchOptions shown;
  shown.operands = {{0, true, false}, {0, false, true}};
  BatchBuilder builder(shown);
  CacheBatch made;
  // The tree's indices are in depth-first order, so its own parents are the draft's.
  const std::vector<int32_t> parents(tree.parent().begin(), tree.parent().end());
  int32_t end = 100;
  for (int32_t gained : accepted) {
    ASSERT_TRUE(cache.append(root, 1)); // the token that is always accepted
    ASSERT_TRUE(cache.speculate(root, parents));
    const std::vector<RowGroup> rows{{root, 1, true}};
    ASSERT_TRUE(builder.build(cache, rows, made));
    ASSERT_EQ(made.batch.rows, tree.size() + 1);
    ASSERT_EQ(made.batch.operands[1].instances(), tree.chains().size());
    // Any token that ends a path of this length.
    const auto last = std::find(tree.depth().begin(), tree.depth().end(), gained - 2);
    ASSERT_TRUE(cache.commit(root, gained == 1 ? -1 : static_cast<int32_t>(last - tree.depth().begin())));
    end += gained;
    ASSERT_EQ(cache.end(root), end);
  }
  const Status invariants = cache.checkInvariants();
  EXPECT_TRUE(invariants) << invariants.error().message;
}

TEST(Replay, generatedDrafts) {
  const TokenTree tree = generateTokenTree(255);
  verifySteps(tree, generateAccepted(1, tree, 400));
}

TEST(Replay, publishedDrafts) {
  for (int32_t size : {32, 64, 128, 256}) {
    ATTN_DATA(text, "deft/APPS_tree_size" + std::to_string(size) + ".json");
    const auto run = readVerification(text, "APPS");
    ASSERT_TRUE(run) << run.error().message;
    verifySteps(run->tree, run->accepted[0]);
  }
}

} // namespace
