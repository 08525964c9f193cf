//===- CompactKernel.h - Moves that leave lists without holes ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// There are many lists, most of them short, and next to nothing to do for one. So a warp
// has four of them at a time, of each of which eight lanes have a share of neighbouring
// tokens, and flags come sixteen to a load, as bits of a mask. A lane goes over its share
// thrice: how many tokens stay, how many of these lie in front of where the list will end
// (the others have to move), and then each token that moves, and each place that is to be
// filled, finds its number among its like. What lanes tell each other stands between the
// passes, a prefix sum in three steps, and the second and the third find the flags in the
// L1. Lists know nothing of each other, so there is one launch.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_PAGES_COMPACTKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_PAGES_COMPACTKERNEL_H

#include "ListKernel.h"

namespace mlir::attn {

class CompactKernel : ListKernel {
public:
  /// Lanes of a list, lists of a warp, and flags of a load, of which lists have a multiple.
  static constexpr int64_t lanesOfList = 8, listsOfWarp = lanes / lanesOfList;
  static constexpr int64_t flagsAtOnce = 16;
  /// As many warps wait at once as a multiprocessor has; 32 registers of a thread are enough.
  static constexpr int64_t blocksAtOnce = 8;

  CompactKernel(CompactTokensOp compact, func::FuncOp kernel);
  void run();

private:
  void compactLists();
  /// Of the lane's tokens in front of `end`: how many stay.
  Value countKept(Value end);
  /// Bits of the tokens from `place` on, in front of `end`, that stay.
  Value keptFrom(Value place, Value end);
  /// Of the lane's tokens, `before` of which stay in front of them: those that move and places to fill.
  void writeMoves(Value end, Value kept, Value keptInFront, Value before);
  /// The lowest bits, as many as `end` lies behind `place`.
  Value bitsBefore(Value place, Value end);
  Value countBits(Value bits);
  /// Over the lanes of the list: those up to this one, and all.
  std::pair<Value, Value> sumsOfList(Value value);

  CompactTokensOp compact;
  int64_t page, end; ///< tokens of a page; which of two numbers are those of the list's end
  Value flags, moves;
  Value list, ofList;  ///< the lane's list, and its number among the list's lanes
  Value begin, behind; ///< the lane's share
};

} // namespace mlir::attn

#endif
