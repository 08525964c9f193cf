//===- TokenTree.h - Speculated tokens, depth first -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A draft model proposes a tree of tokens after a sequence, and one launch verifies
// all of them: each token sees the sequence, its ancestors and itself. In depth-first
// order the tokens that see a token are one range, the token and all tokens below it,
// so no mask is needed:
//
//     0 ─┬─ 1 ─── 2            token     0  1  2  3  4  5
//        └─ 3 ─┬─ 4            seen by   [0,6) [1,3) [2,3) [3,6) [4,5) [5,6)
//              └─ 5
//
// A run of tokens that are each the only child of the one before (1 and 2 above) is a
// *chain*. One instance of an attention holds a chain: `causal` hides the tokens of the
// chain after a row's own position.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_TOKENTREE_H
#define ATTN_RT_CACHE_TOKENTREE_H

#include "attn_rt/support/Status.h"

#include <cstdint>
#include <span>
#include <vector>

namespace attn::rt {

/// The most tokens of one tree.
inline constexpr int32_t maxTreeTokens = 1024;

class TokenTree {
public:
  /// Makes a tree from parents: parents[t] is the token before token t, or -1 if t follows the sequence
  /// itself (several tokens may). Tokens may come in any order. Refuses, naming the token: fewer than 1 or
  /// more than maxTreeTokens tokens, a parent that is no token (an orphan), a cycle. O(tokens).
  static Result<TokenTree> fromParents(std::span<const int32_t> parents);

  /// Makes a tree from paths, as Medusa and EAGLE write trees: each token is the path of child numbers that
  /// leads to it, [2, 0] being the first child of the third. Refuses, naming the path: an empty or negative
  /// path, a path given twice, a path whose beginning is no token. O(tokens * depth * log tokens).
  static Result<TokenTree> fromPaths(const std::vector<std::vector<int32_t>> &paths);

  /// Tokens [begin, end), in depth-first order, each the only child of the one before.
  struct Chain {
    int32_t begin, end;
    int32_t below; ///< the first token after begin that is not below it: [begin, below) see the chain
  };

  int32_t size() const { return static_cast<int32_t>(order_.size()); }
  /// order[d] is the token (as given) at index d of the depth-first order, in which siblings keep their
  /// order.
  std::span<const int32_t> order() const { return order_; }
  /// The inverse of order(): place[order[d]] = d.
  std::span<const int32_t> place() const { return place_; }
  /// For index d: the index of its parent, or -1; and the number of tokens before it on its path.
  std::span<const int32_t> parent() const { return parent_; }
  std::span<const int32_t> depth() const { return depth_; }
  /// Chains in depth-first order; together they hold every token once.
  std::span<const Chain> chains() const { return chains_; }
  /// Tokens of the longest path.
  int32_t height() const { return height_; }
  /// The indices of the path that ends with `token` (as given), which must be one of the tree.
  std::vector<int32_t> pathTo(int32_t token) const;

private:
  std::vector<int32_t> order_, place_, parent_, depth_;
  std::vector<Chain> chains_;
  int32_t height_ = 0;
  void findChains();
};

} // namespace attn::rt

#endif
