//===- State.h - What a cache is made of ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every change has two halves. The first only reads: it refuses the change, or makes
// sure that all pages are available. The second cannot fail. So nothing is ever rolled
// back.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_STATE_H
#define ATTN_RT_CACHE_STATE_H

#include "attn_rt/cache/Cache.h"
#include "cache/NodeLog.h"
#include "cache/PagePool.h"

#include <limits>

namespace attn::rt {

/// A node's pages in one class. Page i of the node holds its tokens [i * pageTokens, (i + 1) * pageTokens).
/// In a streaming class, pages [sink, sink + gap) were freed and are not listed.
struct Run {
  std::vector<int32_t> pages;
  int32_t gap = 0;
  std::vector<int32_t> spare; ///< of a ring: kept, without tokens
  /// Pages of the node's tokens, freed ones included.
  int32_t count() const { return static_cast<int32_t>(pages.size()) + gap; }
};

struct Draft {
  TokenTree tree;
  std::vector<int32_t> slots; ///< of each token, depth-first, counted over the draft's pages
  struct Pages {
    std::vector<int32_t> tokens;
    std::vector<int32_t> reserve; ///< pages for the growth of the node at commit
  };
  std::vector<Pages> pages; ///< by class
};

struct Node {
  uint32_t generation = 0;
  bool live = false;
  bool evicted = false; ///< rows come only on nodes below
  bool joint = false;   ///< made by a fork: exists while two nodes share it
  int32_t parent = 0, firstChild = -1, lastChild = -1, previous = -1, next = -1;
  int32_t pos0 = 0, tokens = 0;
  int32_t frontier = 0; ///< position of the first row that can still come on the node itself
  int32_t horizon = 0;  ///< position of the first row that can still come on the node or below it
  uint64_t mark = 0;    ///< see State::newMark
  std::vector<Run> runs;
  std::unique_ptr<Draft> draft;

  int32_t end() const { return pos0 + tokens; }
  bool isLeaf() const { return firstChild < 0; }
};

/// Why a node cannot have so many rows on its tokens; "" if it can.
std::string refuseRows(const Node &node, NodeId id, int32_t rows, bool draft);

/// A change of a node, for messages: text is made only for an error.
struct Doing {
  const char *what;
  NodeId node;
  int64_t tokens = 0;
  const char *preposition = nullptr; ///< null: the message names no tokens
  std::string text() const {
    return what + (preposition ? std::to_string(tokens) + " tokens " + preposition : "") + nodeText(node);
  }
  std::string operator+(const std::string &rest) const { return text() + rest; }
};

inline constexpr int32_t ground = 0; ///< the index above all roots
inline constexpr int32_t neverSeen = std::numeric_limits<int32_t>::max();

struct Cache::State {
  CacheOptions options;
  std::vector<PagePool> pools;
  std::vector<Node> nodes = std::vector<Node>(1);
  std::vector<int32_t> freeNodes;
  const std::shared_ptr<NodeLog> log = std::make_shared<NodeLog>();
  int64_t live = 0;
  bool anyStreaming = false;
  uint64_t lastMark = 0;
  const uint64_t serial = newSerial(); ///< unique among all caches; not 0
  uint64_t shape = 0;                  ///< changes with everything except tokens at the end of leaves

  //===--- Nodes (Nodes.cpp) ----------------------------------------------===//
  Node &at(int32_t index) { return nodes[static_cast<size_t>(index)]; }
  const Node &at(int32_t index) const { return nodes[static_cast<size_t>(index)]; }
  NodeId idOf(int32_t index) const { return {index, at(index).generation}; }
  bool lives(NodeId id) const {
    return id.index > ground && static_cast<size_t>(id.index) < nodes.size() && at(id.index).live &&
           at(id.index).generation == id.generation;
  }
  /// The index of a live node; an error says why there is none.
  Result<int32_t> find(NodeId id) const {
    if (lives(id))
      return id.index;
    return whyNone(id);
  }
  Error whyNone(NodeId id) const;
  int32_t addNode(int32_t parent, int32_t pos0);            ///< last among its siblings
  void link(int32_t index, int32_t parent, int32_t before); ///< before = -1: last
  void unlink(int32_t index);
  /// Frees all of its pages and its index; it must be unlinked or about to lose its parent.
  void releaseNode(int32_t index);
  uint64_t newMark() { return ++lastMark; }
  /// Collects the node at `index` and all nodes below it, parents first.
  void collectSubtree(int32_t index, std::vector<int32_t> &out) const;
  /// Checks the demands of append, branch, fork and speculate on a node, and that positions stay within 31
  /// bits.
  Status checkGrowth(const Node &node, const Doing &what, int64_t tokens) const {
    if (!node.draft && !node.evicted && node.end() + tokens <= std::numeric_limits<int32_t>::max())
      return {};
    return whyNoGrowth(node, what, tokens);
  }
  Error whyNoGrowth(const Node &node, const Doing &what, int64_t tokens) const;

  //===--- Pages (Pages.cpp) ----------------------------------------------===//
  size_t classCount() const { return pools.size(); }
  const CacheClass &classOf(size_t c) const { return options.classes[c]; }
  int32_t pagesFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + options.pageTokens - 1) / options.pageTokens);
  }
  /// Free slots of its last page. Does not divide: every append to every node calls it.
  int32_t roomOf(const Node &node, size_t c) const {
    return static_cast<int32_t>(int64_t{node.runs[c].count()} * options.pageTokens - node.tokens);
  }
  /// Pages of the node that hold sink tokens of its sequence.
  int32_t sinkPages(const Node &node, size_t c) const;
  int32_t pageOf(const Node &node, size_t c, int32_t token) const;
  /// Pages that no future row sees.
  int32_t unseenPages(const Node &node, size_t c) const;
  bool isRing(const Node &node, size_t c) const {
    return classOf(c).streaming() && node.parent == ground && node.isLeaf();
  }
  /// Pages beyond the sink's that a ring keeps, and how many of them are left.
  int32_t ringPages(size_t c) const;
  int32_t ringRoom(const Node &node, size_t c) const;
  /// Takes a page for the node, from its ring or the pool.
  int32_t takePage(int32_t index, size_t c, int32_t page);
  void dropUnseen(int32_t index, size_t c);               ///< moves them to the node's spares
  void trimSpares(int32_t index, size_t c, int32_t keep); ///< moves them to the pool
  /// Drops unseen pages and trims spares, as the ring allows, in every streaming class.
  void sweep(int32_t index);
  /// Sweeps the node and the evicted nodes above it.
  void sweepUp(int32_t index);
  /// Recomputes the horizon of the node and of nodes above that depend on it.
  void updateHorizon(int32_t index);
  int32_t computeHorizon(int32_t index) const;
  Error exhausted(const std::string &what, size_t c, int64_t asked, int64_t left) const;
  /// Appends pages for the tokens and lists the tokens' slots in the movement; `row` counts them.
  void grow(int32_t index, int32_t tokens, int32_t row, Movement &movement);
  /// Inserts a joint above a node, which keeps only its tokens from `tokens` on (the begin of a page).
  void split(int32_t index, int32_t tokens);
  /// Removes joints that are no longer shared, from `index` upwards.
  void tidy(int32_t index);
  void absorb(int32_t joint);

  void checkInDebugBuilds() const;
  static uint64_t newSerial();
};

/// Cache::checkInvariants.
Status checkState(const Cache::State &state);

} // namespace attn::rt

#endif
