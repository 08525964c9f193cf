//===- LhsRuns.h - Left operands with features in runs ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_TILETOMACHINE_LHSRUNS_H
#define ATTN_CONVERSION_TILETOMACHINE_LHSRUNS_H

#include "Emitter.h"

namespace mlir::tile {

/// A left operand in a shared tile whose features are needed in runs: each lane reads its own.
class LhsRunsFromShared {
public:
  /// `order`: a fragment that has as many features, in the order needed.
  LhsRunsFromShared(Emitter &e, SharedType type, Value base, Value line, FragmentType order)
      : e(e), type(type), base(base), line(line), spans(order.getSpans()), step(order.getOrder().step) {}

  /// The registers of the 16-row block at (line + row), one block of 16 columns after the other.
  SmallVector<Value> rowBlock(int64_t row);
  /// The registers of the eight rows at `line` as a right operand.
  SmallVector<Value> fewRows();

private:
  SmallVector<Value> pairsOfLine(size_t i, size_t count, int64_t row);
  size_t spansOfLine(size_t i);
  SmallVector<Value> wordsOf(FragmentType::Span span, int64_t row, Value move = {});
  SmallVector<Value> wordsOfLine(size_t i, size_t count, int64_t row);
  SmallVector<Value> pairsOf(const SmallVector<Value> &words);
  Value at(int64_t first, int64_t run, int64_t byte, int64_t row, Value move);

  Emitter &e;
  SharedType type;
  Value base, line;
  SmallVector<FragmentType::Span> spans;
  int64_t step;
};

} // namespace mlir::tile

#endif
