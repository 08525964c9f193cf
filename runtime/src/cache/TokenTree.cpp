//===- TokenTree.cpp - Speculated tokens, depth first ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/TokenTree.h"

#include <algorithm>
#include <map>

namespace attn::rt {

namespace {

/// The index of a parent in a list by parent, in which the sequence (-1) is first.
size_t after(int32_t parent) { return static_cast<size_t>(int64_t{parent} + 1); }

std::string tokenText(size_t token) { return "token " + std::to_string(token); }

Status checkParents(std::span<const int32_t> parents) {
  if (parents.empty() || parents.size() > maxTreeTokens)
    return inputError("token tree: expected 1 to " + std::to_string(maxTreeTokens) + " tokens, got " +
                      std::to_string(parents.size()));
  for (size_t t = 0; t < parents.size(); ++t)
    if (parents[t] < -1 || parents[t] >= static_cast<int64_t>(parents.size()))
      return inputError("token tree: " + tokenText(t) + " is an orphan: expected -1 or one of " +
                        std::to_string(parents.size()) + " tokens as its parent, got " +
                        std::to_string(parents[t]));
  return {};
}

/// Some token was not reached from a root, so following its parents never ends: the first token met twice is
/// on the cycle.
Error cycleError(std::span<const int32_t> parents, size_t lost) {
  std::vector<bool> met(parents.size());
  while (!met[lost]) {
    met[lost] = true;
    lost = static_cast<size_t>(parents[lost]);
  }
  return inputError("token tree: " + tokenText(lost) + " is its own ancestor: its parents form a cycle");
}

std::string pathText(const std::vector<int32_t> &path) {
  std::string text = "[";
  for (size_t i = 0; i < path.size() && i < 16; ++i)
    text += (i ? ", " : "") + std::to_string(path[i]);
  return text + (path.size() > 16 ? ", …]" : "]");
}

} // namespace

Result<TokenTree> TokenTree::fromParents(std::span<const int32_t> parents) {
  if (Status status = checkParents(parents); !status)
    return status.error();
  const size_t count = parents.size();
  // The children of each token, those of the sequence first, as one list with offsets.
  std::vector<int32_t> offsets(count + 2), children(count);
  for (int32_t parent : parents)
    ++offsets[after(parent) + 1];
  for (size_t i = 1; i < offsets.size(); ++i)
    offsets[i] += offsets[i - 1];
  std::vector<int32_t> next(offsets.begin(), offsets.end() - 1);
  for (size_t t = 0; t < count; ++t)
    children[static_cast<size_t>(next[after(parents[t])]++)] = static_cast<int32_t>(t);

  TokenTree tree;
  tree.place_.assign(count, -1);
  std::vector<int32_t> open;
  const auto pushChildren = [&](int32_t token) {
    const size_t of = after(token);
    for (int32_t i = offsets[of + 1]; i-- > offsets[of];)
      open.push_back(children[static_cast<size_t>(i)]);
  };
  pushChildren(-1);
  while (!open.empty()) {
    const int32_t token = open.back();
    const int32_t parent = parents[static_cast<size_t>(token)];
    open.pop_back();
    tree.place_[static_cast<size_t>(token)] = tree.size();
    tree.order_.push_back(token);
    tree.parent_.push_back(parent < 0 ? -1 : tree.place_[static_cast<size_t>(parent)]);
    tree.depth_.push_back(parent < 0 ? 0 : tree.depth_[static_cast<size_t>(tree.parent_.back())] + 1);
    tree.height_ = std::max(tree.height_, tree.depth_.back() + 1);
    pushChildren(token);
  }
  if (tree.order_.size() != count)
    return cycleError(parents, static_cast<size_t>(std::find(tree.place_.begin(), tree.place_.end(), -1) -
                                                   tree.place_.begin()));
  tree.findChains();
  return tree;
}

void TokenTree::findChains() {
  const size_t count = order_.size();
  std::vector<int32_t> below(count), children(count, 0);
  for (size_t d = count; d-- > 0;) {
    below[d] = std::max(below[d], static_cast<int32_t>(d) + 1);
    if (parent_[d] >= 0) {
      auto &above = below[static_cast<size_t>(parent_[d])];
      above = std::max(above, below[d]);
      ++children[static_cast<size_t>(parent_[d])];
    }
  }
  for (size_t d = 0; d < count; ++d) {
    if (parent_[d] >= 0 && children[static_cast<size_t>(parent_[d])] == 1)
      ++chains_.back().end; // an only child comes right after its parent
    else
      chains_.push_back({static_cast<int32_t>(d), static_cast<int32_t>(d) + 1, below[d]});
  }
}

Result<TokenTree> TokenTree::fromPaths(const std::vector<std::vector<int32_t>> &paths) {
  std::map<std::vector<int32_t>, int32_t> tokens;
  for (size_t t = 0; t < paths.size(); ++t) {
    const std::vector<int32_t> &path = paths[t];
    if (path.empty() || std::any_of(path.begin(), path.end(), [](int32_t child) { return child < 0; }))
      return inputError("token tree: " + tokenText(t) + ": expected a path of child numbers, got " +
                        pathText(path));
    if (!tokens.emplace(path, static_cast<int32_t>(t)).second)
      return inputError("token tree: " + tokenText(t) + ": the path " + pathText(path) + " is given twice");
  }
  std::vector<int32_t> parents(paths.size(), -1);
  for (size_t t = 0; t < paths.size(); ++t) {
    if (paths[t].size() == 1)
      continue;
    const std::vector<int32_t> before(paths[t].begin(), paths[t].end() - 1);
    const auto found = tokens.find(before);
    if (found == tokens.end())
      return inputError("token tree: " + tokenText(t) + " is an orphan: the path " + pathText(paths[t]) +
                        " goes through " + pathText(before) + ", which is no token");
    parents[t] = found->second;
  }
  return fromParents(parents);
}

std::vector<int32_t> TokenTree::pathTo(int32_t token) const {
  std::vector<int32_t> path;
  for (int32_t d = place_[static_cast<size_t>(token)]; d >= 0; d = parent_[static_cast<size_t>(d)])
    path.push_back(d);
  std::reverse(path.begin(), path.end());
  return path;
}

} // namespace attn::rt
