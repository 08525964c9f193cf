//===- BranchController.h - Who decides how a tree grows --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Beam search, tree of thoughts and best of n differ only in which leaves grow,
// branch or die after each token, and the user decides that. A controller is asked
// about every leaf, in depth-first order; its choices then happen together or
// not at all.
//
//   BatchBuilder builder;
//   while (...) {
//     auto step = decodeStep(cache, [&](const Leaf &leaf) { return ...; });
//     ... execute step->movement on the new tokens' keys and values ...
//     builder.build(cache, step->rows, batch);
//   }
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_BRANCHCONTROLLER_H
#define ATTN_RT_CACHE_BRANCHCONTROLLER_H

#include "attn_rt/cache/CacheBatch.h"

#include <functional>

namespace attn::rt {

struct Leaf {
  NodeId node;
  int32_t depth;  ///< nodes above the leaf
  int32_t tokens; ///< the leaf's own tokens
  int32_t end;    ///< position of the leaf's next token
};

struct LeafChoice {
  enum class Kind : uint8_t {
    Continue, ///< one more token
    Branch,   ///< one token for each of `children` new leaves below it
    Hold,     ///< unchanged, without a row
    Prune,    ///< removed
  };
  Kind kind = Kind::Continue;
  int32_t children = 0;
};

using BranchController = std::function<LeafChoice(const Leaf &)>;

struct DecodeStep {
  /// A row for each new token, in the order in which the movement counts new tokens: leaves that continue,
  /// then the children of leaves that branch; each in the order of the questions.
  std::vector<RowGroup> rows;
  std::vector<NodeId> children;
  Movement movement;
};

/// Makes one decoding step over all leaves. Errors are those of Cache::apply, and change nothing. The
/// controller must not change the cache. O(nodes + pages touched).
Result<DecodeStep> decodeStep(Cache &cache, const BranchController &controller);

} // namespace attn::rt

#endif
