//===- LhsRuns.cpp - Left operands with features in runs ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LhsRuns.h"

using namespace mlir;
using namespace mlir::tile;

SmallVector<Value> LhsRunsFromShared::rowBlock(int64_t row) {
  SmallVector<Value> registers;
  for (size_t i = 0, count; i < spans.size(); i += count) {
    count = std::max<size_t>(spansOfLine(i), 1);
    SmallVector<Value> lines[2];
    for (int64_t half : {0, 1})
      lines[half] = pairsOfLine(i, count, row + 8 * half);
    for (size_t p = 0; p < lines[0].size(); p += 2)
      for (size_t half : {0, 1})
        for (const SmallVector<Value> &ofLine : lines)
          registers.push_back(ofLine[p + half]);
  }
  return registers;
}

SmallVector<Value> LhsRunsFromShared::fewRows() {
  SmallVector<Value> registers;
  for (size_t i = 0, count; i < spans.size(); i += count) {
    count = std::max<size_t>(spansOfLine(i), 1);
    llvm::append_range(registers, pairsOfLine(i, count, 0));
  }
  return registers;
}

SmallVector<Value> LhsRunsFromShared::pairsOfLine(size_t i, size_t count, int64_t row) {
  return pairsOf(count > 1 ? wordsOfLine(i, count, row) : wordsOf(spans[i], row));
}

/// The number of spans, from this one on, that fill a line of 128 bytes of which lanes read 8 or 16 bytes
/// each; 0 if they do not fill it. The spans of neighbouring lines would then conflict in banks, unless one
/// line begins with its other half.
size_t LhsRunsFromShared::spansOfLine(size_t i) {
  int64_t size = spans[i].size, chunk = spans[i].first / 8;
  const SharedType::Panel panel = type.getPanels()[type.getPanelOf(chunk)];
  size_t count = 64 / size;
  bool fills = size <= 32 && i + count <= spans.size() && spans[i + count - 1].size == size;
  return type.getSwizzled() && panel.width == 128 && (chunk - panel.chunk) % 8 == 0 && fills ? count : 0;
}

/// A lane's run in line g + `row`, two neighbours a word.
SmallVector<Value> LhsRunsFromShared::wordsOf(FragmentType::Span span, int64_t row, Value move) {
  SmallVector<Value> words;
  int64_t first = span.first * 2, run = span.size / 2;
  for (int64_t byte = 0; byte < run; byte += 16) {
    int64_t size = std::min<int64_t>(run - byte, 16);
    Value loaded = LLVM::LoadOp::create(e.b, e.loc, VectorType::get(size / 4, e.b.getI32Type()),
                                        at(first, run, byte, row, move), size);
    for (int64_t i = 0; i < size / 4; ++i)
      words.push_back(LLVM::ExtractElementOp::create(e.b, e.loc, loaded, e.i32(i)));
  }
  return words;
}

/// The runs of a line's spans: odd lines read the halves of 64 bytes the other way round.
SmallVector<Value> LhsRunsFromShared::wordsOfLine(size_t i, size_t count, int64_t row) {
  Value odd = e.band(e.lanes.group, 1), even = e.less(odd, e.i32(1)), move = e.mul(odd, 64);
  SmallVector<Value> first, second, words;
  for (FragmentType::Span span : ArrayRef(spans).slice(i, count / 2)) {
    llvm::append_range(first, wordsOf(span, row, move));
    llvm::append_range(second, wordsOf(span, row, e.bxor(move, 64)));
  }
  for (auto [x, y] : llvm::zip_equal(first, second))
    words.push_back(e.select(even, x, y));
  for (auto [x, y] : llvm::zip_equal(first, second))
    words.push_back(e.select(even, y, x));
  return words;
}

/// The pairs in the order of the columns.
SmallVector<Value> LhsRunsFromShared::pairsOf(const SmallVector<Value> &words) {
  if (step == 1)
    return words;
  SmallVector<Value> pairs;
  for (size_t group = 0; group < words.size(); group += step)
    for (int64_t p = 0; p < step; ++p) {
      Value low = words[group + p / 2], high = words[group + (p + step) / 2];
      pairs.push_back(p % 2 ? e.bytes(low, high, {2, 3, 6, 7}) : e.bytes(low, high, {0, 1, 4, 5}));
    }
  return pairs;
}

/// The address of byte `byte` of the lane's run of `run` bytes, in the span that begins with byte `first` of
/// the lines. The span is a part of a panel, or several panels of one width. `move` exchanges chunks of 16
/// bytes within it.
Value LhsRunsFromShared::at(int64_t first, int64_t run, int64_t byte, int64_t row, Value move) {
  const SharedType::Panel panel = type.getPanels()[type.getPanelOf(first / 16)];
  int64_t width = panel.width, panelBytes = width * type.getBoxLines();
  Value own = e.mul(e.lanes.quad, run), chunk = e.shr(e.band(own, width - 1), 4);
  Value offset = type.getSwizzled() ? e.placeOf(type, width, e.lanes.group, chunk)
                                    : e.add(e.mul(e.lanes.group, width), e.mul(chunk, 16));
  int64_t next = (first / 16 - panel.chunk) * 16 + byte % width;
  offset = type.getSwizzled() ? e.bxor(offset, next) : e.add(offset, next);
  if (move)
    offset = e.bxor(offset, move);
  if (run < 16)
    offset = e.add(offset, e.band(own, 15));
  offset = e.add(offset, e.mul(e.shr(own, llvm::Log2_64(width)), panelBytes));
  Value from = e.sharedAt(e.sharedAt(base, e.mul(line, width)), offset);
  return e.sharedAt(from, panel.offset + row * width + byte / width * panelBytes);
}
