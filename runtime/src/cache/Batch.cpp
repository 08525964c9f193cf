//===- Batch.cpp - A cache's rows as a batch ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/BatchState.h"
#include "cache/PageLog.h"

#include <algorithm>

namespace attn::rt {

Status BatchBuilder::State::checkGivenBack(size_t c) {
  const CacheClass &info = cache->classOf(c);
  for (const SeenNode &node : seen) {
    const Node &of = cache->at(node.index);
    const int64_t begin = of.pos0 + int64_t{cache->sinkPages(of, c)} * cache->options.pageTokens;
    const int64_t end = begin + int64_t{of.runs[c].gap} * cache->options.pageTokens;
    const int64_t visible = std::max<int64_t>(begin, int64_t{node.leastPosition} - info.recent + 1);
    if (of.runs[c].gap && visible < end)
      return inputError(
          "the row at position " + std::to_string(std::max<int64_t>(begin, node.leastPosition)) + " of " +
          nodeText(cache->idOf(node.leastNode)) + " sees position " + std::to_string(visible) +
          ", which class '" + info.name + "' has freed from " + nodeText(cache->idOf(node.index)) +
          ": rows are launched before the next change to their node");
  }
  return {};
}

/// Adds an instance, whose pages are already in the list. Joins it to the last instance if the same rows see
/// both and the last one fills its pages: a tree of one path is a sequence.
void BatchBuilder::State::push(const Instance &next, int32_t page) {
  if (!instances.empty()) {
    Instance &last = instances.back();
    if (last.first == next.first && last.last == next.last && last.pos0 + last.tokens == next.pos0 &&
        last.tokens % page == 0) {
      last.tokens += next.tokens;
      last.lastNode = next.index;
      last.pagesEnd = pages.size();
      return;
    }
  }
  instances.push_back(next);
  instances.back().pagesBegin = instances.size() < 2 ? 0 : instances[instances.size() - 2].pagesEnd;
  instances.back().pagesEnd = pages.size();
}

void BatchBuilder::State::addNode(const SeenNode &node, size_t c) {
  const int32_t pageTokens = cache->options.pageTokens;
  const Node &of = cache->at(node.index);
  const Run &run = of.runs[c];
  const int32_t front = run.gap ? cache->sinkPages(of, c) : cache->pagesFor(of.tokens);
  pages.insert(pages.end(), run.pages.begin(), run.pages.begin() + front);
  if (front && of.tokens)
    push({node.index, of.pos0, std::min(of.tokens, front * pageTokens), node.first, node.last}, pageTokens);
  const int32_t behind = (front + run.gap) * pageTokens;
  if (behind < of.tokens) {
    pages.insert(pages.end(), run.pages.begin() + front, run.pages.end());
    push({node.index, of.pos0 + behind, of.tokens - behind, node.first, node.last}, pageTokens);
  }
}

void BatchBuilder::State::addDraft(const SeenNode &node, size_t c, int32_t page) {
  const Node &of = cache->at(node.index);
  const Draft &draft = *of.draft;
  const int32_t perPage = cache->options.pageTokens / page;
  for (const TokenTree::Chain &chain : draft.tree.chains()) {
    const int32_t slot = draft.slots[static_cast<size_t>(chain.begin)], tokens = chain.end - chain.begin;
    for (int32_t i = slot / page; i < (slot + tokens + page - 1) / page; ++i)
      pages.push_back(draft.pages[c].tokens[static_cast<size_t>(i / perPage)] * perPage + i % perPage);
    push({node.index, of.end() + draft.tree.depth()[static_cast<size_t>(chain.begin)], tokens,
          node.draftRow + chain.begin, node.draftRow + chain.below},
         page);
  }
}

void BatchBuilder::State::writeOperand(size_t o, int32_t page, CacheBatch &out) {
  OperandBatch &operand = out.batch.operands[o];
  std::vector<NodeId> &nodes = out.nodes[o];
  size_t longest = 1;
  for (const Instance &instance : instances)
    longest = std::max(longest, instance.pagesEnd - instance.pagesBegin);
  operand.maxPages = options.maxPages ? options.maxPages : static_cast<int64_t>(longest);
  for (std::vector<int32_t> *list :
       {&operand.lengths, &operand.pos0, &operand.rowFirst, &operand.rowLast, &operand.blockTable})
    list->clear();
  nodes.clear();
  const auto most = static_cast<size_t>(operand.maxPages);
  for (const Instance &instance : instances) {
    const NodeId node = cache->idOf(instance.index);
    for (size_t begin = instance.pagesBegin; begin < instance.pagesEnd; begin += most) {
      const size_t end = std::min(begin + most, instance.pagesEnd);
      const auto before = static_cast<int32_t>(begin - instance.pagesBegin) * page;
      operand.lengths.push_back(std::min(instance.tokens - before, static_cast<int32_t>(end - begin) * page));
      operand.pos0.push_back(instance.pos0 + before);
      operand.rowFirst.push_back(instance.first);
      operand.rowLast.push_back(instance.last);
      operand.blockTable.insert(operand.blockTable.end(), pages.begin() + static_cast<int64_t>(begin),
                                pages.begin() + static_cast<int64_t>(end));
      operand.blockTable.resize(operand.lengths.size() * most, -1);
      nodes.push_back(node);
    }
    if (const int32_t group = entry(instance.lastNode).group; group >= 0)
      tails[o][static_cast<size_t>(group)] = static_cast<int32_t>(nodes.size()) - 1;
  }
}

Status BatchBuilder::State::build(std::span<const RowGroup> rowGroups, CacheBatch &out) {
  serial = 0; // until the build is complete
  groups.assign(rowGroups.begin(), rowGroups.end());
  if (options.maxPages < 0)
    return inputError("maxPages: expected at least 0, got " + std::to_string(options.maxPages));
  if (Status status = readGroups(groups); !status)
    return status;
  numberRows(groups, out);
  out.batch.operands.resize(options.operands.size());
  out.nodes.resize(options.operands.size());
  out.sources.resize(options.operands.size());
  tails.assign(options.operands.size(), std::vector<int32_t>(groups.size(), -1));
  for (size_t o = 0; o < options.operands.size(); ++o) {
    const CacheOperand &operand = options.operands[o];
    const auto c = static_cast<size_t>(operand.headClass);
    const std::string where = "operands[" + std::to_string(o) + "]: ";
    if (operand.headClass < 0 || c >= cache->classCount())
      return inputError(where + "expected one of " + std::to_string(cache->classCount()) +
                        " head classes, got " + std::to_string(operand.headClass));
    const int32_t page = operand.page(cache->options);
    if (page == 0)
      return inputError(where + "nodes have pages of " + std::to_string(cache->options.pageTokens) +
                        " tokens, drafts of " + std::to_string(cache->options.draftPage) +
                        ": show drafts by an operand of their own");
    if (Status status = checkGivenBack(c); !status)
      return status;
    instances.clear();
    pages.clear();
    for (const SeenNode &node : seen) {
      if (operand.nodes)
        addNode(node, c);
      if (operand.drafts && node.draftRow >= 0)
        addDraft(node, c, page);
    }
    const int32_t perPage = cache->options.pageTokens / page;
    out.batch.operands[o].pages = int64_t{cache->pools[c].size()} * perPage;
    out.sources[o] = {cache->pools[c].log(), page, perPage, cache->pools[c].log()->count()};
    writeOperand(o, page, out);
  }
  serial = cache->serial;
  shape = cache->shape;
  return {};
}

void WatchedNodes::begin(const Cache &cache, std::span<const RowGroup> groups) {
  log_ = cache.state_->log;
  nodes_.clear();
  for (const RowGroup &group : groups)
    nodes_.push_back({group.node, &log_->entry(group.node.index)});
  restart();
}

uint64_t WatchedNodes::countNow() const { return log_ ? log_->count() : 0; }
void WatchedNodes::restart() { count_ = countNow(); }

Status WatchedNodes::check(uint64_t &count) const {
  const uint64_t now = countNow();
  if (now == count)
    return {};
  for (const Watched &watched : nodes_) {
    const uint64_t entry = watched.entry->load(std::memory_order_relaxed);
    if (entry >> 2 <= count_)
      continue;
    switch (static_cast<NodeLog::Change>(entry & 3)) {
    case NodeLog::Change::Grew:
      return inputError(nodeText(watched.node) + " has gained tokens since");
    case NodeLog::Change::Shrank:
      return inputError(nodeText(watched.node) + " has lost tokens since");
    case NodeLog::Change::Pruned:
      return inputError(nodeText(watched.node) + " was pruned since");
    }
  }
  count = now;
  return {};
}

LogCounts LogCounts::of(const CacheBatch &batch) {
  LogCounts counts{{}, batch.watched.count()};
  for (const CacheBatch::Source &source : batch.sources)
    counts.pages.push_back(source.count);
  return counts;
}

bool LogCounts::areCurrent(const CacheBatch &batch) const {
  bool same = batch.watched.countNow() == nodes;
  for (size_t o = 0; same && o < pages.size(); ++o)
    same = batch.sources[o].log->count() == pages[o];
  return same;
}

Status checkCurrent(const CacheBatch &batch, LogCounts &counts) {
  if (Status status = batch.watched.check(counts.nodes); !status)
    return status;
  for (size_t o = 0; o < batch.sources.size(); ++o) {
    const CacheBatch::Source &source = batch.sources[o];
    const uint64_t now = source.log->count();
    if (now == counts.pages[o])
      continue;
    const OperandBatch &operand = batch.batch.operands[o];
    for (size_t i = 0; i < operand.instances(); ++i) {
      const int32_t *table = operand.blockTable.data() + i * static_cast<size_t>(operand.maxPages);
      const int32_t tokens = operand.lengths[i];
      for (int32_t p = 0; int64_t{p} * source.page < tokens; ++p)
        if (const int32_t page = table[p] / source.perPage; source.log->givenOutSince(page, source.count))
          return inputError("page " + std::to_string(page) + " of the cache, which the batch reads from " +
                            nodeText(batch.nodes[o][i]) + " on, was reassigned since");
    }
    counts.pages[o] = now;
  }
  return {};
}

BatchBuilder::BatchBuilder(CacheBatchOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
}
BatchBuilder::~BatchBuilder() = default;
BatchBuilder::BatchBuilder(BatchBuilder &&) noexcept = default;

Status BatchBuilder::build(const Cache &cache, std::span<const RowGroup> rows, CacheBatch &out) {
  State &s = *state_;
  s.cache = cache.state_.get();
  s.entries.resize(std::max(s.entries.size(), s.cache->nodes.size()));
  Status status = s.build(rows, out);
  if (status)
    out.watched.begin(cache, rows);
  for (int32_t index : s.touched)
    s.entry(index) = {};
  s.touched.clear();
  return status;
}

} // namespace attn::rt
