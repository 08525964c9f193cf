//===- Chain.h - The chain of updates that becomes a kernel -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_CHAIN_H
#define ATTN_CONVERSION_CHAIN_H

#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

/// Features that a line of a tile holds, with zeros behind those that exist: tensor cores multiply them by
/// sixteens, and copies swizzle lines of 32 bytes and multiples of that, whichever way they are stored.
inline int64_t paddedDim(int64_t dim, Type stored) {
  return llvm::alignTo(dim, 256 / stored.getIntOrFloatBitWidth());
}

/// Features of a key in shared memory where two warpgroups have half of them each, in whole panels or half of
/// one.
inline int64_t halvedKeyTile(int64_t paddedKeyDim) {
  constexpr int64_t panel = 64;
  return llvm::alignTo(paddedKeyDim, paddedKeyDim <= panel ? panel : 2 * panel);
}

/// What one kernel computes: updates of states that begin with inits, are merged and changed, and end with
/// one finish. Wgmma's kernel takes a single chain: one init, the updates, and changes of a single state
/// behind them. A single chain may be finished behind its first update, too.
struct Chain {
  func::FuncOp function;
  InitOp init; ///< the first
  SmallVector<UpdateOp> updates;
  FinishOp finish;
  FinishOp first;          ///< finishes the state behind the first update, too: marked `attn.first`; or null
  InitGradientOp gradient; ///< in place of inits and a finish where gradients are added up
  InitSignificanceOp significance; ///< the same where weights of tokens are
  SmallVector<InitOp> inits;
  /// Merges and other operations that make states of states: what stands behind the loops over tokens.
  SmallVector<Operation *> changes;

  Value query() {
    return init ? init.getQuery() : updates.empty() ? gradient.getPart() : updates.front().getQuery();
  }
  RankedTensorType queryType() { return cast<RankedTensorType>(query().getType()); }
  int64_t queryHeads() { return queryType().getDimSize(1); }
  int64_t keyDim() { return queryType().getDimSize(2); }
  int64_t valueDim() {
    if (gradient)
      return gradient.getGradient().getType().getValueDim();
    return init ? init.getState().getType().getValueDim() : updates.front().getKv().getType().getValueDim();
  }
  /// Whether something of tokens is added up, which are then held.
  bool keepsTokens() {
    return significance || (gradient && mlir::attn::keepsTokens(gradient.getGradient().getType().getOf()));
  }
  /// Whether updates add to sums of rows beside what is held.
  bool addsToRows() { return gradient && gradient.getAddsRows(); }
  /// Whether rows are finished already, and their LSEs are read.
  bool readsFinished() { return gradient || significance; }
  /// Features of a line in shared memory and registers, whichever region it is of.
  int64_t paddedKeyDim() {
    int64_t padded = paddedDim(keyDim(), element());
    for (UpdateOp update : updates)
      padded = std::max(padded, paddedDim(keyDim(), codesOf(update.getKv().getType().getKey())));
    return padded;
  }
  int64_t paddedValueDim() {
    int64_t padded = paddedDim(valueDim(), element());
    for (UpdateOp update : updates)
      padded = std::max(padded, paddedDim(valueDim(), codesOf(update.getKv().getType().getValue())));
    return padded;
  }
  /// Whether all updates read one region: what its heads share then holds for the whole kernel.
  bool hasOneRegion();
  int64_t kvHeads() {
    if (updates.empty())
      return gradient ? gradient.getKvHeads().value_or(1) : 1;
    return updates.front().getKVHeads();
  }
  int64_t group() { return queryHeads() / kvHeads(); }
  Type element() { return queryType().getElementType(); }
  /// The sink logits that a state begins with; null where none does.
  Value sinks() {
    for (InitOp init : inits)
      if (Value logits = init.getSinks())
        return logits;
    return {};
  }
  bool countsSinks() { return static_cast<bool>(sinks()); }

  /// Null where all heads see alike.
  HeadClassesAttr headClasses() {
    return updates.empty() ? HeadClassesAttr() : updates.front().getHeadClassesAttr();
  }
  unsigned classCount() { return headClasses() ? headClasses().size() : 1; }
  /// What a class sees of the operands; null where all heads see alike.
  VisibilityAttr classVisibility(unsigned headClass) {
    return headClasses() ? headClasses().getVisibility()[headClass] : VisibilityAttr();
  }
  /// Whether a row may see several ranges of tokens: of several regions, or of one whose visibility is a
  /// union.
  bool seesSeveralRanges();
  /// The number of the first end of an operand's visibility, and of a class's: ends are numbered in the order
  /// of the text, through all operands and then all classes.
  int64_t firstEnd(unsigned operand);
  int64_t firstEndOfClass(unsigned headClass);
};

/// LSEs of rows as weights take them: in log2, and +inf of rows whose weights are all zero.
inline constexpr StringLiteral logLse = "lse.log2";
/// The sums of rows' gradients while they are added up, f32.
inline constexpr StringLiteral rowSums = "dq.sums";

/// The tensor of sink logits, also in lists of tables that get gradients.
inline constexpr StringLiteral sinkLogits = "sink_logits";

/// A read of a table whose gradient a kernel makes: of each row and head a sum over the tokens, and where in
/// the table it belongs, for whoever adds up rows. Names of these two results.
struct TableRead {
  ReadOp read;
  std::string sums, places;
};
/// The reads of `tables` in the score region of an update, in the order of the region. Null: no tables.
SmallVector<TableRead> tableReads(UpdateOp update, ArrayAttr tables);

/// Whether keys or values are stored as codes.
bool isQuantized(KVType type);
/// Lines of the boxes in which a tile of `keys` tokens can be copied in bulk; 0: its tokens lie apart, or
/// nobody knows how far before the kernel runs.
int64_t tmaLoadLines(KVType type, int64_t keys);

/// Whether one operation goes on with the state; that it is finished early, too, does not count.
bool goesOnOnce(Value state);

/// What the function computes, or an error at the operation that no kernel can be made of.
FailureOr<Chain> findChain(func::FuncOp function);
/// The same of a kernel in which the operations stand in loops and on parts of tensors.
Chain findChainInKernel(func::FuncOp kernel);
/// The operation by which the function's updates are no single chain: one that takes several states, that
/// stands in front of an update, or whose state is used twice. Null where they are one.
Operation *findBranch(func::FuncOp function);

/// Name of a function argument, or of that which the value is a part of: by it tensors are bound.
StringRef argumentName(Value argument);

} // namespace mlir::attn

#endif
