//===- LoadPatterns.cpp - Fragments from global memory ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Reads what StorePattern wrote: each lane the elements that it wrote itself, so that no lane waits for
/// another.
struct LoadLinesPattern : TilePattern<LoadLinesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadLinesOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    SmallVector<Value> registers(type.getRegisters());
    if (type.getRank() == 1)
      loadVector(e, op, adaptor, registers);
    else
      for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row) // 8 lines at a time
        loadLines(e, op, adaptor, row, registers);
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }

private:
  /// The values of `body` where `condition` holds, else zeros.
  static SmallVector<Value> readIf(Emitter &e, Value condition, size_t count,
                                   function_ref<SmallVector<Value>(Emitter &)> body) {
    SmallVector<Type> types(count, e.b.getF32Type());
    auto branch = scf::IfOp::create(e.b, e.loc, types, condition, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(e.b);
    e.b.setInsertionPointToStart(branch.elseBlock());
    Value zero = arith::ConstantOp::create(e.b, e.loc, e.b.getF32FloatAttr(0));
    scf::YieldOp::create(e.b, e.loc, SmallVector<Value>(count, zero));
    e.b.setInsertionPointToStart(branch.thenBlock());
    Emitter inner(e.b, e.loc, e.lanes);
    scf::YieldOp::create(e.b, e.loc, body(inner));
    return SmallVector<Value>(branch.getResults());
  }

  static Value indexOf(Emitter &e, LoadLinesOp op, Value line) {
    return e.mul(e.widen(inlineRegion(op.getSlot(), line, e.b)), op.getStride());
  }

  /// The lane that wrote an element reads it, and hands it to the others that hold it.
  static void loadVector(Emitter &e, LoadLinesOp op, OneToNOpAdaptor adaptor,
                         MutableArrayRef<Value> registers) {
    Type f32 = e.b.getF32Type();
    const bool byRow = op.getFragment().getType().getLayout() == Layout::Row;
    Value place = byRow ? e.lanes.quad : e.lanes.group;
    Value writer = e.sub(e.lanes.lane, byRow ? place : e.mul(place, 4));
    Value first = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, place, e.i32(0));
    for (size_t i = 0; i < registers.size(); ++i) {
      Value line = lineOfRegister(e, op.getFragment().getType().getLayout(), i);
      Value read = readIf(e, e.both(first, e.less(line, adaptor.getLines().front())), 1, [&](Emitter &inner) {
                     return SmallVector<Value>{inner.loadGlobal(adaptor.getBuffer().front(), f32,
                                                                indexOf(inner, op, line), f32, 4,
                                                                /*invariant=*/false)};
                   }).front();
      registers[i] = e.shuffle(NVVM::ShflKind::idx, read, writer);
    }
  }

  static void loadLines(Emitter &e, LoadLinesOp op, OneToNOpAdaptor adaptor, int64_t row,
                        MutableArrayRef<Value> registers) {
    Type f32 = e.b.getF32Type();
    const int64_t blocks = op.getFragment().getType().getSizes()[1] / 8;
    Value column = adaptor.getColumn().empty() ? Value() : adaptor.getColumn().front();
    Value line = e.add(e.lanes.group, row * 8);
    auto pairAt = [&](Emitter &at, Value index, Value col) {
      Value pair = at.loadGlobal(adaptor.getBuffer().front(), f32, at.add(index, at.widen(col)),
                                 VectorType::get(2, f32), 8, /*invariant=*/false);
      return SmallVector<Value>{LLVM::ExtractElementOp::create(at.b, at.loc, pair, at.i32(0)),
                                LLVM::ExtractElementOp::create(at.b, at.loc, pair, at.i32(1))};
    };
    SmallVector<Value> values =
        readIf(e, e.less(line, adaptor.getLines().front()), 2 * blocks, [&](Emitter &inner) {
          SmallVector<Value> all;
          Value index = indexOf(inner, op, line);
          for (int64_t block = 0; block < blocks; ++block) {
            Value local = inner.add(inner.mul(inner.lanes.quad, 2), block * 8);
            Value col = column ? inner.add(local, column) : local;
            const bool exists =
                !op.getColumns() || (!column && block * 8 + 8 <= static_cast<int64_t>(*op.getColumns()));
            llvm::append_range(all, exists ? pairAt(inner, index, col)
                                           : readIf(inner, inner.less(col, inner.i32(*op.getColumns())), 2,
                                                    [&](Emitter &at) { return pairAt(at, index, col); }));
          }
          return all;
        });
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t i = 0; i < 2; ++i)
        registers[((row / 2) * blocks + block) * 4 + (row % 2) * 2 + i] = values[2 * block + i];
  }
};

/// Reads what StoreLanesPattern wrote.
struct LoadLanesPattern : TilePattern<LoadLanesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadLanesOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type f32 = rewriter.getF32Type();
    SmallVector<Value> registers;
    for (int64_t first = 0; first < op.getFragment().getType().getRegisters(); first += lanesUnit) {
      Value unit =
          e.loadGlobal(adaptor.getBuffer().front(), f32, indexOfUnit(e, adaptor.getIndex().front(), first),
                       VectorType::get(lanesUnit, f32), lanesUnit * 4, /*invariant=*/false);
      for (int64_t i = 0; i < lanesUnit; ++i)
        registers.push_back(LLVM::ExtractElementOp::create(rewriter, op.getLoc(), unit, e.i32(i)));
    }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

/// Four lanes read a full sector at once, as StorePattern writes: a lane has four adjacent columns of one of
/// two 8-column blocks, and neighbouring lanes exchange halves. If features lie in runs or the fragment is
/// wide, a lane reads what it holds. Nothing branches, so that loads may run ahead as far as there are
/// registers.
struct LoadFeaturesPattern : TilePattern<LoadFeaturesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadFeaturesOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    SmallVector<Value> registers(type.getRegisters());
    const int64_t blocks = type.getSizes()[1] / 8;
    for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row) { // 8 lines at a time
      Value begin = e.widen(inlineRegion(op.getSlot(), e.add(e.lanes.group, row * 8), e.b));
      Line line{op, adaptor, begin, [&](int64_t block, int64_t i, Value value) {
                  registers[((row / 2) * blocks + block) * 4 + (row % 2) * 2 + i] = value;
                }};
      if (!type.getOrder()) {
        for (int64_t block = 0; block < blocks; block += 2)
          blocks <= mostExchanged ? loadPair(e, line, block) : loadOwn(e, line, block);
        continue;
      }
      for (FragmentType::Span span : type.getSpans())
        loadRuns(e, line, span);
    }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }

private:
  struct Line {
    LoadFeaturesOp op;
    OneToNOpAdaptor adaptor;
    Value begin;
    llvm::unique_function<void(int64_t block, int64_t i, Value value)> set;
  };

  /// The most 8-column blocks whose halves are exchanged. Wider fragments leave too few registers: ptxas
  /// runs shuffles ahead, too, and spills.
  static constexpr int64_t mostExchanged = 16;

  /// Loads two 8-column blocks; each lane reads what it holds.
  static void loadOwn(Emitter &e, Line &line, int64_t block) {
    for (int64_t next = block; next < block + 2; ++next) {
      Value loaded = read(e, line, e.add(e.mul(e.lanes.quad, 2), next * 8), next * 8 + 8, 2);
      for (int64_t i = 0; i < 2; ++i)
        line.set(next, i, wide(e, loaded, i));
    }
  }

  /// Loads two 8-column blocks.
  static void loadPair(Emitter &e, Line &line, int64_t block) {
    Value odd = e.band(e.lanes.quad, 1);
    Value isOdd = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::ne, odd, e.i32(0));
    Value column = e.add(e.add(e.mul(e.sub(e.lanes.quad, odd), 2), e.mul(odd, 8)), block * 8);
    Value words = e.bitcast(VectorType::get(2, e.b.getI32Type()), read(e, line, column, block * 8 + 16, 4));
    Value first = LLVM::ExtractElementOp::create(e.b, e.loc, words, e.i32(0));
    Value second = LLVM::ExtractElementOp::create(e.b, e.loc, words, e.i32(1));
    Value received = e.shuffle(NVVM::ShflKind::bfly, e.select(isOdd, first, second), e.i32(1));
    Type pair = VectorType::get(2, line.op.getBuffer().getType().getElement());
    Value low = e.bitcast(pair, e.select(isOdd, received, first));
    Value high = e.bitcast(pair, e.select(isOdd, second, received));
    for (int64_t i = 0; i < 2; ++i) {
      line.set(block, i, wide(e, low, i));
      line.set(block + 1, i, wide(e, high, i));
    }
  }

  /// Loads a span in which a lane has adjacent features: columns 2q and 2q + 1 of its blocks.
  static void loadRuns(Emitter &e, Line &line, FragmentType::Span span) {
    const int64_t run = span.size / 8, chunk = std::min<int64_t>(2 * run, 8);
    Value lane = e.add(e.mul(e.lanes.quad, 2 * run), span.first);
    for (int64_t first = 0; first < 2 * run; first += chunk) {
      Value loaded = read(e, line, e.add(lane, first), span.first + span.size, chunk);
      for (int64_t i = 0; i < chunk; ++i)
        line.set(span.first / 8 + (first + i) % run, (first + i) / run, wide(e, loaded, i));
    }
  }

  /// Reads adjacent columns; no lane reads columns of the fragment from `end` on.
  static Value read(Emitter &e, Line &line, Value column, int64_t end, int64_t count) {
    Type element = line.op.getBuffer().getType().getElement();
    const bool offset = !line.adaptor.getColumn().empty();
    if (offset)
      column = e.add(column, line.adaptor.getColumn().front());
    if (line.op.getColumns() && (offset || end > static_cast<int64_t>(*line.op.getColumns())))
      column = e.min(column, e.i32(static_cast<int64_t>(*line.op.getColumns()) - count));
    return e.loadGlobal(line.adaptor.getBuffer().front(), element, e.add(line.begin, e.widen(column)),
                        VectorType::get(count, element), count * 2, /*invariant=*/true);
  }

  static Value wide(Emitter &e, Value loaded, int64_t i) {
    Value half = LLVM::ExtractElementOp::create(e.b, e.loc, loaded, e.i32(i));
    return arith::ExtFOp::create(e.b, e.loc, e.b.getF32Type(), half);
  }
};

} // namespace

void tile::populateLoadPattern(const TypeConverter &converter, RewritePatternSet &patterns,
                               const LaneMap &lanes) {
  patterns.add<LoadLinesPattern, LoadLanesPattern, LoadFeaturesPattern>(converter, patterns.getContext(),
                                                                        lanes);
}
