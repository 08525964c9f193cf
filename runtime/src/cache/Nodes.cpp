//===- Nodes.cpp - The nodes of a cache and their links -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <algorithm>

namespace attn::rt {

std::string refuseRows(const Node &node, NodeId id, int32_t rows, bool draft) {
  const int32_t least = draft ? 0 : 1;
  if (rows >= least && rows <= node.tokens)
    return {};
  if (node.tokens < least)
    return nodeText(id) + " has no tokens of its own, and rows are on such tokens: append some first";
  return "expected " + std::to_string(least) + " to " + std::to_string(node.tokens) +
         " rows on the tokens of " + nodeText(id) + ", got " + std::to_string(rows);
}

std::string nodeText(NodeId node) {
  std::string text = "node " + std::to_string(node.index);
  return node.generation ? text + "." + std::to_string(node.generation) : text;
}

Error Cache::State::whyNone(NodeId id) const {
  const bool wasThere = id.index > ground && static_cast<size_t>(id.index) < nodes.size() &&
                        id.generation <= at(id.index).generation;
  return inputError(wasThere ? nodeText(id) + " was pruned" : "there is no " + nodeText(id));
}

int32_t Cache::State::addNode(int32_t parent, int32_t pos0) {
  ++shape;
  int32_t index = static_cast<int32_t>(nodes.size());
  if (freeNodes.empty()) {
    nodes.emplace_back();
    nodes.back().runs.resize(classCount());
  } else {
    index = freeNodes.back();
    freeNodes.pop_back();
  }
  Node &node = at(index);
  node.live = true;
  node.evicted = node.joint = false;
  node.firstChild = node.lastChild = -1;
  node.tokens = 0;
  node.pos0 = node.frontier = node.horizon = pos0;
  link(index, parent, -1);
  log->note(index, NodeLog::Change::Grew);
  ++live;
  return index;
}

void Cache::State::link(int32_t index, int32_t parent, int32_t before) {
  Node &node = at(index), &above = at(parent);
  node.parent = parent;
  node.next = before;
  node.previous = before < 0 ? above.lastChild : at(before).previous;
  (node.previous < 0 ? above.firstChild : at(node.previous).next) = index;
  (before < 0 ? above.lastChild : at(before).previous) = index;
}

void Cache::State::unlink(int32_t index) {
  const Node &node = at(index);
  Node &above = at(node.parent);
  (node.previous < 0 ? above.firstChild : at(node.previous).next) = node.next;
  (node.next < 0 ? above.lastChild : at(node.next).previous) = node.previous;
}

void Cache::State::releaseNode(int32_t index) {
  ++shape;
  log->note(index, NodeLog::Change::Pruned);
  Node &node = at(index);
  for (size_t c = 0; c < classCount(); ++c) {
    Run &run = node.runs[c];
    for (std::vector<int32_t> *pages : {&run.pages, &run.spare}) {
      std::for_each(pages->rbegin(), pages->rend(), [&](int32_t page) { pools[c].give(page); });
      pages->clear();
    }
    run.gap = 0;
    if (node.draft) {
      for (const std::vector<int32_t> *pages : {&node.draft->pages[c].tokens, &node.draft->pages[c].reserve})
        std::for_each(pages->rbegin(), pages->rend(), [&](int32_t page) { pools[c].give(page); });
    }
  }
  node.draft.reset();
  node.live = false;
  ++node.generation;
  freeNodes.push_back(index);
  --live;
}

void Cache::State::collectSubtree(int32_t index, std::vector<int32_t> &out) const {
  size_t next = out.size();
  out.push_back(index);
  for (; next < out.size(); ++next)
    for (int32_t child = at(out[next]).firstChild; child >= 0; child = at(child).next)
      out.push_back(child);
}

Error Cache::State::whyNoGrowth(const Node &node, const Doing &what, int64_t tokens) const {
  if (node.draft)
    return inputError(what + ": it has a draft of " + std::to_string(node.draft->tree.size()) +
                      " tokens: commit it first (token -1 drops it)");
  if (node.evicted)
    return inputError(what + ": it was evicted, and only nodes below it can grow");
  return inputError(what + ": it ends at position " + std::to_string(node.end()) + ", and " +
                    std::to_string(tokens) + " more tokens exceed " +
                    std::to_string(std::numeric_limits<int32_t>::max()));
}

} // namespace attn::rt
