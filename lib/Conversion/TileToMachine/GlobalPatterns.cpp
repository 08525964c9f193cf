//===- GlobalPatterns.cpp - Global memory: plans, positions, results --------===//
#include "Patterns.h"

#include "attn_rt/PlanRecords.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

struct ReadPattern : TilePattern<ReadOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReadOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type type = op.getValue().getType();
    rewriter.replaceOp(op, e.loadGlobal(adaptor.getBuffer(), type, adaptor.getIndex(), type,
                                        type.getIntOrFloatBitWidth() / 8, !op.getWritten()));
    return success();
  }
};

struct ReadAdjacentPattern : TilePattern<ReadAdjacentOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReadAdjacentOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type element = op.getBuffer().getType().getElement();
    int64_t count = op.getNumResults();
    Value loaded =
        e.loadGlobal(adaptor.getBuffer(), element, adaptor.getIndex(), VectorType::get(count, element),
                     count * element.getIntOrFloatBitWidth() / 8, /*invariant=*/false);
    SmallVector<Value> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(LLVM::ExtractElementOp::create(rewriter, op.getLoc(), loaded, e.i32(i)));
    rewriter.replaceOp(op, values);
    return success();
  }
};

struct WriteAdjacentPattern : TilePattern<WriteAdjacentOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WriteAdjacentOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type element = op.getBuffer().getType().getElement();
    int64_t count = op.getValues().size();
    Value vector = LLVM::PoisonOp::create(rewriter, op.getLoc(), VectorType::get(count, element));
    for (auto [i, value] : llvm::enumerate(adaptor.getValues())) {
      if (value.getType() != element)
        value = arith::TruncFOp::create(rewriter, op.getLoc(), element, value);
      vector = LLVM::InsertElementOp::create(rewriter, op.getLoc(), vector, value, e.i32(i));
    }
    e.storeGlobal(vector, e.globalAt(adaptor.getBuffer(), element, adaptor.getIndex()),
                  count * element.getIntOrFloatBitWidth() / 8);
    rewriter.eraseOp(op);
    return success();
  }
};

template <typename OpT, NVVM::GridDepActionKind kind> struct GridPattern : TilePattern<OpT> {
  using TilePattern<OpT>::TilePattern;
  LogicalResult matchAndRewrite(OpT op, typename OpT::Adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::GriddepcontrolOp>(op, kind);
    return success();
  }
};
using StartNextPattern = GridPattern<StartNextOp, NVVM::GridDepActionKind::launch_dependents>;
using AwaitPreviousPattern = GridPattern<AwaitPreviousOp, NVVM::GridDepActionKind::wait>;

/// Even lanes read the first element, odd ones the second: one request instead of two.
struct ReadRangePattern : TilePattern<ReadRangeOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReadRangeOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type i32 = rewriter.getI32Type();
    Value index = e.add(adaptor.getIndex(), e.widen(e.band(e.lanes.lane, 1)));
    Value mine = e.loadGlobal(adaptor.getBuffer(), i32, index, i32, 4);
    SmallVector<Value> ends;
    for (int64_t lane : {0, 1})
      ends.push_back(e.shuffle(NVVM::ShflKind::idx, mine, e.i32(lane)));
    rewriter.replaceOp(op, ends);
    return success();
  }
};

/// A record in one request: each lane loads an integer, and takes all of them from the lanes that have them.
/// That says in a form ptxas understands that they are uniform, and so is all that follows from them: trip
/// counts, slots and descriptors live in uniform registers.
struct RecordPattern : TilePattern<RecordOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(RecordOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    if (!adaptor.getExists()) {
      rewriter.replaceOp(op, read(op, adaptor, rewriter));
      return success();
    }
    Location loc = op.getLoc();
    auto branch =
        scf::IfOp::create(rewriter, loc, op.getResultTypes(), adaptor.getExists(), /*withElseRegion=*/true);
    rewriter.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(rewriter, loc, read(op, adaptor, rewriter));
    rewriter.setInsertionPointToStart(branch.elseBlock());
    Value zero = arith::ConstantIntOp::create(rewriter, loc, 0, 32);
    scf::YieldOp::create(rewriter, loc, SmallVector<Value>(op.getNumResults(), zero));
    rewriter.replaceOp(op, branch);
    return success();
  }

  SmallVector<Value> read(RecordOp op, OpAdaptor adaptor, OpBuilder &builder) const {
    Emitter e = emitter(op, builder);
    Type i32 = builder.getI32Type();
    int64_t count = op.getNumResults(), width = ::attn::rt::planRecordWords(count);
    Value field = width == 8 ? e.band(e.lanes.lane, 7) : e.min(e.lanes.lane, e.i32(count - 1));
    Value index = e.add(e.mul(e.widen(adaptor.getIndex()), width), e.widen(field));
    Value mine = e.loadGlobal(adaptor.getBuffer(), i32, index, i32, 4);
    SmallVector<Value> fields;
    for (size_t i = 0; i < op.getNumResults(); ++i)
      fields.push_back(e.shuffle(NVVM::ShflKind::idx, mine, e.i32(i)));
    return fields;
  }
};

struct WritePattern : TilePattern<WriteOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WriteOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type element = op.getBuffer().getType().getElement();
    Value value = adaptor.getValue();
    if (value.getType() != element)
      value = arith::TruncFOp::create(rewriter, op.getLoc(), element, value);
    e.storeGlobal(value, e.globalAt(adaptor.getBuffer(), element, adaptor.getIndex()),
                  element.getIntOrFloatBitWidth() / 8);
    rewriter.eraseOp(op);
    return success();
  }
};

/// Element of a lane's register i along the first axis of a fragment, counted from the fragment's first.
Value lineOfRegister(Emitter &e, Layout layout, int64_t i) {
  if (layout == Layout::Row)
    return e.add(e.lanes.group, 16 * (i / 2) + 8 * (i % 2));
  return e.add(e.mul(e.lanes.quad, 2), 8 * (i / 2) + i % 2); // Col
}

struct LoadVectorPattern : TilePattern<LoadVectorOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadVectorOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    Type element = type.getElement();
    auto load = [&](Value line) {
      Value index = inlineRegion(op.getIndex(), line, rewriter);
      return e.loadGlobal(adaptor.getBuffer(), element, index, element, element.getIntOrFloatBitWidth() / 8);
    };
    SmallVector<Value> values;
    if (type.getLayout() == Layout::Row && type.getSizes()[0] == 16) {
      // Sixteen rows in one request: each lane reads one, and takes its own by shuffle.
      Value mine = load(e.band(e.lanes.lane, 15));
      for (int64_t i = 0; i < 2; ++i)
        values.push_back(e.shuffle(NVVM::ShflKind::idx, mine, lineOfRegister(e, type.getLayout(), i)));
    } else {
      for (int64_t i = 0; i < type.getRegisters(); ++i)
        values.push_back(load(lineOfRegister(e, type.getLayout(), i)));
    }
    rewriter.replaceOpWithMultiple(op, {values});
    return success();
  }
};

/// Accumulators go out a full 32-byte sector per quad: fp32 as they lie, 16-bit after neighbouring lanes have
/// exchanged halves of two adjacent 8-column blocks.
struct StorePattern : TilePattern<StoreOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(StoreOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    if (type.getRank() == 1) {
      storeVector(e, op, adaptor, rewriter);
    } else {
      for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row) // 8 lines at a time
        storeLines(e, op, adaptor, row, rewriter);
    }
    rewriter.eraseOp(op);
    return success();
  }

private:
  using Guarded = function_ref<void(OpBuilder &)>;
  static void guarded(OpBuilder &b, Location loc, Value condition, Guarded body) {
    scf::IfOp::create(b, loc, condition, [&](OpBuilder &builder, Location inner) {
      body(builder);
      scf::YieldOp::create(builder, inner);
    });
  }

  /// One lane of those that hold an element writes it.
  static void storeVector(Emitter &e, StoreOp op, OneToNOpAdaptor adaptor,
                          ConversionPatternRewriter &rewriter) {
    FragmentType type = op.getFragment().getType();
    Type element = op.getBuffer().getType().getElement();
    Value place = type.getLayout() == Layout::Row ? e.lanes.quad : e.lanes.group;
    Value first =
        rewriter.createOrFold<arith::CmpIOp>(op.getLoc(), arith::CmpIPredicate::eq, place, e.i32(0));
    for (auto [i, value] : llvm::enumerate(adaptor.getFragment())) {
      Value line = lineOfRegister(e, type.getLayout(), i), lines = adaptor.getLines().front();
      guarded(rewriter, op.getLoc(), e.both(first, e.less(line, lines)), [&](OpBuilder &builder) {
        Emitter inner(builder, op.getLoc(), e.lanes);
        Value index = inlineRegion(op.getIndex(), line, builder);
        inner.storeGlobal(value, inner.globalAt(adaptor.getBuffer().front(), element, index), 4);
      });
    }
  }

  /// What a lane writes at once.
  struct Part {
    Value column, value; ///< column in the fragment
    int64_t end;         ///< no lane writes columns from here on
  };

  static void storeLines(Emitter &e, StoreOp op, OneToNOpAdaptor adaptor, int64_t row,
                         ConversionPatternRewriter &rewriter) {
    Type element = op.getBuffer().getType().getElement();
    Value column = adaptor.getColumn().empty() ? Value() : adaptor.getColumn().front();
    int64_t blocks = op.getFragment().getType().getSizes()[1] / 8;
    Value line = e.add(e.lanes.group, row * 8);
    auto pairOf = [&](int64_t block) {
      return adaptor.getFragment().slice(((row / 2) * blocks + block) * 4 + (row % 2) * 2, 2);
    };
    SmallVector<Part> parts =
        element.isF32() ? wholeParts(e, element, blocks, pairOf) : packedParts(e, element, blocks, pairOf);
    guarded(rewriter, op.getLoc(), e.less(line, adaptor.getLines().front()), [&](OpBuilder &builder) {
      Emitter inner(builder, op.getLoc(), e.lanes);
      Value index = inlineRegion(op.getIndex(), line, builder);
      for (auto [local, value, end] : parts) {
        Value col = column ? inner.add(local, column) : local;
        auto store = [&](OpBuilder &at) {
          Emitter atom(at, op.getLoc(), e.lanes);
          Value place = atom.add(index, atom.widen(col));
          atom.storeGlobal(value, atom.globalAt(adaptor.getBuffer().front(), element, place), 8);
        };
        if (!op.getColumns() || (!column && end <= static_cast<int64_t>(*op.getColumns())))
          store(builder);
        else
          guarded(builder, op.getLoc(), inner.less(col, inner.i32(*op.getColumns())), store);
      }
    });
  }

  using PairOf = function_ref<ValueRange(int64_t)>;
  static Value vectorOf(Emitter &e, Type element, Value first, Value second) {
    Value vector = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(2, element));
    vector = LLVM::InsertElementOp::create(e.b, e.loc, vector, first, e.i32(0));
    return LLVM::InsertElementOp::create(e.b, e.loc, vector, second, e.i32(1));
  }

  static SmallVector<Part> wholeParts(Emitter &e, Type element, int64_t blocks, PairOf pairOf) {
    SmallVector<Part> parts;
    for (int64_t block = 0; block < blocks; ++block) {
      Value vector = vectorOf(e, element, pairOf(block)[0], pairOf(block)[1]);
      parts.push_back({e.add(e.mul(e.lanes.quad, 2), block * 8), vector, block * 8 + 8});
    }
    return parts;
  }

  static SmallVector<Part> packedParts(Emitter &e, Type element, int64_t blocks, PairOf pairOf) {
    SmallVector<Part> parts;
    Value odd = e.band(e.lanes.quad, 1);
    Value isOdd = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::ne, odd, e.i32(0));
    for (int64_t block = 0; block < blocks; block += 2) {
      Value even = e.pack(pairOf(block)[0], pairOf(block)[1], element);
      Value next = e.pack(pairOf(block + 1)[0], pairOf(block + 1)[1], element);
      Value received = e.shuffle(NVVM::ShflKind::bfly, e.select(isOdd, even, next), e.i32(1));
      Value low = e.select(isOdd, received, even), high = e.select(isOdd, next, received);
      Value firstColumn = e.add(e.mul(e.sub(e.lanes.quad, odd), 2), e.mul(odd, 8));
      parts.push_back(
          {e.add(firstColumn, block * 8), vectorOf(e, e.b.getI32Type(), low, high), block * 8 + 16});
    }
    return parts;
  }
};
} // namespace

void tile::populateGlobalPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                  const LaneMap &lanes) {
  patterns.add<StartNextPattern, AwaitPreviousPattern, ReadPattern, ReadAdjacentPattern, WriteAdjacentPattern,
               ReadRangePattern, RecordPattern, WritePattern, LoadVectorPattern, StorePattern>(
      converter, patterns.getContext(), lanes);
}
