//===- Mirror.h - A cache beside a model that shares nothing ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every token has a number, and the model of a node is the list of all numbers on its
// path, copied when a node is made from another. Memory holds the numbers; slots that
// the cache returns must lead to the model's numbers.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TEST_RUNTIME_CACHE_MIRROR_H
#define ATTN_TEST_RUNTIME_CACHE_MIRROR_H

#include "Fuzz.h"
#include "attn_rt/cache/CacheMemory.h"

#include <functional>
#include <map>

namespace attn::rt::test {

class Mirror {
public:
  struct Node {
    std::vector<uint64_t> path; ///< numbers of the tokens from the root on
    int32_t frontier = 0;
    bool evicted = false;
    std::vector<uint64_t> draft; ///< as given to speculate
    std::vector<int32_t> draftParents;
  };

  explicit Mirror(CacheOptions options, int32_t layers = 2);

  Cache cache;
  /// Called with every movement, and the numbers of its new tokens.
  std::function<void(const Movement &, const std::vector<uint64_t> &)> watch;
  std::map<std::pair<int32_t, uint32_t>, Node> nodes; ///< known to the user, by index and generation

  NodeId createRoot();
  /// Each changes the cache and the model alike. A refusal must leave the cache unchanged, and is returned.
  Status apply(const CacheStep &step, std::vector<NodeId> *children = nullptr);
  Status append(NodeId node, int32_t tokens) { return apply({{}, {{node, tokens}}, {}}); }
  Result<NodeId> fork(NodeId leaf);
  Status truncate(NodeId leaf, int32_t tokens);
  Status evict(NodeId node);
  Status speculate(NodeId leaf, const std::vector<int32_t> &parents);
  Status commit(NodeId leaf, int32_t token);

  /// Checks invariants, and the numbers in memory along every path and in every draft.
  void verify();
  /// Everything that can be queried of the cache, as text.
  std::string describe() const;

  static NodeId idOf(const std::pair<int32_t, uint32_t> &key) { return {key.first, key.second}; }
  Node &at(NodeId node) { return nodes.at({node.index, node.generation}); }
  NodeId pick(Rng &rng) const;
  /// The number that memory holds in a slot, in every layer; 0 if layers disagree.
  uint64_t numberAt(int32_t headClass, Place place) const;

private:
  int32_t layers_;
  uint64_t lastNumber_ = 0;
  std::vector<std::vector<uint64_t>> memory_; ///< by class
  uint64_t stored(uint64_t number, int32_t headClass, int32_t layer) const {
    return number << 8 | static_cast<uint64_t>(headClass << 4 | layer);
  }
  void execute(const Movement &movement, const std::vector<uint64_t> &numbers);
  template <typename F> auto unchangedIfRefused(F &&change);
};

/// A tree of up to `most` tokens, in an order in which children may come before parents.
std::vector<int32_t> randomTree(Rng &rng, size_t most);
/// One to three classes, the first of which keeps everything.
CacheOptions randomOptions(Rng &rng);
/// One of the above operations, refused or not.
Status randomOperation(Mirror &m, Rng &rng);

} // namespace attn::rt::test

#endif
