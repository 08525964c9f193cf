//===- CompactKernel.h - Moves that leave lists without holes ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warp has a list at a time and goes over its flags thrice: how many tokens stay, how
// many of these lie in front of where the list will end (the others have to move), and
// then each token that moves, and each place that is to be filled, finds its number
// among its like. Lists know nothing of each other, so there is one launch.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_PAGES_COMPACTKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_PAGES_COMPACTKERNEL_H

#include "AttnToTile/Kernel/Kernel.h"

#include "attn/Dialect/Attn/IR/PageOps.h"

namespace mlir::attn {

class CompactKernel {
public:
  static constexpr int64_t warps = 8, lanes = 32;

  CompactKernel(CompactTokensOp compact, func::FuncOp kernel);
  void run();

private:
  /// All lanes go through [begin, end) together; `i` of a lane may be beyond the end.
  SmallVector<Value> walk(Value begin, Value end, ValueRange carried,
                          function_ref<SmallVector<Value>(Value i, ValueRange carried)> body);
  void doIf(Value condition, function_ref<void()> body);
  void compactList();
  /// Of the flags in front of `end`: how many are set.
  Value countKept(Value end);
  /// Whether the token exists, where the list ends at `end`, and stays.
  Value stays(Value i, Value end);
  /// Its slot; of a token behind the last, that of the last.
  Value slotOf(Value i, Value end);
  void writeMoves(Value count, Value kept);
  Value sumOfLanes(Value value);
  Value sumOfLanesBefore(Value value);

  Value read(StringRef buffer, Value index, bool written);
  void write(StringRef buffer, Value index, Value value);
  Value indexOf(Value row, Value columns, Value column) {
    return b.add(b.mul(b.wide(row), b.wide(columns)), b.wide(column));
  }
  Value both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(x, y); }
  Value atMost(Value x, Value y) { return b.compare(arith::CmpIPredicate::sle, x, y); }
  Value asNumber(Value condition) { return b.createOrFold<arith::ExtUIOp>(b.getI32Type(), condition); }
  Value negate(Value condition) {
    return b.createOrFold<arith::XOrIOp>(condition, arith::ConstantIntOp::create(b, 1, 1));
  }
  Value fromLane(Value value, Value from) {
    return tile::FromLaneOp::create(b, value.getType(), value, from);
  }

  CompactTokensOp compact;
  KernelBuilder b;
  int64_t page, end; ///< tokens of a page; which of two numbers are those of the list's end
  Value lane, list, columns, flags, moves;
};

} // namespace mlir::attn

#endif
