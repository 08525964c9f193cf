//===- Step.cpp - Several changes, all or none ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <algorithm>

namespace attn::rt {

namespace {

/// One call of apply: `check` only reads, `execute` cannot fail.
class Stepper {
public:
  Stepper(Cache::State &state, const CacheStep &step)
      : s(state), step_(step), asked_(s.classCount()), given_(s.classCount()), removed_(s.newMark()),
        target_(s.newMark()), above_(s.newMark()) {}

  Status check();
  CacheChange execute();

private:
  struct Target {
    int32_t index, tokens, children; ///< children = 0: an append
  };
  Cache::State &s;
  const CacheStep &step_;
  std::vector<int64_t> asked_, given_; ///< by class: pages taken from the pool, and returned to it
  uint64_t removed_, target_, above_;  ///< marks
  std::vector<int32_t> prunedRoots_, removedNodes_, evicted_;
  std::vector<Target> targets_;
  std::vector<std::pair<int32_t, int32_t>> frontiers_; ///< positions before the change

  Status checkPrune(NodeId id);
  Status checkTarget(NodeId id, const Doing &what, int64_t tokens, bool append);
  void advance();
  void retreat();
  Status checkPages();
  std::string text() const;

  /// How a node that grows by pages uses its own pages before it takes some from the pool.
  struct Balance {
    int32_t used, kept;
    int64_t fromPool, toPool;
  };
  Balance balance(const Target &target, size_t c) const;
};

Status Stepper::checkPrune(NodeId id) {
  Result<int32_t> index = s.find(id);
  if (!index)
    return inputError("prune: " + index.error().message);
  if (s.at(*index).mark == removed_)
    return {};
  prunedRoots_.push_back(*index);
  size_t next = removedNodes_.size();
  removedNodes_.push_back(*index);
  for (; next < removedNodes_.size(); ++next) {
    Node &node = s.at(removedNodes_[next]);
    node.mark = removed_;
    for (int32_t child = node.firstChild; child >= 0; child = s.at(child).next)
      if (s.at(child).mark != removed_)
        removedNodes_.push_back(child);
  }
  return {};
}

Status Stepper::checkTarget(NodeId id, const Doing &what, int64_t tokens, bool append) {
  Result<int32_t> index = s.find(id);
  if (!index)
    return inputError(what + ": " + index.error().message);
  Node &node = s.at(*index);
  if (node.mark == removed_)
    return inputError(what + ": the same step prunes it");
  if (node.mark == target_)
    return inputError(what + ": the step changes it twice");
  if (Status status = s.checkGrowth(node, what, tokens); !status)
    return status;
  if (append)
    for (int32_t child = node.firstChild; child >= 0; child = s.at(child).next)
      if (s.at(child).mark != removed_)
        return inputError(what + ": it has children (" + nodeText(s.idOf(child)) +
                          "), which would see the new tokens: append to them, or branch it again");
  node.mark = target_;
  return {};
}

Status Stepper::check() {
  for (NodeId id : step_.prune)
    if (Status status = checkPrune(id); !status)
      return status;
  int64_t rows = 0;
  targets_.reserve(step_.append.size() + step_.branch.size());
  for (const CacheStep::Append &append : step_.append) {
    const Doing what{"append of ", append.node, append.tokens, "to "};
    if (append.tokens < 1)
      return inputError(what + ": expected at least 1");
    if (Status status = checkTarget(append.node, what, append.tokens, true); !status)
      return status;
    targets_.emplace_back(append.node.index, append.tokens, 0);
    rows += append.tokens;
  }
  for (const CacheStep::Branch &branch : step_.branch) {
    const Doing what{"branch of ", branch.node};
    if (branch.children < 1 || branch.children > maxChildren || branch.tokens < 0)
      return inputError(what + ": expected 1 to " + std::to_string(maxChildren) +
                        " children and at least 0 tokens, got " + std::to_string(branch.children) + " and " +
                        std::to_string(branch.tokens));
    if (Status status = checkTarget(branch.node, what, branch.tokens, false); !status)
      return status;
    targets_.emplace_back(branch.node.index, branch.tokens, branch.children);
    rows += int64_t{branch.tokens} * branch.children;
  }
  if (rows > std::numeric_limits<int32_t>::max())
    return inputError(text() + ": " + std::to_string(rows) + " new tokens exceed " +
                      std::to_string(std::numeric_limits<int32_t>::max()));
  advance();
  Status status = checkPages();
  if (!status)
    retreat();
  return status;
}

/// Moves the frontier: no row comes on the nodes' present tokens any more.
void Stepper::advance() {
  frontiers_.reserve(targets_.size());
  for (const Target &target : targets_) {
    Node &node = s.at(target.index);
    frontiers_.emplace_back(target.index, node.frontier);
    node.frontier = node.end();
    s.updateHorizon(target.index);
  }
}

void Stepper::retreat() {
  for (const auto &[index, frontier] : frontiers_) {
    s.at(index).frontier = frontier;
    s.updateHorizon(index);
  }
}

Stepper::Balance Stepper::balance(const Target &target, size_t c) const {
  const Node &node = s.at(target.index);
  const Run &run = node.runs[c];
  const int32_t dropped = s.unseenPages(node, c);
  const auto own = static_cast<int32_t>(std::ssize(run.spare)) + dropped;
  if (target.children)
    return {0, 0, int64_t{target.children} * s.pagesFor(target.tokens), own};
  const int32_t beyond = target.tokens - s.roomOf(node, c);
  const int32_t needed = beyond > 0 ? s.pagesFor(beyond) : 0;
  const int32_t used = std::min(own, needed);
  // Its children, if any, are pruned: only its parent decides whether it is a ring.
  int32_t kept = 0;
  if (s.classOf(c).streaming() && node.parent == ground) {
    const auto held = static_cast<int32_t>(std::ssize(run.pages)) - dropped + needed;
    kept = std::clamp(s.ringPages(c) - std::max(0, held - s.sinkPages(node, c)), 0, own - used);
  }
  return {used, kept, needed - used, own - used - kept};
}

Status Stepper::checkPages() {
  for (const Target &target : targets_)
    for (size_t c = 0; c < s.classCount(); ++c) {
      const Balance b = balance(target, c);
      asked_[c] += b.fromPool;
      given_[c] += b.toPool;
    }
  if (s.anyStreaming)
    for (const Target &target : targets_)
      for (int32_t index = s.at(target.index).parent;
           index != ground && s.at(index).evicted && s.at(index).mark != above_; index = s.at(index).parent) {
        s.at(index).mark = above_;
        evicted_.push_back(index);
        for (size_t c = 0; c < s.classCount(); ++c)
          given_[c] += s.unseenPages(s.at(index), c);
      }
  for (size_t c = 0; c < s.classCount(); ++c) {
    for (int32_t index : removedNodes_) {
      const Node &node = s.at(index);
      given_[c] += std::ssize(node.runs[c].pages) + std::ssize(node.runs[c].spare);
      if (node.draft)
        given_[c] += std::ssize(node.draft->pages[c].tokens) + std::ssize(node.draft->pages[c].reserve);
    }
    if (const int64_t left = s.pools[c].left() + given_[c]; asked_[c] > left)
      return s.exhausted(text(), c, asked_[c], left);
  }
  return {};
}

std::string Stepper::text() const {
  if (step_.prune.empty() && step_.append.size() == 1 && step_.branch.empty())
    return Doing{"append of ", step_.append[0].node, step_.append[0].tokens, "to "}.text();
  return "a step of " + std::to_string(step_.prune.size()) + " prunes, " +
         std::to_string(step_.append.size()) + " appends and " + std::to_string(step_.branch.size()) +
         " branches";
}

CacheChange Stepper::execute() {
  std::vector<int32_t> parents;
  for (int32_t index : prunedRoots_) {
    const int32_t parent = s.at(index).parent;
    if (parent == ground || s.at(parent).mark != removed_) {
      s.unlink(index);
      parents.push_back(parent);
    }
  }
  for (int32_t index : removedNodes_)
    s.releaseNode(index);

  // Pages are freed before any page is taken.
  for (int32_t index : evicted_)
    s.sweep(index);
  for (const Target &target : targets_)
    for (size_t c = 0; c < s.classCount(); ++c)
      if (s.classOf(c).streaming()) {
        const Balance b = balance(target, c);
        s.dropUnseen(target.index, c);
        s.trimSpares(target.index, c, b.used + b.kept);
      }
  CacheChange change;
  Movement &movement = change.movement;
  movement.writes.reserve(targets_.size() * s.classCount());
  for (const Target &target : targets_) {
    if (target.children == 0) {
      s.grow(target.index, target.tokens, movement.rows, movement);
      movement.rows += target.tokens;
    }
    for (int32_t i = 0; i < target.children; ++i) {
      const int32_t child = s.addNode(target.index, s.at(target.index).end());
      change.children.push_back(s.idOf(child));
      s.grow(child, target.tokens, movement.rows, movement);
      movement.rows += target.tokens;
    }
  }
  for (int32_t parent : parents)
    if (parent != ground && s.at(parent).live)
      s.tidy(parent);
  return change;
}

} // namespace

Result<CacheChange> Cache::apply(const CacheStep &step) {
  Stepper stepper(*state_, step);
  if (Status status = stepper.check(); !status)
    return status.error();
  CacheChange change = stepper.execute();
  state_->checkInDebugBuilds();
  return change;
}

} // namespace attn::rt
