//===- Pages.cpp - Which pages a node has ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <algorithm>

namespace attn::rt {

int32_t Cache::State::sinkPages(const Node &node, size_t c) const {
  return pagesFor(std::max(0, classOf(c).sink - node.pos0));
}

int32_t Cache::State::pageOf(const Node &node, size_t c, int32_t token) const {
  const Run &run = node.runs[c];
  const int32_t page = token / options.pageTokens;
  return run.pages[static_cast<size_t>(page < sinkPages(node, c) ? page : page - run.gap)];
}

int32_t Cache::State::unseenPages(const Node &node, size_t c) const {
  if (!classOf(c).streaming())
    return 0;
  const int32_t count = pagesFor(node.tokens), first = sinkPages(node, c) + node.runs[c].gap;
  int64_t last = count;
  if (node.horizon != neverSeen) {
    // The row at the horizon sees the tokens after horizon - recent; later rows see fewer of them.
    const int64_t tokens = int64_t{node.horizon} - classOf(c).recent + 1 - node.pos0;
    last = std::min<int64_t>(count, std::max<int64_t>(tokens, 0) / options.pageTokens);
  }
  return static_cast<int32_t>(std::max<int64_t>(0, last - first));
}

/// Between two changes a ring holds the larger of two sets, with tokens across pages in the worst way. The
/// first is what the rows of an append of up to `draft` tokens see, and these tokens. The second is what one
/// row sees, with a draft and room for its accepted tokens.
int32_t Cache::State::ringPages(size_t c) const {
  const CacheClass &info = classOf(c);
  const auto spanned = [&](int64_t tokens) { return tokens > 0 ? pagesFor(tokens - 1) + 1 : 0; };
  const int32_t appended = spanned(int64_t{info.recent} - 1 + std::max(info.draft, 1));
  const int32_t drafted =
      spanned(info.recent) + pagesFor(int64_t{info.draft} * options.draftPage) + pagesFor(info.draft);
  return info.draft ? std::max(appended, drafted) : appended;
}

int32_t Cache::State::ringRoom(const Node &node, size_t c) const {
  if (!isRing(node, c))
    return 0;
  const auto held = static_cast<int32_t>(node.runs[c].pages.size());
  const int32_t ofDraft =
      node.draft
          ? static_cast<int32_t>(node.draft->pages[c].tokens.size() + node.draft->pages[c].reserve.size())
          : 0;
  return std::max(0, ringPages(c) - ofDraft - std::max(0, held - sinkPages(node, c)));
}

int32_t Cache::State::takePage(int32_t index, size_t c, int32_t page) {
  std::vector<int32_t> &spare = at(index).runs[c].spare;
  if (spare.empty())
    return pools[c].take({index, page});
  const int32_t taken = spare.back();
  spare.pop_back();
  pools[c].reuse(taken);
  pools[c].assign(taken, {index, page});
  return taken;
}

void Cache::State::dropUnseen(int32_t index, size_t c) {
  Node &node = at(index);
  Run &run = node.runs[c];
  const int32_t count = unseenPages(node, c);
  const auto first = run.pages.begin() + std::min<int64_t>(sinkPages(node, c), std::ssize(run.pages));
  for (auto page = first; page != first + count; ++page) {
    pools[c].assign(*page, {index, -1});
    run.spare.push_back(*page);
  }
  run.pages.erase(first, first + count);
  run.gap += count;
  shape += count > 0;
}

void Cache::State::trimSpares(int32_t index, size_t c, int32_t keep) {
  std::vector<int32_t> &spare = at(index).runs[c].spare;
  while (std::ssize(spare) > keep) {
    pools[c].give(spare.back());
    spare.pop_back();
  }
}

void Cache::State::sweep(int32_t index) {
  for (size_t c = 0; c < classCount(); ++c)
    if (classOf(c).streaming()) {
      dropUnseen(index, c);
      trimSpares(index, c, ringRoom(at(index), c));
    }
}

void Cache::State::sweepUp(int32_t index) {
  if (!anyStreaming || index == ground)
    return;
  sweep(index);
  for (index = at(index).parent; index != ground && at(index).evicted; index = at(index).parent)
    sweep(index);
}

int32_t Cache::State::computeHorizon(int32_t index) const {
  const Node &node = at(index);
  if (!node.evicted)
    return node.frontier; // no row below comes before this position
  int32_t horizon = neverSeen;
  for (int32_t child = node.firstChild; child >= 0; child = at(child).next)
    horizon = std::min(horizon, at(child).horizon);
  return horizon;
}

void Cache::State::updateHorizon(int32_t index) {
  if (!anyStreaming)
    return;
  for (; index != ground; index = at(index).parent) {
    const int32_t horizon = computeHorizon(index);
    if (horizon == at(index).horizon)
      return;
    at(index).horizon = horizon;
  }
}

Error Cache::State::exhausted(const std::string &what, size_t c, int64_t asked, int64_t left) const {
  return {ErrorKind::Memory, "cache: " + what + ": class '" + classOf(c).name +
                                 "': " + std::to_string(asked) + " pages asked for, " + std::to_string(left) +
                                 " of " + std::to_string(pools[c].size()) + " left"};
}

void Cache::State::grow(int32_t index, int32_t tokens, int32_t row, Movement &movement) {
  Node &node = at(index);
  for (size_t c = 0; c < classCount(); ++c) {
    Run &run = node.runs[c];
    int32_t left = roomOf(node, c);
    for (int32_t token = 0; token < tokens;) {
      if (left == 0) {
        run.pages.push_back(takePage(index, c, run.count()));
        left = options.pageTokens;
      }
      const int32_t count = std::min(tokens - token, left);
      movement.writes.emplace_back(static_cast<int32_t>(c), row + token,
                                   Place{run.pages.back(), options.pageTokens - left}, count);
      token += count;
      left -= count;
    }
  }
  node.tokens += tokens;
  log->note(index, NodeLog::Change::Grew);
}

void Cache::State::split(int32_t index, int32_t tokens) {
  const int32_t joint = addNode(at(index).parent, at(index).pos0);
  Node &above = at(joint), &node = at(index);
  unlink(joint);
  link(joint, node.parent, index);
  unlink(index);
  link(index, joint, -1);
  above.evicted = above.joint = true;
  above.tokens = tokens;
  const int32_t pages = pagesFor(tokens);
  for (size_t c = 0; c < classCount(); ++c) {
    trimSpares(index, c, 0);
    Run &first = above.runs[c], &second = node.runs[c];
    // Pages that no row sees are whole and follow the sink: all of them are on one side.
    first.gap = pages > sinkPages(above, c) ? second.gap : 0;
    second.gap -= first.gap;
    const auto end = second.pages.begin() + (pages - first.gap);
    first.pages.assign(second.pages.begin(), end);
    second.pages.erase(second.pages.begin(), end);
    for (int32_t page : first.pages)
      pools[c].assign(page, {joint, pools[c].owner(page).page});
    for (int32_t page : second.pages)
      pools[c].assign(page, {index, pools[c].owner(page).page - pages});
  }
  node.pos0 += tokens;
  node.tokens -= tokens;
}

/// Removes a joint without children; joins a joint with one child to that child.
void Cache::State::tidy(int32_t index) {
  while (index != ground && at(index).joint && at(index).isLeaf()) {
    const int32_t above = at(index).parent;
    unlink(index);
    releaseNode(index);
    index = above;
  }
  if (index == ground)
    return;
  updateHorizon(index);
  sweepUp(index);
  if (at(index).joint && at(index).firstChild == at(index).lastChild)
    absorb(index);
}

/// Moves the tokens of a joint to its only child. A joint's tokens fill its pages, so the lists are simply
/// joined. If the child has a gap, all pages that the joint has kept are sink pages, since the rows below see
/// no more of the joint than of the child. So one gap is enough.
void Cache::State::absorb(int32_t joint) {
  Node &above = at(joint);
  const int32_t index = above.firstChild;
  Node &node = at(index);
  const int32_t pages = pagesFor(above.tokens);
  for (size_t c = 0; c < classCount(); ++c) {
    Run &first = above.runs[c], &second = node.runs[c];
    const int32_t sinkAbove = std::min(sinkPages(above, c), pages);
    for (int32_t i = 0; i < std::ssize(first.pages); ++i)
      pools[c].assign(first.pages[static_cast<size_t>(i)], {index, i < sinkAbove ? i : i + first.gap});
    for (int32_t page : second.pages)
      pools[c].assign(page, {index, pools[c].owner(page).page + pages});
    first.pages.insert(first.pages.end(), second.pages.begin(), second.pages.end());
    second.pages = std::move(first.pages);
    second.gap += first.gap;
    first.pages.clear();
    first.gap = 0;
  }
  node.pos0 = above.pos0;
  node.tokens += above.tokens;
  unlink(index);
  link(index, above.parent, joint);
  unlink(joint);
  releaseNode(joint);
}

} // namespace attn::rt
