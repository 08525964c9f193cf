//===- DecodeTest.cpp - A forest decoded on the host device ---------------===//
//
// Grows, branches, forks, prunes, drafts and commits over many steps, with one
// session and plan buffers whose sizes were fixed before the first, and compares
// every row with attention over the tokens that the model knows it to see.
//
//===----------------------------------------------------------------------===//
#include "Mirror.h"
#include "attn_rt/CacheBatch.h"
#include "attn_rt/HostDevice.h"
#include "session/ScalarKernels.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

/// The value of element i of a token's key, value or query.
double element(uint64_t number, uint64_t which, uint64_t i) {
  uint64_t x = (number * 3 + which) * 1000003 + i;
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15U;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9U;
  return static_cast<double>(x >> 40) / (1 << 23) - 1;
}

class Decoder {
public:
  explicit Decoder(int32_t window)
      : manifest(scalarManifest({.ends = {window}, .bigRows = 64})), kernels(scalarKernels(manifest)),
        device(makeHostDevice()),
        session(std::move(*Session::create(*device, manifest, {"scalar", {}, {}, kernels}))),
        mirror({16, 0, {{"all", 400, 0, 0, 0}}}, 1) {
    PlanLimits limits;
    limits.rows = limits.groups = 200;
    limits.instancesPerRow = 40;
    limits.sharedInstances = 200;
    limits.sharedRows = 4000;
    options.blocks = 24;
    options.gpu = &slow;
    capacity = planCapacity(manifest, limits, options);
    EXPECT_TRUE(session.reserve(capacity));
    planner.emplace(manifest, options, capacity);
  }

  Manifest manifest;
  std::vector<host::HostKernel> kernels;
  std::unique_ptr<HostDevice> device;
  Session session;
  Mirror mirror;
  int64_t sharedRows = 0, partialRows = 0;

  /// Launches rows on these groups and checks all of them.
  void decode(const std::vector<RowGroup> &groups) {
    CacheBatch made;
    const Status built = builder.build(mirror.cache, groups, made);
    ASSERT_TRUE(built) << built.error().message;
    const Status checked = checkBatch(manifest, made.batch);
    ASSERT_TRUE(checked) << checked.error().message;
    std::vector<std::vector<uint64_t>> paths = userPaths(groups);
    TensorMap tensors = tablesOf(manifest, made.batch);
    addPages(tensors);
    tensors["q"] = Tensor(DType::F32, {made.batch.rows, manifest.qHeads, manifest.keyDim});
    for (int64_t row = 0; row < made.batch.rows; ++row) {
      const uint64_t number = paths[static_cast<size_t>(made.userRow[static_cast<size_t>(row)])].back();
      for (int64_t i = 0; i < manifest.qHeads * manifest.keyDim; ++i)
        tensors["q"].set(row * manifest.qHeads * manifest.keyDim + i,
                         element(number, 0, static_cast<uint64_t>(i)));
    }
    ASSERT_TRUE(session.bind(tensors, made.batch));
    const DeviceAddress tasks = session.address("plan.tasks"), partials = session.address("partial.o");
    const Status planned = planner->plan(made.batch, plan);
    ASSERT_TRUE(planned) << planned.error().message;
    const Status ran = session.run(plan);
    ASSERT_TRUE(ran) << ran.error().message;
    EXPECT_EQ(session.address("plan.tasks"), tasks);
    EXPECT_EQ(session.address("partial.o"), partials);
    partialRows += plan.partialRows;
    sharedRows += std::count(made.batch.operands[0].rowLast.begin(), made.batch.operands[0].rowLast.end(),
                             made.batch.rows);
    const TensorMap out = *session.outputs();
    for (size_t user = 0; user < paths.size(); ++user)
      checkRow(out, made.batchRow[user], paths[user]);
  }

private:
  static constexpr GpuModel slow{"slow", 1e9, 1e12, 1}; // small problems are worth cutting
  PlanOptions options;
  PlanCapacity capacity;
  std::optional<Planner> planner;
  Plan plan;
  BatchBuilder builder;

  std::vector<std::vector<uint64_t>> userPaths(const std::vector<RowGroup> &groups) {
    std::vector<std::vector<uint64_t>> paths;
    for (const RowGroup &group : groups) {
      const Mirror::Node &node = mirror.at(group.node);
      for (int32_t i = group.rows; i > 0; --i)
        paths.emplace_back(node.path.begin(), node.path.end() - i + 1);
      for (size_t t = 0; group.draft && t < node.draft.size(); ++t) {
        std::vector<uint64_t> own;
        for (auto token = static_cast<int32_t>(t); token >= 0;
             token = node.draftParents[static_cast<size_t>(token)])
          own.push_back(node.draft[static_cast<size_t>(token)]);
        paths.push_back(node.path);
        paths.back().insert(paths.back().end(), own.rbegin(), own.rend());
      }
    }
    return paths;
  }

  /// Keys and values of what memory holds, NaN where it holds nothing.
  void addPages(TensorMap &tensors) const {
    const int32_t pages = mirror.cache.options().classes[0].pages;
    const int64_t stride = manifest.kvHeads * manifest.keyDim;
    for (uint64_t which : {1U, 2U}) {
      Tensor &tensor = tensors[which == 1 ? "kv.k_pages" : "kv.v_pages"];
      tensor = Tensor(DType::F32, {pages, 16, manifest.kvHeads, manifest.keyDim});
      tensor.fill(std::nan(""));
      for (int32_t slot = 0; slot < pages * 16; ++slot)
        if (const uint64_t number = mirror.numberAt(0, {slot / 16, slot % 16}))
          for (int64_t i = 0; i < stride; ++i)
            tensor.set(slot * stride + i, element(number, which, static_cast<uint64_t>(i)));
    }
    tensors["sink_logits"] = Tensor(DType::F32, {manifest.qHeads});
    for (int h = 0; h < manifest.qHeads; ++h)
      tensors["sink_logits"].set(h, 0.1 * h);
  }

  /// Attention in double over the tokens of a path within the window.
  void checkRow(const TensorMap &out, int32_t row, const std::vector<uint64_t> &path) const {
    const auto dim = static_cast<uint64_t>(manifest.keyDim);
    const auto first = static_cast<size_t>(std::max<int64_t>(0, std::ssize(path) - manifest.ends[0]));
    for (int h = 0; h < manifest.qHeads; ++h) {
      const auto kvHead = static_cast<uint64_t>(h / manifest.groupSize());
      double sum = std::exp(static_cast<double>(static_cast<float>(0.1 * h)));
      std::vector<double> o(dim);
      for (size_t t = first; t < path.size(); ++t) {
        double score = 0;
        for (uint64_t d = 0; d < dim; ++d)
          score += element(path.back(), 0, static_cast<uint64_t>(h) * dim + d) *
                   element(path[t], 1, kvHead * dim + d);
        const double weight = std::exp(score * manifest.scale);
        sum += weight;
        for (uint64_t d = 0; d < dim; ++d)
          o[d] += weight * element(path[t], 2, kvHead * dim + d);
      }
      const int64_t at = int64_t{row} * manifest.qHeads + h;
      ASSERT_NEAR(out.at("lse").get(at), std::log(sum), 2e-5) << "row " << row << ", head " << h;
      for (uint64_t d = 0; d < dim; ++d)
        ASSERT_NEAR(out.at("o").get(at * static_cast<int64_t>(dim) + static_cast<int64_t>(d)), o[d] / sum,
                    2e-5)
            << "row " << row << ", head " << h;
    }
  }
};

TEST(Decode, aForestOverTwelveSteps) {
  for (int32_t window : {1 << 30, 50}) {
    SCOPED_TRACE("window " + std::to_string(window));
    Decoder decoder(window);
    Mirror &m = decoder.mirror;
    Rng rng(11);
    // Prompts first: two sequences, one of them in chunks.
    const NodeId a = m.createRoot(), b = m.createRoot();
    ASSERT_TRUE(m.apply({{}, {{a, 150}, {b, 40}}, {}}));
    decoder.decode({{b, 40}, {a, 150}});
    ASSERT_TRUE(m.append(b, 30));
    decoder.decode({{b, 30}});
    ASSERT_TRUE(m.apply({{}, {}, {{a, 3, 1}}}));
    ASSERT_TRUE(m.fork(b));
    for (int step = 0; step < 12; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      CacheStep change;
      std::vector<NodeId> leaves;
      for (const auto &[key, node] : m.nodes)
        if (m.cache.isLeaf(Mirror::idOf(key)))
          leaves.push_back(Mirror::idOf(key));
      for (NodeId leaf : leaves)
        if (leaves.size() > 5 && below(rng, 4) == 0)
          change.prune.push_back(leaf);
        else if (below(rng, 5) == 0)
          change.branch.push_back({leaf, 2, 1});
        else
          change.append.push_back({leaf, 1});
      std::vector<RowGroup> groups;
      std::vector<NodeId> children;
      ASSERT_TRUE(m.apply(change, &children));
      for (const CacheStep::Append &append : change.append)
        groups.push_back({append.node});
      for (NodeId child : children)
        groups.push_back({child});
      std::vector<NodeId> drafted;
      for (RowGroup &group : groups)
        if (below(rng, 4) == 0) {
          ASSERT_TRUE(m.speculate(group.node, randomTree(rng, 12)));
          group.draft = true;
          drafted.push_back(group.node);
        }
      std::shuffle(groups.begin(), groups.end(), rng);
      decoder.decode(groups);
      if (HasFatalFailure())
        return;
      for (NodeId leaf : drafted)
        ASSERT_TRUE(m.commit(
            leaf,
            static_cast<int32_t>(below(rng, static_cast<size_t>(m.cache.draft(leaf)->size()) + 1)) - 1));
      m.verify();
    }
    EXPECT_GT(decoder.sharedRows, 0);
    EXPECT_GT(decoder.partialRows, 0);
  }
}

} // namespace
