//===- TaskView.h - The rows of a task ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass that goes on with a kernel reads in it which rows it works on, and on how
// many of them at a time.
//
// Rows are *packed*: row p of KV head h is query row p / G, query head
// h*G + p % G, so that the heads of a group share every key they read. Where
// heads have classes, a task names an ordinal, and `ordinal_heads` its KV head. In the
// store of one class an ordinal's head is the one after the class's ordinals before it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_TASKVIEW_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_TASKVIEW_H

#include "PlanAccess.h"

namespace mlir::attn {

class TaskView {
public:
  TaskView(Chain &chain, func::FuncOp kernel)
      : chain(chain), schedule(tile::scheduleAttr.get(kernel)), b(kernel),
        rows(chain.holdsTokens() ? schedule.getKeys() : schedule.getWarpRows()),
        keys(chain.holdsTokens() ? schedule.getWarpRows() : schedule.getWarpKeys()) {}

  /// Tokens of a tile in shared memory, and packed rows: a block holds those of one kind.
  int64_t blockKeys() { return chain.holdsTokens() ? schedule.getRows() : schedule.getKeys(); }
  int64_t blockRows() { return chain.holdsTokens() ? schedule.getKeys() : schedule.getRows(); }

  // Types of the fragments that one warp holds.
  tile::FragmentType rowsOf(Type element, bool partial = false) {
    return b.fragment({tile::Axis::Query}, {rows}, element, partial);
  }
  tile::FragmentType scoresType() { return productType(tile::Axis::Key, keys); }
  tile::FragmentType accType() { return productType(tile::Axis::Feature, chain.paddedValueDim()); }
  /// Whether queries are multiplied from the right: few of them, or beside tokens that are held, unless these
  /// are codes.
  bool tokensFirst();
  /// Of the rows and what they are multiplied with, which is the first axis where tokens are.
  tile::FragmentType productType(tile::Axis axis, int64_t size) {
    if (tokensFirst())
      return b.fragment({axis, tile::Axis::Query}, {size, rows}, b.getF32Type());
    return b.fragment({tile::Axis::Query, axis}, {rows, size}, b.getF32Type());
  }
  tile::FragmentType queryType() {
    return b.fragment({tile::Axis::Query, tile::Axis::Feature}, {rows, chain.paddedKeyDim()},
                      chain.element());
  }
  /// Of elements of the query's type, if no other is named.
  tile::SharedType sharedType(tile::Axis axis, int64_t lines, int64_t features, int64_t boxes = 0,
                              Type element = {}) {
    return tile::SharedType::get(b.getContext(), axis, lines, tile::Axis::Feature, features,
                                 element ? element : chain.element(), false, boxes);
  }

  /// From here on these are the rows that the methods speak of.
  void setRows(RowsOp queryRows);
  /// What a tile's tokens say of the segment they are of.
  static Segment segmentOf(TokensOp tokens);

  /// Query row and query head of a packed row.
  std::pair<Value, Value> unpack(Value packed) {
    return {b.div(packed, chain.group()),
            b.add(b.mul(kvHead, b.i32(chain.group())), b.rem(packed, chain.group()))};
  }
  /// Whether a kernel reads no tokens, and its packed rows are those of all heads, in the order of memory.
  bool walksAllRows() { return chain.gradient && chain.updates.empty(); }
  /// Where a packed row lies in a tensor of query rows and heads.
  Value packedSlot(Value packed, Type type) {
    if (walksAllRows())
      return type.isInteger(64) ? b.wide(packed) : packed;
    return tile::PackedSlotOp::create(b, type, packed, kvHead, b.getI64IntegerAttr(chain.group()),
                                      b.getI64IntegerAttr(chain.queryHeads()), ValueRange(), IntegerAttr());
  }
  /// Where the LSE and the delta of a packed row lie for kernels that hold tokens. KV heads come first: those
  /// of a tile of rows lie behind one another, and copies of them ask for few lines.
  Value numberSlot(Value packed, Type type);
  Value taskEnd() { return b.add(packedBegin, packedCount); }
  /// Packed row of a line of this warp; lines past the task's last repeat it.
  Value packedRow(Value line) {
    return b.min(b.add(b.add(packedBegin, warpRow), line), b.sub(taskEnd(), b.i32(1)));
  }
  /// Element of the output where a row of the task begins.
  Value outputIndex(Value row) {
    return b.stridedSlot("o", b.add(packedBegin, row), kvHead, chain.group(),
                         chain.element().getIntOrFloatBitWidth() / 8, b.getI64Type());
  }
  /// Where a row of the task lies among rows and heads that lie densely.
  Value slotOfRow(Value row) { return packedSlot(b.add(packedBegin, row), b.getI64Type()); }
  /// Columns of the output that exist, where tiles have more.
  IntegerAttr outputColumns() {
    bool padded = chain.paddedValueDim() != chain.valueDim();
    return padded ? b.getI64IntegerAttr(chain.valueDim()) : IntegerAttr();
  }
  /// Whether scores enter the softmax as the dots leave them.
  bool rawScores() { return chain.updates.empty() || chain.updates.front().getScore().empty(); }
  /// Whether numbers of rows that are walked are read while scores are made, as behind them nothing hides how
  /// long reading takes: lanes cannot hold the numbers of a long tile, nor those of a short one beside the
  /// ends of windows or the values of a region.
  bool readsNumbersEarly();
  /// Whether they come behind one barrier. Where they are read late, ptxas would keep a place too many
  /// meanwhile, but for fused kernels (heads of 96 took 2 % longer, and beside a score region spilled).
  bool joinsNumbers() { return rawScores() && (chain.addsToRows() || readsNumbersEarly()); }
  /// Whether the score region asks where a key stands: its last argument.
  bool readsKeyPosition() {
    return !rawScores() && !chain.updates.front().getScore().front().getArguments().back().use_empty();
  }
  /// Whether a segment may be a list of single tokens (see runtime/src/plan/Lists.cpp), and whether it is.
  /// Long heads leave no registers for another mask, and a list has places where a score region would read
  /// positions; the planner sees by the parameters that there is none.
  bool mayList();
  Value isList(const Segment &segment) { return b.less(segment.instance, b.i32(0)); }
  std::string tensor(UpdateOp update, StringRef part) {
    return (argumentName(update.getKv()) + "." + part).str();
  }
  /// The type in which an operand's store holds keys ("k") or values ("v").
  static Type storedElement(UpdateOp update, StringRef part) {
    KVType type = update.getKv().getType();
    return codesOf(part == "k" ? type.getKey() : type.getValue());
  }

  Chain &chain;
  tile::ScheduleAttr schedule;
  KernelBuilder b;
  int64_t rows, keys; ///< that one warp holds, of a tile

  // Of the rows.
  Value packedBegin, packedCount, ordinal, kvHead, headClass;
  Value warpRow;    ///< this warp's first row, counted from the task's first
  Value groupRow;   ///< first row of this warp's warpgroup, where there are such
  Value sinkCounts; ///< whether the task's rows count the sink
  Value scoresStay; ///< whether their scores are stored; null where none are
};

} // namespace mlir::attn

#endif
