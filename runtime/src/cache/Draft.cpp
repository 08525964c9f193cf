//===- Draft.cpp - Speculated tokens of a leaf ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// Lays chains out one after another, each from a multiple of `align` on. Returns the number of slots used.
int32_t layOut(const TokenTree &tree, int32_t align, std::vector<int32_t> &slots) {
  slots.resize(static_cast<size_t>(tree.size()));
  int32_t next = 0;
  for (const TokenTree::Chain &chain : tree.chains()) {
    next = (next + align - 1) / align * align;
    for (int32_t d = chain.begin; d < chain.end; ++d)
      slots[static_cast<size_t>(d)] = next++;
  }
  return next;
}

bool follows(Place a, Place b, int32_t distance) { return a.page == b.page && a.slot + distance == b.slot; }

/// The slot of token `d` (depth-first) of the draft in a class.
Place placeOf(const Cache::State &s, const Draft &draft, size_t c, int32_t d) {
  const int32_t slot = draft.slots[static_cast<size_t>(d)];
  return {draft.pages[c].tokens[static_cast<size_t>(slot / s.options.pageTokens)],
          slot % s.options.pageTokens};
}

} // namespace

Result<Movement> Cache::speculate(NodeId leaf, std::span<const int32_t> parents) {
  State &s = *state_;
  const Doing what{"draft of ", leaf, std::ssize(parents), "for "};
  Result<int32_t> found = s.find(leaf);
  if (!found)
    return inputError(what + ": " + found.error().message);
  const int32_t index = *found;
  if (!s.at(index).isLeaf())
    return inputError(what + ": expected a leaf, but it has children (" +
                      nodeText(s.idOf(s.at(index).firstChild)) + ")");
  Result<TokenTree> tree = TokenTree::fromParents(parents);
  if (!tree)
    return inputError(what + ": " + tree.error().message);
  if (Status status = s.checkGrowth(s.at(index), what, tree->height()); !status)
    return status.error();
  std::vector<int32_t> slots;
  const int32_t tokenPages = s.pagesFor(layOut(*tree, s.options.draftPage, slots));
  const int32_t tokens = s.at(index).tokens;
  const int32_t reserve = s.pagesFor(int64_t{tokens} + tree->height()) - s.pagesFor(tokens);
  for (size_t c = 0; c < s.classCount(); ++c) {
    const int64_t left = s.pools[c].left() + std::ssize(s.at(index).runs[c].spare);
    if (tokenPages + reserve > left)
      return s.exhausted(what.text(), c, tokenPages + reserve, left);
  }

  auto draft = std::make_unique<Draft>(Draft{std::move(*tree), std::move(slots), {}});
  draft->pages.resize(s.classCount());
  Movement movement;
  movement.rows = draft->tree.size();
  for (size_t c = 0; c < s.classCount(); ++c) {
    for (int32_t i = 0; i < reserve; ++i)
      draft->pages[c].reserve.push_back(s.takePage(index, c, -1));
    for (int32_t i = 0; i < tokenPages; ++i)
      draft->pages[c].tokens.push_back(s.takePage(index, c, -1));
    const size_t first = movement.writes.size();
    for (int32_t t = 0; t < draft->tree.size(); ++t) {
      const Place to = placeOf(s, *draft, c, draft->tree.place()[static_cast<size_t>(t)]);
      if (movement.writes.size() > first &&
          follows(movement.writes.back().to, to, movement.writes.back().tokens))
        ++movement.writes.back().tokens;
      else
        movement.writes.push_back({static_cast<int32_t>(c), t, to, 1});
    }
  }
  s.at(index).draft = std::move(draft);
  ++s.shape;
  s.checkInDebugBuilds();
  return movement;
}

Result<Movement> Cache::commit(NodeId leaf, int32_t token) {
  State &s = *state_;
  const Doing what{"commit to ", leaf};
  Result<int32_t> found = s.find(leaf);
  if (!found)
    return inputError(what + ": " + found.error().message);
  const int32_t index = *found;
  Node &node = s.at(index);
  if (!node.draft)
    return inputError(what + ": it has no draft");
  if (token < -1 || token >= node.draft->tree.size())
    return inputError(what + ": expected -1 or one of the draft's " +
                      std::to_string(node.draft->tree.size()) + " tokens, got " + std::to_string(token));

  const std::unique_ptr<Draft> draft = std::move(node.draft);
  const std::vector<int32_t> path = token < 0 ? std::vector<int32_t>() : draft->tree.pathTo(token);
  const int32_t before = node.tokens;
  node.tokens += static_cast<int32_t>(path.size());
  node.frontier = node.end();
  ++s.shape;
  s.log->note(index, path.empty() ? NodeLog::Change::Shrank : NodeLog::Change::Grew);
  Movement movement;
  for (size_t c = 0; c < s.classCount(); ++c) {
    Draft::Pages &pages = draft->pages[c];
    Run &run = node.runs[c];
    for (int32_t page = s.pagesFor(before); page < s.pagesFor(node.tokens); ++page) {
      s.pools[c].assign(pages.reserve.back(), {index, page});
      run.pages.push_back(pages.reserve.back());
      pages.reserve.pop_back();
    }
    const size_t first = movement.copies.size();
    for (size_t i = 0; i < path.size(); ++i) {
      const int32_t at = before + static_cast<int32_t>(i);
      const Place from = placeOf(s, *draft, c, path[i]);
      const Place to{s.pageOf(node, c, at), at % s.options.pageTokens};
      if (movement.copies.size() > first) {
        Movement::Copy &last = movement.copies.back();
        if (follows(last.from, from, last.tokens) && follows(last.to, to, last.tokens)) {
          ++last.tokens;
          continue;
        }
      }
      movement.copies.push_back({static_cast<int32_t>(c), from, to, 1});
    }
    // A dropped draft leaves the pool as it was before: the page that was taken first will be taken first
    // again.
    for (const std::vector<int32_t> *rest : {&pages.reserve, &pages.tokens})
      run.spare.insert(run.spare.end(), rest->begin(), rest->end());
    s.trimSpares(index, c, s.ringRoom(node, c));
  }
  s.updateHorizon(index);
  s.sweepUp(index);
  s.checkInDebugBuilds();
  return movement;
}

} // namespace attn::rt
