//===- GlobalPatterns.cpp - Global memory: plans, positions, results --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "attn/Dialect/Tile/IR/Signals.h"

#include "attn_rt/artifact/PlanRecords.h"

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
    Value loaded = e.loadGlobal(adaptor.getBuffer(), type, adaptor.getIndex(), type,
                                type.getIntOrFloatBitWidth() / 8, !op.getWritten());
    passCacheHint(op, loaded.getDefiningOp());
    rewriter.replaceOp(op, loaded);
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
    passCacheHint(op, loaded.getDefiningOp());
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
    Value stored = isa<Float8E4M3FNType>(element) ? packed(e, adaptor.getValues())
                                                  : vectorOf(e, element, adaptor.getValues());
    e.storeGlobal(stored, e.globalAt(adaptor.getBuffer(), element, adaptor.getIndex()),
                  count * element.getIntOrFloatBitWidth() / 8);
    rewriter.eraseOp(op);
    return success();
  }

private:
  static Value vectorOf(Emitter &e, Type element, ValueRange values) {
    Value vector = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(values.size(), element));
    for (auto [i, value] : llvm::enumerate(values)) {
      if (value.getType() != element)
        value = arith::TruncFOp::create(e.b, e.loc, element, value);
      vector = LLVM::InsertElementOp::create(e.b, e.loc, vector, value, e.i32(i));
    }
    return vector;
  }
  /// Two or four numbers in e4m3, which are bytes to LLVM.
  static Value packed(Emitter &e, ValueRange values) {
    if (values.size() == 4)
      return e.packE4M3(values[0], values[1], values[2], values[3]);
    return arith::TruncIOp::create(e.b, e.loc, e.b.getI16Type(), e.packE4M3(values[0], values[1]));
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
using WaitPreviousPattern = GridPattern<WaitPreviousOp, NVVM::GridDepActionKind::wait>;

/// Even lanes read the first element, odd lanes the second: one request instead of two.
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

/// Reads a record in one request: each lane loads an integer, and takes all of them from the lanes that have
/// them. ptxas then sees that they are uniform, and so is all that follows from them: trip counts, slots and
/// descriptors live in uniform registers.
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

struct PackedSlotPattern : TilePattern<PackedSlotOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(PackedSlotOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value row = adaptor.getRow(), group = e.i32(op.getGroup());
    Value query = rewriter.createOrFold<arith::DivUIOp>(op.getLoc(), row, group);
    Value head = e.add(e.mul(adaptor.getHead(), op.getGroup()),
                       rewriter.createOrFold<arith::RemUIOp>(op.getLoc(), row, group));
    SmallVector<Value> pitches;
    for (Value pitch : adaptor.getPitches())
      pitches.push_back(rewriter.createOrFold<arith::DivUIOp>(op.getLoc(), pitch, e.i32(*op.getBytes())));
    if (op.getSlot().getType().isInteger(64)) {
      query = e.widen(query), head = e.widen(head);
      for (Value &pitch : pitches)
        pitch = e.widen(pitch);
    }
    Value slot = pitches.empty() ? e.add(e.mul(query, *op.getHeads()), head)
                                 : e.add(e.mul(query, pitches[0]), e.mul(head, pitches[1]));
    rewriter.replaceOp(op, slot);
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
    Value place = e.globalAt(adaptor.getBuffer(), element, adaptor.getIndex());
    passCacheHint(op, e.storeGlobal(value, place, element.getIntOrFloatBitWidth() / 8));
    rewriter.eraseOp(op);
    return success();
  }
};

struct AddToPattern : TilePattern<AddToOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(AddToOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value place = e.globalAt(adaptor.getBuffer(), op.getBuffer().getType().getElement(), adaptor.getIndex());
    LLVM::AtomicRMWOp::create(rewriter, op.getLoc(), LLVM::AtomicBinOp::add, place, adaptor.getValue(),
                              LLVM::AtomicOrdering::monotonic);
    rewriter.eraseOp(op);
    return success();
  }
};

struct SignalPattern : TilePattern<SignalOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(SignalOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value place = e.globalAt(adaptor.getBuffer(), rewriter.getI32Type(), adaptor.getIndex());
    LLVM::StoreOp store = e.storeGlobal(adaptor.getValue(), place, 4);
    store.setOrdering(LLVM::AtomicOrdering::release); // at system scope, the default
    rewriter.eraseOp(op);
    return success();
  }
};

/// Loads until the value is reached. Only a value that is late makes the lane read the clock.
struct WaitSignalPattern : TilePattern<WaitSignalOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WaitSignalOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Location loc = op.getLoc();
    Type i64 = rewriter.getI64Type(), i1 = rewriter.getI1Type();
    Value place = e.globalAt(adaptor.getBuffer(), rewriter.getI32Type(), adaptor.getIndex());
    Value none = arith::ConstantIntOp::create(rewriter, loc, 0, 64);
    auto is = [&](OpBuilder &b, arith::CmpIPredicate predicate, Value x, Value y) -> Value {
      return arith::CmpIOp::create(b, loc, predicate, x, y);
    };
    // Carries when the first late value was seen, and the time that has passed since.
    auto loop = scf::WhileOp::create(
        rewriter, loc, TypeRange{i1, i64}, ValueRange{none, none},
        [&](OpBuilder &b, Location, ValueRange carried) {
          auto load = LLVM::LoadOp::create(b, loc, rewriter.getI32Type(), place, /*alignment=*/4);
          load.setOrdering(LLVM::AtomicOrdering::acquire); // at system scope, the default
          Value ahead = arith::SubIOp::create(b, loc, load, adaptor.getValue());
          Value zero = arith::ConstantIntOp::create(b, loc, 0, 32);
          Value reached = is(b, arith::CmpIPredicate::sge, ahead, zero);
          Value late = is(b, arith::CmpIPredicate::slt, ahead, zero);
          Value left = is(b, arith::CmpIPredicate::slt, carried[1], adaptor.getLimit());
          Value again = arith::AndIOp::create(b, loc, late, left);
          scf::ConditionOp::create(b, loc, again, ValueRange{reached, carried[0]});
        },
        [&](OpBuilder &b, Location, ValueRange given) {
          Value now = LLVM::CallIntrinsicOp::create(
                          b, loc, i64, b.getStringAttr("llvm.nvvm.read.ptx.sreg.globaltimer"), ValueRange{})
                          .getResult(0);
          Value isFirst = is(b, arith::CmpIPredicate::eq, given[1], none);
          Value begin = arith::SelectOp::create(b, loc, isFirst, now, given[1]);
          Value passed = arith::SubIOp::create(b, loc, now, begin);
          scf::YieldOp::create(b, loc, ValueRange{begin, passed});
        });
    rewriter.replaceOp(op, loop.getResult(0));
    return success();
  }
};

/// The scope of blocks of one launch.
constexpr StringLiteral deviceScope = "device";

struct SemaphorePostPattern : TilePattern<SemaphorePostOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(SemaphorePostOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    e.doIf(e.isFirstLane(), [&](Emitter &at) {
      Value place = at.globalAt(adaptor.getBuffer(), at.b.getI32Type(), adaptor.getIndex());
      LLVM::StoreOp store = at.storeGlobal(adaptor.getValue(), place, 4);
      store.setOrdering(LLVM::AtomicOrdering::release);
      store.setSyncscope(deviceScope);
    });
    rewriter.eraseOp(op);
    return success();
  }
};

/// Loads until the value is reached, without a fence: what follows is a reduction, which the L2 makes after
/// the other block's. The host device lets other blocks go first when the clock is read.
struct SemaphoreWaitPattern : TilePattern<SemaphoreWaitOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(SemaphoreWaitOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    e.doIf(e.isFirstLane(), [&](Emitter &at) {
      Value place = at.globalAt(adaptor.getBuffer(), at.b.getI32Type(), adaptor.getIndex());
      scf::WhileOp::create(
          at.b, at.loc, TypeRange(), ValueRange(),
          [&](OpBuilder &b, Location loc, ValueRange) {
            auto load = LLVM::LoadOp::create(b, loc, b.getI32Type(), place, /*alignment=*/4);
            load.setOrdering(LLVM::AtomicOrdering::monotonic);
            load.setSyncscope(deviceScope);
            Value early = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, load, adaptor.getValue());
            scf::ConditionOp::create(b, loc, early, ValueRange());
          },
          [&](OpBuilder &b, Location loc, ValueRange) {
            LLVM::CallIntrinsicOp::create(
                b, loc, b.getI64Type(), b.getStringAttr("llvm.nvvm.read.ptx.sreg.globaltimer"), ValueRange{});
            scf::YieldOp::create(b, loc);
          });
    });
    rewriter.eraseOp(op);
    return success();
  }
};

struct LoadVectorPattern : TilePattern<LoadVectorOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadVectorOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    Type element = type.getElement();
    auto load = [&](Value line) {
      Value index = e.widen(inlineRegion(op.getIndex(), line, rewriter));
      return e.loadGlobal(adaptor.getBuffer(), element, index, element, element.getIntOrFloatBitWidth() / 8);
    };
    SmallVector<Value> values;
    if (type.getLayout() == Layout::Row && type.getSizes()[0] == 16 &&
        element.getIntOrFloatBitWidth() == 32) {
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

} // namespace

void tile::populateGlobalPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                  const LaneMap &lanes) {
  patterns.add<StartNextPattern, WaitPreviousPattern, ReadPattern, ReadAdjacentPattern, WriteAdjacentPattern,
               ReadRangePattern, RecordPattern, PackedSlotPattern, WritePattern, AddToPattern, SignalPattern,
               WaitSignalPattern, SemaphorePostPattern, SemaphoreWaitPattern, LoadVectorPattern>(
      converter, patterns.getContext(), lanes);
}
