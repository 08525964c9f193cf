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
    Emitter e = emitter(op, rewriter);
    Type i32 = rewriter.getI32Type();
    int64_t count = op.getNumResults(), width = ::attn::rt::planRecordWords(count);
    Value field = width == 8 ? e.band(e.lanes.lane, 7) : e.min(e.lanes.lane, e.i32(count - 1));
    Value index = e.add(e.mul(e.widen(adaptor.getIndex()), width), e.widen(field));
    Value mine = e.loadGlobal(adaptor.getBuffer(), i32, index, i32, 4);
    SmallVector<Value> fields;
    for (size_t i = 0; i < op.getNumResults(); ++i)
      fields.push_back(e.shuffle(NVVM::ShflKind::idx, mine, e.i32(i)));
    rewriter.replaceOp(op, fields);
    return success();
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
    Type element = op.getBuffer().getType().getElement();
    Value buffer = adaptor.getBuffer().front(), lines = adaptor.getLines().front();
    Value column = adaptor.getColumn().empty() ? Value() : adaptor.getColumn().front();
    ValueRange registers = adaptor.getFragment();

    auto guarded = [&](Value condition, function_ref<void(OpBuilder &)> body) {
      scf::IfOp::create(rewriter, op.getLoc(), condition, [&](OpBuilder &builder, Location loc) {
        body(builder);
        scf::YieldOp::create(builder, loc);
      });
    };

    if (type.getRank() == 1) {
      Value place = type.getLayout() == Layout::Row ? e.lanes.quad : e.lanes.group;
      Value first =
          rewriter.createOrFold<arith::CmpIOp>(op.getLoc(), arith::CmpIPredicate::eq, place, e.i32(0));
      for (auto [i, value] : llvm::enumerate(registers)) {
        Value line = lineOfRegister(e, type.getLayout(), i);
        guarded(e.both(first, e.less(line, lines)), [&](OpBuilder &builder) {
          Emitter inner(builder, op.getLoc(), e.lanes);
          Value index = inlineRegion(op.getIndex(), line, builder);
          inner.storeGlobal(value, inner.globalAt(buffer, element, index), 4);
        });
      }
      rewriter.eraseOp(op);
      return success();
    }

    int64_t blocks = type.getSizes()[1] / 8;
    Value odd = e.band(e.lanes.quad, 1);
    Value isOdd = rewriter.createOrFold<arith::CmpIOp>(op.getLoc(), arith::CmpIPredicate::ne, odd, e.i32(0));
    for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row) { // 8 lines at a time
      Value line = e.add(e.lanes.group, row * 8);
      auto pairOf = [&](int64_t block) {
        return registers.slice(((row / 2) * blocks + block) * 4 + (row % 2) * 2, 2);
      };
      struct Part {
        Value column, value; ///< column in the fragment
        int64_t end;         ///< no lane writes columns from here on
      };
      SmallVector<Part> stores;
      if (element.isF32()) {
        for (int64_t block = 0; block < blocks; ++block) {
          Value vector = LLVM::PoisonOp::create(rewriter, op.getLoc(), VectorType::get(2, element));
          for (int64_t i = 0; i < 2; ++i)
            vector = LLVM::InsertElementOp::create(rewriter, op.getLoc(), vector, pairOf(block)[i], e.i32(i));
          stores.push_back({e.add(e.mul(e.lanes.quad, 2), block * 8), vector, block * 8 + 8});
        }
      } else {
        for (int64_t block = 0; block < blocks; block += 2) {
          Value even = e.pack(pairOf(block)[0], pairOf(block)[1], element);
          Value next = e.pack(pairOf(block + 1)[0], pairOf(block + 1)[1], element);
          Value received = e.shuffle(NVVM::ShflKind::bfly, e.select(isOdd, even, next), e.i32(1));
          Value low = e.select(isOdd, received, even), high = e.select(isOdd, next, received);
          Value vector =
              LLVM::PoisonOp::create(rewriter, op.getLoc(), VectorType::get(2, rewriter.getI32Type()));
          vector = LLVM::InsertElementOp::create(rewriter, op.getLoc(), vector, low, e.i32(0));
          vector = LLVM::InsertElementOp::create(rewriter, op.getLoc(), vector, high, e.i32(1));
          Value firstColumn = e.add(e.mul(e.sub(e.lanes.quad, odd), 2), e.mul(odd, 8));
          stores.push_back({e.add(firstColumn, block * 8), vector, block * 8 + 16});
        }
      }
      guarded(e.less(line, lines), [&](OpBuilder &builder) {
        Emitter inner(builder, op.getLoc(), e.lanes);
        Value index = inlineRegion(op.getIndex(), line, builder);
        for (auto [local, value, end] : stores) {
          Value col = column ? inner.add(local, column) : local;
          auto store = [&](OpBuilder &at) {
            Emitter atom(at, op.getLoc(), e.lanes);
            atom.storeGlobal(value, atom.globalAt(buffer, element, atom.add(index, atom.widen(col))), 8);
          };
          if (!op.getColumns() || (!column && end <= static_cast<int64_t>(*op.getColumns()))) {
            store(builder);
            continue;
          }
          scf::IfOp::create(builder, op.getLoc(), inner.less(col, inner.i32(*op.getColumns())),
                            [&](OpBuilder &at, Location loc) {
                              store(at);
                              scf::YieldOp::create(at, loc);
                            });
        }
      });
    }
    rewriter.eraseOp(op);
    return success();
  }
};
} // namespace

void tile::populateGlobalPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                  const LaneMap &lanes) {
  patterns.add<StartNextPattern, AwaitPreviousPattern, ReadPattern, ReadAdjacentPattern, WriteAdjacentPattern,
               ReadRangePattern, RecordPattern, WritePattern, LoadVectorPattern, StorePattern>(
      converter, patterns.getContext(), lanes);
}
