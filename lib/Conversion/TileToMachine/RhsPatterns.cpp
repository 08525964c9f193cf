//===- RhsPatterns.cpp - Right operands through registers -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles of 16-bit elements go from shared memory to the tensor cores by
// ldmatrix (MmaPatterns.cpp), which moves elements of 16 bits only. Quantized
// values of 8 bits and less are loaded by the lane that multiplies them, and
// become 16-bit floats there (WidenPatterns.cpp).
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include <map>

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Addresses of single bytes of a shared tile whose lines are `base` + a multiple of 8.
class ByteAddresses {
public:
  /// `line` differs from lane to lane, and is below 16.
  ByteAddresses(Emitter &e, SharedType type, Value base, Value line)
      : e(e), type(type), base(base), line(line), panels(type.getPanels()), offsets(panels.size()) {}

  /// The address of byte `column` of this lane's line, `lines` further down (a multiple of 8). `within` is a
  /// lane's own distance from there, in the same 16 bytes.
  Value at(int64_t lines, int64_t column, Value within) {
    size_t p = type.getPanelOf(column / 16);
    const SharedType::Panel &panel = panels[p];
    int64_t local = column / 16 - panel.chunk;
    Value &offset = offsets[p];
    if (!offset)
      offset = type.getSwizzled() ? e.placeOf(type, panel.width, line, e.i32(0)) : e.mul(line, panel.width);
    Value bytes = type.getSwizzled() ? e.bxor(offset, local * 16) : e.add(offset, local * 16);
    Value chunk = e.sharedAt(e.sharedAt(base, bytes), within);
    return e.sharedAt(chunk, panel.offset + lines * panel.width + column % 16);
  }

private:
  Emitter &e;
  SharedType type;
  Value base, line;
  SmallVector<SharedType::Panel> panels;
  SmallVector<Value> offsets;
};

/// Loads quantized values one or two at a time, in the order of the features: for fragments without runs.
class SingleCodes {
public:
  SingleCodes(Emitter &e, SharedType tile, Value base, FragmentType type)
      : e(e), bits(tile.getElement().getIntOrFloatBitWidth()),
        alongLines(type.getAxes()[1] == tile.getColAxis()) {
    Value pair = e.mul(e.lanes.quad, 2);
    Value first = e.mul(alongLines ? pair : e.lanes.group, bits); // bit of the lane's first value
    within = e.shr(first, 3), shift = e.band(first, 7);
    if (alongLines)
      lines.emplace_back(e, tile, base, e.lanes.group);
    else
      for (int64_t next : {0, 1})
        lines.emplace_back(e, tile, base, e.add(pair, next));
  }

  /// The four values of the block whose corner is (row, column), a byte each.
  Value block(int64_t row, int64_t column) {
    Value codes;
    for (int64_t half : {0, 1}) // columns 2q + 8 half and the next
      if (alongLines) {
        int64_t first = (column + 8 * half) * bits;
        add(codes, two(lines[0].at(row, first / 8, within), first % 8), 16 * half);
      } else {
        for (int64_t next : {0, 1})
          add(codes, one(lines[next].at(column + 8 * half, row * bits / 8, within)), 16 * half + 8 * next);
      }
    return codes;
  }

private:
  Value load(Value address, int64_t size) {
    Value loaded = LLVM::LoadOp::create(e.b, e.loc, e.b.getIntegerType(size), address, size / 8);
    return arith::ExtUIOp::create(e.b, e.loc, e.b.getI32Type(), loaded);
  }
  Value shiftLeft(Value x, int64_t by) {
    return by ? e.b.createOrFold<arith::ShLIOp>(e.loc, x, e.i32(by)) : x;
  }
  /// Two neighbours, the first in the low byte.
  Value two(Value address, int64_t offset) {
    if (bits == 8)
      return load(address, 16);
    Value codes = e.shr(load(address, 8), offset);
    codes = e.b.createOrFold<arith::ShRUIOp>(e.loc, codes, shift);
    int64_t mask = (1 << bits) - 1;
    Value second = shiftLeft(e.band(e.shr(codes, bits), mask), 8);
    return arith::OrIOp::create(e.b, e.loc, e.band(codes, mask), second);
  }
  Value one(Value address) {
    Value codes = load(address, 8);
    return bits == 8 ? codes : e.band(e.b.createOrFold<arith::ShRUIOp>(e.loc, codes, shift), (1 << bits) - 1);
  }
  void add(Value &codes, Value loaded, int64_t by) {
    loaded = shiftLeft(loaded, by);
    codes = codes ? arith::OrIOp::create(e.b, e.loc, codes, loaded).getResult() : loaded;
  }

  Emitter &e;
  int64_t bits;
  bool alongLines;
  Value within, shift;                 ///< a lane's own byte, and the bits before its value in that byte
  SmallVector<ByteAddresses, 2> lines; ///< of the first of two neighbours, and of the second
};

/// Loads runs of quantized values as memory holds them, 16 bytes at once if a run is that long. If features
/// are contracted, lanes of a quad read one line, each a quarter of a span; otherwise each quad reads an
/// eighth of four lines.
class Runs {
public:
  Runs(Emitter &e, SharedType tile, Value base, FragmentType type)
      : e(e), tile(tile), base(base), type(type), bits(tile.getElement().getIntOrFloatBitWidth()),
        contracted(type.getFeatureAxis() == 1) {
    if (contracted)
      lines.push_back(e.lanes.group);
    else
      for (int64_t next : {0, 1})
        lines.push_back(e.add(e.mul(e.lanes.quad, 2), next));
  }

  SmallVector<Value> load() {
    if (contracted) {
      for (int64_t row = 0; row < type.getSizes()[0]; row += 8)
        for (FragmentType::Span span : type.getSpans())
          loadRun(span, 0, row);
      return words;
    }
    for (FragmentType::Span span : type.getSpans())
      for (int64_t column = 0; column < type.getSizes()[1]; column += 16)
        for (int64_t i = 0; i < 4; ++i) // columns 2q, 2q + 1, 2q + 8, 2q + 9
          loadRun(span, i % 2, column + i / 2 * 8);
    return words;
  }

private:
  /// Loads the lane's part of a span, of the line that is `down` (a multiple of 8) below its own.
  void loadRun(FragmentType::Span span, size_t line, int64_t down) {
    int64_t first = span.first * bits / 8, run = span.size * bits / 8 / (contracted ? 4 : 8);
    const SharedType::Panel panel = tile.getPanels()[tile.getPanelOf(first / 16)];
    for (int64_t byte = 0; byte < run; byte += 16) {
      Value offset = offsetOf(line, panel, run, first / 16 - panel.chunk + byte / 16);
      Value from = e.sharedAt(e.sharedAt(base, offset), panel.offset + down * panel.width + first % 16);
      loadWords(from, std::min<int64_t>(run - byte, 16));
    }
  }

  /// The offset of the lane's run, whose first bytes are `chunk` chunks after those of the panel's first
  /// span.
  Value offsetOf(size_t line, const SharedType::Panel &panel, int64_t run, int64_t chunk) {
    Value &offset = offsets[{static_cast<int64_t>(line), panel.width, run, chunk}];
    if (offset)
      return offset;
    Value byte = e.mul(contracted ? e.lanes.quad : e.lanes.group, run), own = e.shr(byte, 4);
    offset = tile.getSwizzled() ? e.placeOf(tile, panel.width, lines[line], own)
                                : e.add(e.mul(lines[line], panel.width), e.mul(own, 16));
    offset = tile.getSwizzled() ? e.bxor(offset, chunk * 16) : e.add(offset, chunk * 16);
    if (run < 16)
      offset = e.add(offset, e.band(byte, 15));
    return offset;
  }

  void loadWords(Value from, int64_t bytes) {
    Type i32 = e.b.getI32Type();
    if (bytes < 4) {
      Value few = LLVM::LoadOp::create(e.b, e.loc, e.b.getIntegerType(bytes * 8), from, bytes);
      words.push_back(arith::ExtUIOp::create(e.b, e.loc, i32, few));
      return;
    }
    Value loaded = LLVM::LoadOp::create(e.b, e.loc, VectorType::get(bytes / 4, i32), from, bytes);
    for (int64_t i = 0; i < bytes / 4; ++i)
      words.push_back(LLVM::ExtractElementOp::create(e.b, e.loc, loaded, e.i32(i)));
  }

  Emitter &e;
  SharedType tile;
  Value base;
  FragmentType type;
  int64_t bits;
  bool contracted;
  SmallVector<Value, 2> lines;
  std::map<std::array<int64_t, 4>, Value> offsets;
  SmallVector<Value> words;
};

struct LoadRhsPattern : TilePattern<LoadRhsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadRhsOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    if (type.getOrder()) {
      rewriter.replaceOpWithMultiple(op, {Runs(e, op.getTile().getType(), adaptor.getTile(), type).load()});
      return success();
    }
    SingleCodes codes(e, op.getTile().getType(), adaptor.getTile(), type);
    SmallVector<Value> registers;
    for (int64_t row = 0; row < type.getSizes()[0]; row += 8)
      for (int64_t column = 0; column < type.getSizes()[1]; column += 16)
        registers.push_back(codes.block(row, column));
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

/// Element i of a word.
Value elementOf(Emitter &e, Value word, int64_t i, Type element) {
  if (element.getIntOrFloatBitWidth() == 16)
    word = arith::TruncIOp::create(e.b, e.loc, e.b.getI16Type(), e.shr(word, 16 * i));
  return e.bitcast(element, word);
}

/// A lane reads the whole line of each of its coordinates; two neighbours at once if they fill 16 bytes at
/// most.
struct LoadColumnsPattern : TilePattern<LoadColumnsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadColumnsOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    SharedType tile = op.getTile().getType();
    int64_t bytes = tile.getLineBytes(), columns = tile.getCols();
    SmallVector<SmallVector<Value>> registers(columns);
    for (auto [column, values] : llvm::zip(op.getColumns(), registers))
      if (cast<FragmentType>(column.getType()).getLayout() !=
          cast<FragmentType>(op.getColumns()[0].getType()).getLayout())
        return op.emitOpError("expected the same layout for all columns");
    bool rows = cast<FragmentType>(op.getColumns()[0].getType()).getLayout() == Layout::Row;
    int64_t together = !rows && bytes <= 8 ? 2 : 1;
    Value first =
        e.sharedAt(adaptor.getTile(), e.mul(rows ? e.lanes.group : e.lanes.quad, rows ? bytes : 2 * bytes));
    int64_t perWord = 32 / tile.getElement().getIntOrFloatBitWidth();
    auto type = VectorType::get(together * columns / perWord, rewriter.getI32Type());
    for (int64_t block = 0; block < tile.getRows(); block += 8)
      for (int64_t line = 0; line < (rows ? 1 : 2); line += together) {
        Value from = e.sharedAt(first, (block + line) * bytes);
        Value loaded = LLVM::LoadOp::create(rewriter, op.getLoc(), type, from, together * bytes);
        for (int64_t i = 0; i < together * columns; ++i) {
          Value word = LLVM::ExtractElementOp::create(rewriter, op.getLoc(), loaded, e.i32(i / perWord));
          registers[i % columns].push_back(elementOf(e, word, i % perWord, tile.getElement()));
        }
      }
    rewriter.replaceOpWithMultiple(op, SmallVector<ValueRange>(registers.begin(), registers.end()));
    return success();
  }
};

struct PartPattern : TilePattern<PartOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(PartOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    FragmentType source = op.getSource().getType(), result = op.getResult().getType();
    ValueRange registers = adaptor.getSource();
    int64_t rows = source.getSizes()[0] / (source.getLayout() == Layout::Rhs ? 8 : 16);
    int64_t line = registers.size() / rows, columns = source.getSizes()[1];
    int64_t size = result.getRegisters() / rows, first = line * int64_t(op.getFirst()) / columns;
    SmallVector<Value> part;
    for (int64_t row = 0; row < rows; ++row)
      llvm::append_range(part, registers.slice(row * line + first, size));
    rewriter.replaceOpWithMultiple(op, {part});
    return success();
  }
};

struct JoinPattern : TilePattern<JoinOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(JoinOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    const int64_t rows = op.getResult().getType().getSizes()[0] / 16;
    SmallVector<Value> joined;
    for (int64_t row = 0; row < rows; ++row)
      for (ValueRange source : adaptor.getSources()) {
        const int64_t line = source.size() / rows;
        llvm::append_range(joined, source.slice(row * line, line));
      }
    rewriter.replaceOpWithMultiple(op, {joined});
    return success();
  }
};

} // namespace

void tile::populateRhsPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                               const LaneMap &lanes) {
  patterns.add<LoadRhsPattern, LoadColumnsPattern, PartPattern, JoinPattern>(converter, patterns.getContext(),
                                                                             lanes);
}
