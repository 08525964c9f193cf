//===- Lines.h - Updates one after the other --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_WALK_LINES_H
#define ATTN_CONVERSION_ATTNTOTILE_WALK_LINES_H

#include "attn/Conversion/Chain.h"

namespace mlir::attn {

/// Updates of one state. Each takes the state that the update before it leaves.
struct Line {
  Value begin; ///< the state before the first update; null: the line begins with an empty state
  SmallVector<unsigned> updates;
  Value state; ///< in the loops: the state so far
};

/// All lines of a chain, in the order of their first updates.
struct Lines {
  SmallVector<Line> all;
  DenseMap<Value, unsigned> lastOf; ///< the line that leaves a state

  /// Whether some line begins with the state.
  bool beginWith(Value state) const {
    return llvm::any_of(all, [&](const Line &line) { return line.begin == state; });
  }
};

/// Finds the lines of a chain. An update continues the line of its state, unless another operation also uses
/// that state, or a change made it. Then it starts a line of its own, which is merged with that state after
/// the loops: update(a, R) = merge(a, update(init, R)).
Lines findLines(Chain &chain);

} // namespace mlir::attn

#endif
