//===- Chain.h - The chain of updates that becomes a kernel -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_CHAIN_H
#define ATTN_CONVERSION_CHAIN_H

#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::attn {

/// The features that a line of a tile has in shared memory; those past the last real feature are zeros.
/// Tensor cores multiply 16 features at a time, and copies swizzle lines of 32 bytes and multiples of that,
/// whichever way they are stored.
inline int64_t paddedDim(int64_t dim, Type stored) {
  return llvm::alignTo(dim, 256 / stored.getIntOrFloatBitWidth());
}

/// The most features of a key beside whose sums kernels that add to rows have registers for the results of
/// two more MMAs, as those of a value and of rows.
inline constexpr int64_t widestBeside = 128;

/// The features of a key's line in shared memory when each of two warpgroups has half of them: whole panels,
/// and of an odd number of panels half of the middle one.
inline int64_t halvedKeyTile(int64_t paddedKeyDim) {
  constexpr int64_t panel = 64;
  return llvm::alignTo(paddedKeyDim, panel);
}

/// The features of a row's sum that have a place in shared memory at once: of heads of more than three panels
/// a part of 32 for each of the two warpgroups.
inline int64_t placedSums(int64_t keyTile) {
  constexpr int64_t widestWhole = 192, parts = 2 * 32;
  return keyTile > widestWhole ? parts : keyTile;
}

/// The computation of one kernel: `attn.init`s begin states, updates add to them, merges and other changes
/// follow, and one `attn.finish` ends. A kernel on wgmma takes a single chain: one init, the updates, and
/// then changes of the single state. A single chain may also be finished after its first update.
struct Chain {
  func::FuncOp function;
  InitOp init; ///< the first of `inits`
  SmallVector<UpdateOp> updates;
  FinishOp finish;
  FinishOp first;          ///< finishes the state after the first update, marked `attn.first`; or null
  InitGradientOp gradient; ///< replaces inits and a finish where gradients are added up
  InitSignificanceOp significance; ///< replaces them where weights of tokens are added up
  SmallVector<InitOp> inits;
  /// Merges and other operations that make states from states; they stand after the loops over tokens.
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
  /// Whether the kernel adds up something per token. Its tokens are then stationary.
  bool keepsTokens() {
    return significance || (gradient && mlir::attn::keepsTokens(gradient.getGradient().getType().getOf()));
  }
  /// Whether updates also add to sums of rows, beside what they add to the stationary tokens.
  bool addsToRows() { return gradient && gradient.getAddsRows(); }
  bool addsInOrder() { return gradient && gradient.getInOrder(); }
  /// Whether rows are already finished, so that the kernel reads their LSEs.
  bool readsFinished() { return gradient || significance; }
  /// The features of a line in shared memory and registers: the maximum over all regions.
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
  /// Whether all updates read one region; a value that its heads share is then the same throughout the
  /// kernel.
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

  /// The head classes; null if all heads share one visibility.
  HeadClassesAttr headClasses() {
    return updates.empty() ? HeadClassesAttr() : updates.front().getHeadClassesAttr();
  }
  unsigned classCount() { return headClasses() ? headClasses().size() : 1; }
  /// The visibility of a head class over the operands; null if all heads share one visibility.
  VisibilityAttr classVisibility(unsigned headClass) {
    return headClasses() ? headClasses().getVisibility()[headClass] : VisibilityAttr();
  }
  /// Whether a row may see several ranges of tokens: ranges of several regions, or of one region whose
  /// visibility is a union.
  bool seesSeveralRanges();
  /// The number of the first end of an operand's visibility, or of a class's. Ends are numbered in the order
  /// of the text: those of all operands, then those of all classes.
  int64_t firstEnd(unsigned operand);
  int64_t firstEndOfClass(unsigned headClass);
};

/// The name of LSEs as weights use them: in log2, and +inf for rows whose weights are all zero.
inline constexpr StringLiteral logLse = "lse.log2";
/// The name of the sums of rows' gradients while they are added up, in f32.
inline constexpr StringLiteral rowSums = "dq.sums";

/// The name of the tensor of sink logits. It may also stand in lists of tables that get gradients.
inline constexpr StringLiteral sinkLogits = "sink_logits";

/// A read of a table whose gradient a kernel makes. The kernel writes two results for each row and head: the
/// sum over the tokens, and the index in the table that it belongs to. The caller adds up the rows. `sums`
/// and `places` name the results.
struct TableRead {
  ReadOp read;
  std::string sums, places;
};
/// The reads of `tables` in the score region of an update, in the order of the region. `tables` may be null:
/// no tables.
SmallVector<TableRead> tableReads(UpdateOp update, ArrayAttr tables);

/// Whether keys or values are stored as quantized values.
bool isQuantized(KVType type);
/// The lines of the TMA boxes in which a tile of `keys` tokens can be copied. 0 if its tokens do not lie
/// together, or if their distance is unknown before the kernel runs.
int64_t tmaLoadLines(KVType type, int64_t keys);

/// Whether exactly one operation continues with the state. A finish after the first update does not count.
bool goesOnOnce(Value state);

/// The chain that the function computes. Reports an error at the operation that no kernel can contain.
FailureOr<Chain> findChain(func::FuncOp function);
/// The chain of a kernel whose operations already stand in loops and work on parts of tensors.
Chain findChainInKernel(func::FuncOp kernel);
/// The operation that keeps the function's updates from being a single chain. It takes several states, stands
/// before an update, or makes a state that is used twice. Null if they are a single chain.
Operation *findBranch(func::FuncOp function);

/// The `attn.name` of a function argument, or of the argument that the value is a part of. Tensors are bound
/// by this name.
StringRef argumentName(Value argument);

} // namespace mlir::attn

#endif
