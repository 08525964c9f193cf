//===- ListKernel.h - A kernel over lists of tokens in pages ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_PAGES_LISTKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_PAGES_LISTKERNEL_H

#include "AttnToTile/Kernel/Kernel.h"

#include "attn/Dialect/Attn/IR/PageOps.h"
#include "attn_rt/artifact/Artifact.h"

namespace mlir::attn {

/// What the kernels over a table of pages share: how blocks and warps go over its lists, and what they say in
/// few words.
class ListKernel {
public:
  using Role = ::attn::rt::KernelInfo::Role;
  static constexpr int64_t warps = 8, lanes = 32, threads = warps * lanes;

protected:
  using Body = function_ref<SmallVector<Value>(Value i, ValueRange carried)>;

  ListKernel(Operation *op, func::FuncOp kernel);

  /// Makes the kernel's parameters of the operation's tensors, and what is known of its table.
  void declareTensors();
  /// Warps take `ofWarp` lists at a time, from a first one on, some of which may be behind the last.
  void walkLists(int64_t ofWarp, function_ref<void(Value first)> body);
  /// `blocks` of them share a multiprocessor.
  void finish(Role role, int ofWarp, int64_t blocks = 4);

  SmallVector<Value> walk(Value begin, Value end, int64_t step, ValueRange carried, Body body);

  Value read(StringRef buffer, Type type, Value index, bool written = false);
  SmallVector<Value> readWords(StringRef buffer, Value index, unsigned count);
  void write(StringRef buffer, Value index, Value value);
  /// The slot of a token's place in a list, in pages of so many tokens; and its page.
  Value slotOf(Value list, Value place, int64_t pageTokens, bool isRight);
  Value pageOf(Value list, Value place, int64_t pageTokens, bool isRight);
  Value elementOf(Value row, Value columns, Value column) {
    return b.add(b.mul(b.wide(row), b.wide(columns)), b.wide(column));
  }

  Value both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(x, y); }
  Value either(Value x, Value y) { return b.createOrFold<arith::OrIOp>(x, y); }
  Value equal(Value x, Value y) { return b.compare(arith::CmpIPredicate::eq, x, y); }
  Value atMost(Value x, Value y) { return b.compare(arith::CmpIPredicate::sle, x, y); }
  Value negate(Value condition) {
    return b.createOrFold<arith::XOrIOp>(condition, arith::ConstantIntOp::create(b, 1, 1));
  }
  Value asNumber(Value condition) { return b.createOrFold<arith::ExtUIOp>(i32, condition); }
  Value fromLane(Value value, Value from) {
    return tile::FromLaneOp::create(b, value.getType(), value, from);
  }

  Operation *op;
  KernelBuilder b;
  Type i32;
  Value lists, columns, lane;
};

} // namespace mlir::attn

#endif
