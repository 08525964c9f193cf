//===- Cache.h - A forest of sequences over pages ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Keys and values lie in pages of a pool. A *node* is a run of tokens over pages
// that belong to it alone; its parent's tokens come before its own. A root is a
// sequence; a sequence that was branched is a tree, of any shape:
//
//     prompt ─┬─ thought ─┬─ answer        a row on `answer` sees the tokens of
//             │           └─ answer        answer, thought and prompt: the path
//             └─ thought                   from its node to the root
//
// Only the bookkeeping is here: which page holds which token. What has to move in
// memory is handed back as a list of moves (Movement), to be executed by kernels
// in the order of the calls, or by executeMovement (CacheMemory.h) on a host.
//
// Head classes. The heads of a class keep the same tokens, so they share page
// lists; each class has a pool of its own, and a page of it holds `pageTokens`
// tokens of all its heads. Layers share all of this: page p is page p in every
// layer. A class keeps everything, or is *streaming* (DuoAttention): it keeps the
// first `sink` tokens and what a row that can still come sees of the last
// `recent`. The first such row of a node is at its *frontier*: the first token of
// the last append to it, or its end once it was branched, forked or committed. So
// the rows of an append see all they may, and must be launched before the next
// change to their node. Pages without a visible token go back to the pool at the
// next append, branch, commit or eviction at or below their node. A sequence
// without branches keeps up to recent + draft tokens' worth of them as a ring
// instead: once it has turned, appends and drafts of up to `draft` tokens take no
// page from the pool.
//
// Errors change nothing: whatever a call refuses, the cache is as it was before.
// Exhaustion (ErrorKind::Memory) names the pages asked for and the pages left.
// One thread at a time.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_CACHE_H
#define ATTN_RT_CACHE_CACHE_H

#include "attn_rt/cache/TokenTree.h"

#include <memory>
#include <string>

namespace attn::rt {

/// Names a node for as long as it lives, and never another one.
struct NodeId {
  int32_t index = 0;
  uint32_t generation = 0;
  bool operator==(const NodeId &) const = default;
};
/// "node 7"; "node 7.2" where two nodes before had its place.
std::string nodeText(NodeId node);

struct CacheClass {
  std::string name = "kv";
  int32_t pages = 0; ///< of its pool
  /// Streaming where recent > 0: tokens at distance 0 <= q - k < recent are visible, and the first `sink`.
  int32_t recent = 0, sink = 0;
  int32_t draft = 0; ///< tokens that a ring has room for beyond recent
  bool streaming() const { return recent > 0; }
};

struct CacheOptions {
  int32_t pageTokens = 16;
  /// Chains of a draft start at multiples of this, a divisor of pageTokens. With pageTokens (or 0), drafts
  /// and nodes can be one operand of an attention, and every chain takes a page. With 1, drafts waste no
  /// slot, but are an operand of their own: the same memory as pages of one token.
  int32_t draftPage = 0;
  std::vector<CacheClass> classes = {CacheClass()};
};

/// A slot of a page.
struct Place {
  int32_t page = 0, slot = 0;
  bool operator==(const Place &) const = default;
};

/// What an operation moves, in every layer, keys and values alike. No place is both read and written, so the
/// parts of one Movement may be executed in any order, or all at once.
struct Movement {
  /// Tokens of one page to another (copy-on-write, commit, truncate).
  struct Copy {
    int32_t headClass;
    Place from, to;
    int32_t tokens;
  };
  /// New tokens to a page. They are counted over the call: those of its appends in the order given, then
  /// those of the children of its branches; those of a draft as given to speculate.
  struct Write {
    int32_t headClass;
    int32_t row;
    Place to;
    int32_t tokens;
  };
  std::vector<Copy> copies;
  std::vector<Write> writes;
  int32_t rows = 0; ///< new tokens
};

/// Children of one branch, at most.
inline constexpr int32_t maxChildren = 1 << 20;

/// Changes that happen together or not at all.
struct CacheStep {
  struct Append {
    NodeId node;
    int32_t tokens = 1;
  };
  struct Branch {
    NodeId node;
    int32_t children = 2;
    int32_t tokens = 1; ///< appended to each child
  };
  std::vector<NodeId> prune; ///< happens first: its pages serve the rest
  std::vector<Append> append;
  std::vector<Branch> branch;
};

struct CacheChange {
  std::vector<NodeId> children; ///< of branches, in the order given
  Movement movement;
};

/// What a page is used for.
struct PageUse {
  NodeId node;
  /// Counted from the node's first; -1: the page holds its draft, or waits in its ring.
  int32_t firstToken;
};

/// Tokens of a node that lie next to each other in a page.
struct TokenSpan {
  int32_t firstToken, tokens; ///< counted from the node's first
  Place at;
};

class Cache {
public:
  static Result<Cache> create(CacheOptions options);
  Cache(Cache &&) noexcept;
  Cache &operator=(Cache &&) noexcept;
  ~Cache();

  //===--- Changes --------------------------------------------------------===//
  // Costs: P pages touched. Streaming classes add, for each node appended to, the evicted ancestors up to the
  // first that is not, and their children.

  /// An empty sequence. O(1).
  NodeId createRoot();

  /// Grows a leaf at its end. O(P).
  Result<Movement> append(NodeId node, int32_t tokens);

  /// New empty children, below all tokens of the node, which grows no more while it has any. Shares every
  /// page and copies nothing: the tokens of a node start on a page of their own. O(children).
  Result<std::vector<NodeId>> branch(NodeId node, int32_t children);

  /// Removes a node and all below it; a root: frees the sequence. O(nodes and pages removed).
  Status prune(NodeId node);

  /// All of that as one change. Deterministic.
  Result<CacheChange> apply(const CacheStep &step);

  struct Fork {
    NodeId twin;
    Movement movement; ///< the copy of the last partial page
  };
  /// A second leaf with the same tokens, as Unix forks: both go on as sequences in pages without gaps. Whole
  /// pages are shared, the last partial one is copied. What is shared becomes a node above both that has no
  /// life of its own: it vanishes with the last of them, and is joined to it again when only one is left.
  /// O(P); pages of the leaf.
  Result<Fork> fork(NodeId leaf);

  /// Takes the last tokens away from a leaf: its own, and beyond them those that it shares with leaves forked
  /// from it, which keep them. Frees pages that become empty; where a shared page would be cut, what stays of
  /// it is copied. Refused where streaming classes have given back what the next row would see. O(P).
  Result<Movement> truncate(NodeId leaf, int32_t tokens);

  /// Says that rows will come only on nodes below this one: in streaming classes it keeps only what those
  /// see. It can no longer be appended to or branched. Refused where nothing is below. O(P).
  Status evict(NodeId node);

  /// Gives a leaf a tree of speculated tokens (TokenTree::fromParents), written as given. Reserves what
  /// commit needs. The leaf cannot change before commit. O(tokens).
  Result<Movement> speculate(NodeId leaf, std::span<const int32_t> parents);

  /// Keeps of the leaf's draft the path that ends with `token` (as given to speculate; -1: nothing), moved
  /// behind the leaf's tokens, and drops the rest. Never exhausted. O(path + P).
  Result<Movement> commit(NodeId leaf, int32_t token);

  //===--- Questions ------------------------------------------------------===//
  // About nodes that live, each O(1) unless it returns a list.

  const CacheOptions &options() const;
  bool contains(NodeId node) const;
  /// Why a node cannot be used: "node 7 was pruned".
  Status check(NodeId node) const;
  std::vector<NodeId> roots() const;
  std::vector<NodeId> children(NodeId node) const;
  std::optional<NodeId> parent(NodeId node) const;
  int32_t tokens(NodeId node) const;   ///< of its own
  int32_t position(NodeId node) const; ///< of its first token
  int32_t end(NodeId node) const { return position(node) + tokens(node); }
  bool isLeaf(NodeId node) const;
  bool isEvicted(NodeId node) const;
  const TokenTree *draft(NodeId node) const; ///< null where there is none
  int64_t nodeCount() const;

  int32_t freePages(int32_t headClass) const;
  /// Of a page in use.
  std::optional<PageUse> pageUse(int32_t headClass, int32_t page) const;
  /// Where a class holds the tokens of a node itself, in order; those not listed were given back.
  std::vector<TokenSpan> places(NodeId node, int32_t headClass) const;
  /// Where it holds the draft's tokens, as given to speculate.
  std::vector<Place> draftPlaces(NodeId node, int32_t headClass) const;

  /// Everything that must hold, from scratch, O(nodes + pages): each page in one place, links and positions
  /// of a forest, nothing kept or given back that should not be. Debug builds do this after every change.
  Status checkInvariants() const;

  struct State;

private:
  friend class BatchBuilder;
  friend class StepTables;
  friend class WatchedNodes;
  friend struct CacheTester;
  explicit Cache(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

} // namespace attn::rt

#endif
