//===- Fork.cpp - A leaf becomes two, or is evicted -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <algorithm>

namespace attn::rt {

Result<Cache::Fork> Cache::fork(NodeId leaf) {
  State &s = *state_;
  const Doing what{"fork of ", leaf};
  Result<int32_t> found = s.find(leaf);
  if (!found)
    return inputError(what + ": " + found.error().message);
  const int32_t index = *found;
  if (Status status = s.checkGrowth(s.at(index), what, 0); !status)
    return status.error();
  if (!s.at(index).isLeaf())
    return inputError(what + ": it has children (" + nodeText(s.idOf(s.at(index).firstChild)) +
                      "): branch it instead");
  const int32_t tail = s.at(index).tokens % s.options.pageTokens, split = s.at(index).tokens - tail;
  for (size_t c = 0; c < s.classCount() && tail; ++c) {
    // A leaf that gets a parent stops being a ring.
    const int64_t left = s.pools[c].left() + (split ? std::ssize(s.at(index).runs[c].spare) : 0);
    if (left < 1)
      return s.exhausted(what.text(), c, 1, left);
  }

  s.at(index).frontier = s.at(index).end();
  if (split)
    s.split(index, split);
  const int32_t parent = s.at(index).parent;
  const int32_t twin = s.addNode(parent, s.at(index).pos0);
  s.unlink(twin);
  s.link(twin, parent, s.at(index).next);
  s.at(twin).tokens = tail;
  s.at(twin).frontier = s.at(twin).horizon = s.at(twin).end();
  Fork result{s.idOf(twin), {}};
  for (size_t c = 0; c < s.classCount() && tail; ++c) {
    const int32_t page = s.takePage(twin, c, 0);
    s.at(twin).runs[c].pages.push_back(page);
    result.movement.copies.push_back(
        {static_cast<int32_t>(c), {s.at(index).runs[c].pages.back(), 0}, {page, 0}, tail});
  }
  s.updateHorizon(index);
  s.updateHorizon(parent);
  s.sweepUp(parent == ground ? index : parent);
  s.checkInDebugBuilds();
  return result;
}

Status Cache::evict(NodeId id) {
  State &s = *state_;
  Result<int32_t> index = s.find(id);
  if (!index)
    return inputError("evict: " + index.error().message);
  if (s.at(*index).isLeaf())
    return inputError("evict: nothing is below " + nodeText(id) + ", so no row would ever see it: prune it");
  s.at(*index).evicted = true;
  s.updateHorizon(*index);
  s.sweepUp(*index);
  s.checkInDebugBuilds();
  return {};
}

} // namespace attn::rt
