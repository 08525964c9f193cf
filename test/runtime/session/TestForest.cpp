//===- TestForest.cpp - Forests of numbered nodes -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TestForest.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace attn::rt::test {

namespace {

enum : uint64_t { query, key, value, logit };

/// Element i of token or row t of a node: pseudo-random numbers between -1 and 1.
double element(uint64_t node, uint64_t which, int64_t t, int64_t i) {
  uint64_t x = (node * 4 + which) * 1000003 + static_cast<uint64_t>(t);
  x = (x ^ x >> 29) * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(i);
  x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9U;
  x = (x ^ x >> 30) * 0x94D049BB133111EBU;
  return static_cast<double>((x ^ x >> 31) >> 40) / (1 << 23) - 1;
}

TestForest grow(const TestForest &forest, Rng &rng, size_t nodes, size_t most) {
  std::vector<TestNode> all = forest;
  std::vector<std::vector<size_t>> children(all.size() + nodes + 1); // of the parent before
  uint64_t number = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    children[static_cast<size_t>(all[i].parent + 1)].push_back(i);
    number = std::max(number, all[i].number + 1);
  }
  for (; nodes > 0; --nodes) {
    const auto parent = static_cast<int32_t>(below(rng, all.size() + 1)) - 1;
    const auto tokens = static_cast<int32_t>(1 + below(rng, most));
    const int32_t rows = std::min(tokens, static_cast<int32_t>(below(rng, 3)));
    std::vector<size_t> &siblings = children[static_cast<size_t>(parent + 1)];
    siblings.insert(siblings.begin() + static_cast<int64_t>(below(rng, siblings.size() + 1)), all.size());
    all.push_back({number++, parent, tokens, rows});
  }
  TestForest ordered;
  const std::function<void(size_t, int32_t)> visit = [&](size_t list, int32_t parent) {
    for (size_t child : children[list]) {
      const auto at = static_cast<int32_t>(ordered.size());
      ordered.push_back(all[child]);
      ordered.back().parent = parent;
      visit(child + 1, at);
    }
  };
  visit(0, -1);
  return ordered;
}

} // namespace

TestForest randomForest(Rng &rng, size_t nodes, size_t most) { return grow({}, rng, nodes, most); }

TestForest withNeighbours(const TestForest &forest, Rng &rng, size_t nodes, size_t most) {
  return grow(forest, rng, nodes, most);
}

std::vector<std::pair<uint64_t, int32_t>> rowsOf(const TestForest &forest) {
  std::vector<std::pair<uint64_t, int32_t>> rows;
  for (const TestNode &node : forest)
    for (int32_t r = 0; r < node.rows; ++r)
      rows.emplace_back(node.number, r);
  return rows;
}

TensorMap tensorsOf(const Manifest &m, const TestForest &forest, Rng &rng) {
  const int32_t page = m.argumentOf(m.operands[0]).page;
  std::vector<int32_t> lengths, pos0, ends, first, last, starts{0}, positions;
  int32_t maxPages = 1, pages = 3;
  for (const TestNode &node : forest) {
    lengths.push_back(node.tokens);
    pos0.push_back(node.parent < 0 ? 0 : ends[static_cast<size_t>(node.parent)]);
    ends.push_back(pos0.back() + node.tokens);
    first.push_back(starts.back());
    last.push_back(starts.back() + node.rows);
    for (int32_t r = 0; r < node.rows; ++r)
      positions.push_back(ends.back() - node.rows + r);
    if (node.rows > 0)
      starts.push_back(last.back());
    for (int32_t above = node.parent; above >= 0; above = forest[static_cast<size_t>(above)].parent)
      last[static_cast<size_t>(above)] = last.back();
    maxPages = std::max(maxPages, (node.tokens + page - 1) / page);
    pages += (node.tokens + page - 1) / page;
  }
  const auto nodes = static_cast<int64_t>(forest.size());
  TensorMap tensors;
  tensors["q_start"] = Tensor::ofI32({static_cast<int64_t>(starts.size())}, starts);
  tensors["q_pos"] = Tensor::ofI32({starts.back()}, positions);
  tensors["kv.lengths"] = Tensor::ofI32({nodes}, lengths);
  tensors["kv.pos0"] = Tensor::ofI32({nodes}, pos0);
  std::vector<int32_t> ranges;
  for (size_t i = 0; i < forest.size(); ++i)
    ranges.insert(ranges.end(), {first[i], last[i]});
  tensors["kv.rows"] = Tensor::ofI32({nodes, 2}, ranges);

  const int64_t perRow = int64_t{m.qHeads} * m.keyDim, perToken = int64_t{m.kvHeads} * m.keyDim;
  Tensor &q = tensors["q"] = Tensor(m.dtype, {starts.back(), m.qHeads, m.keyDim});
  int64_t row = 0;
  for (const auto &[number, r] : rowsOf(forest)) {
    for (int64_t i = 0; i < perRow; ++i)
      q.set(row * perRow + i, element(number, query, r, i));
    ++row;
  }
  if (m.sinkLogits) {
    tensors["sink_logits"] = Tensor(DType::F32, {m.qHeads});
    for (int64_t h = 0; h < m.qHeads; ++h)
      tensors["sink_logits"].set(h, element(0, logit, 0, h));
  }
  std::vector<int32_t> shuffled(static_cast<size_t>(pages));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), rng);
  Tensor &table = tensors["kv.block_table"] = Tensor(DType::I32, {nodes, maxPages});
  for (uint64_t which : {key, value}) {
    Tensor &pool = tensors[which == key ? "kv.k_pages" : "kv.v_pages"] =
        Tensor(m.dtype, {pages, page, m.kvHeads, m.keyDim});
    pool.fill(std::nan(""));
    size_t next = 0;
    for (int64_t n = 0; n < nodes; ++n)
      for (int32_t t = 0; t < lengths[static_cast<size_t>(n)]; ++t) {
        if (t % page == 0)
          table.set(n * maxPages + t / page, shuffled[next++]);
        const int64_t slot = int64_t{shuffled[next - 1]} * page + t % page;
        for (int64_t i = 0; i < perToken; ++i)
          pool.set(slot * perToken + i, element(forest[static_cast<size_t>(n)].number, which, t, i));
      }
  }
  return tensors;
}

} // namespace attn::rt::test
