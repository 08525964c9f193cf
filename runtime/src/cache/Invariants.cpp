//===- Invariants.cpp - What is true of every cache -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// Walks everything once and recomputes every derived value.
class Checker {
public:
  explicit Checker(const Cache::State &state) : s(state) {}

  Status check() {
    if (!checkLinks() || !checkNodes() || !checkPages())
      return Error{ErrorKind::Check, "cache: " + problem_};
    return {};
  }

private:
  const Cache::State &s;
  std::string problem_;
  std::vector<int32_t> reached_; // parents first

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  std::string text(int32_t index) const { return nodeText(s.idOf(index)); }

  bool checkLinks() {
    std::vector<bool> met(s.nodes.size());
    met[ground] = true;
    reached_.push_back(ground);
    for (size_t next = 0; next < reached_.size(); ++next) {
      const int32_t index = reached_[next];
      int32_t previous = -1;
      for (int32_t child = s.at(index).firstChild; child >= 0; child = s.at(child).next) {
        if (met[static_cast<size_t>(child)])
          return fail(text(child) + " is met twice below " + text(index) + ": a cycle, or two parents");
        met[static_cast<size_t>(child)] = true;
        if (!s.at(child).live)
          return fail(text(index) + " has a child that was pruned, index " + std::to_string(child));
        if (s.at(child).parent != index || s.at(child).previous != previous)
          return fail(text(child) + " is a child of " + text(index) + " whose links say otherwise");
        previous = child;
        reached_.push_back(child);
      }
      if (s.at(index).lastChild != previous)
        return fail("the last child of " + text(index) + " is another");
    }
    for (size_t index = 1; index < s.nodes.size(); ++index)
      if (s.nodes[index].live && !met[index])
        return fail(text(static_cast<int32_t>(index)) + " is an orphan: no root is above it");
    if (s.live != std::ssize(reached_) - 1 || s.live + std::ssize(s.freeNodes) != std::ssize(s.nodes) - 1)
      return fail(std::to_string(s.live) + " nodes are counted, " + std::to_string(reached_.size() - 1) +
                  " are there");
    reached_.erase(reached_.begin());
    return true;
  }

  bool checkNodes() {
    for (int32_t index : reached_) {
      const Node &node = s.at(index);
      if (const int32_t begin = node.parent == ground ? 0 : s.at(node.parent).end(); node.pos0 != begin)
        return fail(text(index) + " begins at position " + std::to_string(node.pos0) +
                    ", its parent ends at " + std::to_string(begin));
      if (node.tokens < 0 || node.frontier < node.pos0 || node.frontier > node.end())
        if (!node.joint)
          return fail(text(index) + " has its frontier at " + std::to_string(node.frontier) +
                      ", outside of [" + std::to_string(node.pos0) + ", " + std::to_string(node.end()) + "]");
      if (s.anyStreaming && node.horizon != s.computeHorizon(index))
        return fail(text(index) + " has its horizon at " + std::to_string(node.horizon) + ", expected " +
                    std::to_string(s.computeHorizon(index)));
      if (node.joint && (!node.evicted || node.firstChild == node.lastChild || node.tokens == 0 ||
                         node.tokens % s.options.pageTokens != 0))
        return fail(text(index) + " is a joint of " + std::to_string(node.tokens) +
                    " tokens: expected whole pages and two children at least");
      if (node.draft && (!node.isLeaf() || node.evicted))
        return fail(text(index) + " has a draft, but is no leaf");
      for (size_t c = 0; c < s.classCount(); ++c)
        if (!checkRun(index, c))
          return false;
    }
    return true;
  }

  bool checkRun(int32_t index, size_t c) {
    const Node &node = s.at(index);
    const Run &run = node.runs[c];
    const std::string where = text(index) + ", class '" + s.classOf(c).name + "': ";
    if (std::ssize(run.pages) != s.pagesFor(node.tokens) - run.gap || run.gap < 0)
      return fail(where + std::to_string(run.pages.size()) + " pages are kept and " +
                  std::to_string(run.gap) + " freed, but " + std::to_string(node.tokens) + " tokens take " +
                  std::to_string(s.pagesFor(node.tokens)));
    if (run.gap && node.horizon != neverSeen) {
      // The last token that was freed, and the first visible token after the sink.
      const int64_t last = node.pos0 + int64_t{s.sinkPages(node, c) + run.gap} * s.options.pageTokens - 1;
      if (const int64_t visible = int64_t{node.horizon} - s.classOf(c).recent + 1;
          !s.classOf(c).streaming() || last >= visible)
        return fail(where + "position " + std::to_string(last) + " was freed, but is visible");
    }
    if (std::ssize(run.spare) > s.ringRoom(node, c))
      return fail(where + std::to_string(run.spare.size()) + " pages are kept without tokens, room for " +
                  std::to_string(s.ringRoom(node, c)));
    return true;
  }

  bool checkPages() {
    for (size_t c = 0; c < s.classCount(); ++c) {
      std::vector<int32_t> holder(static_cast<size_t>(s.pools[c].size()), -1);
      int64_t held = 0;
      std::string booked;
      const auto hold = [&](int32_t page, int32_t index, int32_t ofNode) {
        const std::string where = "class '" + s.classOf(c).name + "': page " + std::to_string(page);
        if (page < 0 || page >= s.pools[c].size())
          return fail(where + " of " + text(index) + " is none of " + std::to_string(s.pools[c].size()));
        int32_t &other = holder[static_cast<size_t>(page)];
        if (other >= 0)
          return fail(where + " is in two places: " + (other ? text(other) : "the free pages") + " and " +
                      (index ? text(index) : "the free pages"));
        other = index;
        ++held;
        const PagePool::Owner expected = index ? PagePool::Owner{index, ofNode} : PagePool::Owner();
        // A page in two places is the worse mistake, and causes this one.
        if (s.pools[c].owner(page) != expected && booked.empty())
          booked = where + " of " + (index ? text(index) : "the free pages") + " is booked on index " +
                   std::to_string(s.pools[c].owner(page).node) + " as its page " +
                   std::to_string(s.pools[c].owner(page).page);
        return true;
      };
      const auto holdAll = [&](const std::vector<int32_t> &pages, int32_t index) {
        return std::all_of(pages.begin(), pages.end(), [&](int32_t page) { return hold(page, index, -1); });
      };
      if (!holdAll(s.pools[c].freePages(), ground))
        return false;
      for (int32_t index : reached_) {
        const Node &node = s.at(index);
        const Run &run = node.runs[c];
        const int32_t sink = s.sinkPages(node, c);
        for (int32_t i = 0; i < std::ssize(run.pages); ++i)
          if (!hold(run.pages[static_cast<size_t>(i)], index, i < sink ? i : i + run.gap))
            return false;
        if (!holdAll(run.spare, index) || (node.draft && (!holdAll(node.draft->pages[c].tokens, index) ||
                                                          !holdAll(node.draft->pages[c].reserve, index))))
          return false;
      }
      if (!booked.empty())
        return fail(std::move(booked));
      if (held != s.pools[c].size())
        return fail("class '" + s.classOf(c).name + "': " + std::to_string(s.pools[c].size() - held) +
                    " pages are nowhere");
    }
    return true;
  }
};

} // namespace

Status checkState(const Cache::State &state) { return Checker(state).check(); }

} // namespace attn::rt
