//===- Truncate.cpp - A leaf loses its last tokens ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// The next rows see the sequence's last tokens, which streaming classes may have freed.
Status checkKept(const Cache::State &s, int32_t index, int32_t end, const Doing &what) {
  for (; index != ground; index = s.at(index).parent)
    for (size_t c = 0; c < s.classCount(); ++c) {
      const Node &node = s.at(index);
      const int32_t sink = s.sinkPages(node, c), gap = node.runs[c].gap;
      if (gap == 0 || s.pagesFor(std::clamp(end - node.pos0, 0, node.tokens)) <= sink)
        continue;
      const int64_t last = node.pos0 + int64_t{sink + gap} * s.options.pageTokens - 1;
      const int64_t visible = int64_t{end} - s.classOf(c).recent + 1;
      if (last >= visible)
        return inputError(what + ": a row at position " + std::to_string(end) + " sees class '" +
                          s.classOf(c).name + "' from position " + std::to_string(visible) +
                          " on, and it has freed all up to " + std::to_string(last));
    }
  return {};
}

/// Drops tokens of the leaf's own.
void dropOwn(Cache::State &s, int32_t index, int32_t tokens) {
  Node &node = s.at(index);
  node.tokens -= tokens;
  node.frontier = node.end();
  for (size_t c = 0; c < s.classCount(); ++c) {
    Run &run = node.runs[c];
    const int32_t pages = s.pagesFor(node.tokens);
    if (pages <= s.sinkPages(node, c))
      run.gap = 0; // the freed pages are after the end
    const auto first = run.pages.begin() + (pages - run.gap);
    for (auto page = first; page != run.pages.end(); ++page)
      s.pools[c].assign(*page, {index, -1});
    run.spare.insert(run.spare.end(), first, run.pages.end());
    run.pages.erase(first, run.pages.end());
    if (node.tokens % s.options.pageTokens)
      s.pools[c].reuse(run.pages.back()); // plans made before read tokens that the page no longer holds
    s.trimSpares(index, c, s.ringRoom(node, c));
  }
  s.updateHorizon(index);
  s.sweepUp(index);
}

/// The leaf leaves the joint that it shares: it keeps sharing the joint's whole pages before the end, and
/// copies the page that contains the end.
Movement leaveJoint(Cache::State &s, int32_t index, int32_t joint, int32_t tokens) {
  const int32_t tail = tokens % s.options.pageTokens, split = tokens - tail;
  std::vector<int32_t> source;
  for (size_t c = 0; c < s.classCount() && tail; ++c)
    source.push_back(s.pageOf(s.at(joint), c, split));
  const int32_t before = s.at(index).parent;
  s.unlink(index);
  if (split)
    s.split(joint, split);
  const int32_t parent = s.at(joint).parent;
  s.link(index, parent, s.at(joint).next);

  Node &node = s.at(index);
  node.pos0 = s.at(joint).pos0;
  node.tokens = tail;
  node.frontier = node.end();
  Movement movement;
  for (size_t c = 0; c < s.classCount(); ++c) {
    Run &run = node.runs[c];
    run.spare.insert(run.spare.end(), run.pages.begin(), run.pages.end());
    run.pages.clear();
    run.gap = 0;
    s.trimSpares(index, c, 0);
    if (tail) {
      run.pages.push_back(s.takePage(index, c, 0));
      movement.copies.push_back({static_cast<int32_t>(c), {source[c], 0}, {run.pages.back(), 0}, tail});
    }
  }
  s.updateHorizon(index);
  s.updateHorizon(parent);
  s.tidy(before);
  return movement;
}

} // namespace

Result<Movement> Cache::truncate(NodeId leaf, int32_t tokens) {
  State &s = *state_;
  const Doing what{"truncation of ", leaf, tokens, "from "};
  if (tokens < 1)
    return inputError(what + ": expected at least 1");
  Result<int32_t> found = s.find(leaf);
  if (!found)
    return inputError(what + ": " + found.error().message);
  const int32_t index = *found;
  if (Status status = s.checkGrowth(s.at(index), what, 0); !status)
    return status.error();
  if (!s.at(index).isLeaf())
    return inputError(what + ": it has children (" + nodeText(s.idOf(s.at(index).firstChild)) +
                      "), which see its tokens: truncate those, or prune them");
  // The node that holds the last remaining token; joints belong to no user.
  int32_t node = index;
  const int32_t end = s.at(index).end() - tokens;
  while (end < s.at(node).pos0 && s.at(s.at(node).parent).joint)
    node = s.at(node).parent;
  if (end < s.at(node).pos0) {
    const std::string own = std::to_string(s.at(index).end() - s.at(node).pos0) + " tokens";
    const int32_t parent = s.at(node).parent;
    return inputError(
        what + ": it has " + own +
        (parent == ground ? "" : " behind " + nodeText(s.idOf(parent)) + ", which was branched"));
  }
  if (Status status = checkKept(s, index, end, what); !status)
    return status.error();
  Movement movement;
  ++s.shape;
  if (node == index) {
    dropOwn(s, index, tokens);
  } else {
    const int32_t kept = end - s.at(node).pos0;
    for (size_t c = 0; c < s.classCount() && kept % s.options.pageTokens; ++c) {
      const Run &run = s.at(index).runs[c];
      const int64_t left = s.pools[c].left() + std::ssize(run.pages) + std::ssize(run.spare);
      if (left < 1)
        return s.exhausted(what.text(), c, 1, left);
    }
    movement = leaveJoint(s, index, node, kept);
  }
  s.log->note(index, NodeLog::Change::Shrank);
  s.checkInDebugBuilds();
  return movement;
}

} // namespace attn::rt
