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
// Only the bookkeeping is here: which page holds which token. Changes return a list
// of moves (Movement), to be executed by kernels in the order of the calls, or by
// executeMovement (CacheMemory.h) on a host.
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
// instead: once the ring has wrapped, appends and drafts of up to `draft` tokens
// take no page from the pool.
//
// Errors change nothing: if a call is refused, the cache is as it was before.
// Exhaustion (ErrorKind::Memory) names the pages asked for and the pages left.
// Use a cache from one thread at a time.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_CACHE_H
#define ATTN_RT_CACHE_CACHE_H

#include "attn_rt/cache/TokenTree.h"

#include <memory>
#include <string>

namespace attn::rt {

/// Identifies a node while it lives. An id is never reused.
struct NodeId {
  int32_t index = 0;
  uint32_t generation = 0;
  bool operator==(const NodeId &) const = default;
};
/// "node 7"; "node 7.2" if the index belonged to two nodes before.
std::string nodeText(NodeId node);

struct CacheClass {
  std::string name = "kv";
  int32_t pages = 0; ///< pages of its pool
  /// Streaming if recent > 0: the tokens at distance 0 <= q - k < recent and the first `sink` are visible.
  int32_t recent = 0, sink = 0;
  int32_t draft = 0; ///< tokens that a ring holds beyond recent
  bool streaming() const { return recent > 0; }
};

struct CacheOptions {
  int32_t pageTokens = 16;
  /// Chains of a draft start at multiples of this, a divisor of pageTokens. With pageTokens (or 0), drafts
  /// and nodes can be one operand of an attention, and every chain takes a page. With 1, drafts waste no
  /// slot, but are an operand of their own: the same memory with pages of one token.
  int32_t draftPage = 0;
  std::vector<CacheClass> classes = {CacheClass()};
};

/// A slot of a page.
struct Place {
  int32_t page = 0, slot = 0;
  bool operator==(const Place &) const = default;
};

/// The copies and writes of an operation, for keys and values of every layer. No slot is both read and
/// written, so the parts of one Movement may be executed in any order, or all at once.
struct Movement {
  /// Copies tokens of one page to another (copy-on-write, commit, truncate).
  struct Copy {
    int32_t headClass;
    Place from, to;
    int32_t tokens;
  };
  /// Writes new tokens to a page. `row` counts new tokens over the call: those of its appends in the order
  /// given, then those of the children of its branches; tokens of a draft as given to speculate.
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

/// The most children of one branch.
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
  std::vector<NodeId> prune; ///< happens first: the pages freed serve the other changes
  std::vector<Append> append;
  std::vector<Branch> branch;
};

struct CacheChange {
  std::vector<NodeId> children; ///< of branches, in the order given
  Movement movement;
};

/// The use of a page.
struct PageUse {
  NodeId node;
  /// Counted from the node's first token; -1: the page holds the node's draft, or waits in its ring.
  int32_t firstToken;
};

/// Tokens of a node that lie next to each other in a page.
struct TokenSpan {
  int32_t firstToken, tokens; ///< counted from the node's first
  Place at;
};

class Cache {
public:
  /// Makes an empty cache. Errors name the option and its legal values.
  static Result<Cache> create(CacheOptions options);
  Cache(Cache &&) noexcept;
  Cache &operator=(Cache &&) noexcept;
  ~Cache();

  //===--- Changes --------------------------------------------------------===//
  // Costs: P is the number of pages touched. Streaming classes add, for each node appended to, its evicted
  // ancestors up to the first that is not evicted, and their children.

  /// Creates an empty sequence. O(1).
  NodeId createRoot();

  /// Appends tokens to a leaf. O(P).
  Result<Movement> append(NodeId node, int32_t tokens);

  /// Adds empty children below all tokens of the node, which cannot grow while it has any. Shares every page
  /// and copies nothing: the tokens of a child start on a page of their own. O(children).
  Result<std::vector<NodeId>> branch(NodeId node, int32_t children);

  /// Removes a node and all nodes below it; on a root, frees the sequence. O(nodes and pages removed).
  Status prune(NodeId node);

  /// Makes all changes of a step as one. Deterministic.
  Result<CacheChange> apply(const CacheStep &step);

  struct Fork {
    NodeId twin;
    Movement movement; ///< the copy of the last partial page
  };
  /// Makes a second leaf with the same tokens, as Unix forks: both continue as sequences in pages without
  /// gaps. Whole pages are shared; the last partial page is copied. The shared tokens become a node above
  /// both leaves, which the user does not own: it vanishes with the last of them, and is joined to the last
  /// leaf that is left. O(P), where P counts the pages of the leaf.
  Result<Fork> fork(NodeId leaf);

  /// Removes the last tokens of a leaf: its own, and beyond them those that it shares with leaves forked from
  /// it, which keep them. Frees pages that become empty; if a shared page would be cut, its remaining tokens
  /// are copied. Refused if streaming classes have freed tokens that the next row would see. O(P).
  Result<Movement> truncate(NodeId leaf, int32_t tokens);

  /// Declares that rows will come only on nodes below this one: streaming classes keep only the tokens that
  /// those see. The node can no longer be appended to or branched. Refused for a node without children. O(P).
  Status evict(NodeId node);

  /// Adds a tree of speculated tokens (TokenTree::fromParents) to a leaf, written as given, and reserves the
  /// pages that commit needs. The leaf cannot change before commit. O(tokens).
  Result<Movement> speculate(NodeId leaf, std::span<const int32_t> parents);

  /// Moves the path of the leaf's draft that ends with `token` (as given to speculate; -1: no token) after
  /// the leaf's tokens, and drops the rest. Never exhausts the pool. O(path + P).
  Result<Movement> commit(NodeId leaf, int32_t token);

  //===--- Questions ------------------------------------------------------===//
  // These take nodes that live. Each is O(1) unless it returns a list.

  const CacheOptions &options() const;
  /// Whether the id names a node that lives.
  bool contains(NodeId node) const;
  /// An error says why the node cannot be used: "node 7 was pruned".
  Status check(NodeId node) const;
  std::vector<NodeId> roots() const;
  std::vector<NodeId> children(NodeId node) const;
  std::optional<NodeId> parent(NodeId node) const;
  int32_t tokens(NodeId node) const;   ///< its own tokens
  int32_t position(NodeId node) const; ///< position of its first token
  /// Position after its last token.
  int32_t end(NodeId node) const { return position(node) + tokens(node); }
  bool isLeaf(NodeId node) const;
  /// Whether evict was called on the node.
  bool isEvicted(NodeId node) const;
  const TokenTree *draft(NodeId node) const; ///< null if there is none
  int64_t nodeCount() const;

  /// Pages of a class's pool that are free.
  int32_t freePages(int32_t headClass) const;
  /// The use of a page; empty if the page is free.
  std::optional<PageUse> pageUse(int32_t headClass, int32_t page) const;
  /// The slots of the node's own tokens in a class, in order. Tokens that were freed are not listed.
  std::vector<TokenSpan> places(NodeId node, int32_t headClass) const;
  /// The slots of the draft's tokens, as given to speculate.
  std::vector<Place> draftPlaces(NodeId node, int32_t headClass) const;

  /// Checks every invariant from scratch, O(nodes + pages): each page has one use, links and positions are
  /// those of a forest, no page is kept or freed wrongly. Debug builds check after every change.
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
