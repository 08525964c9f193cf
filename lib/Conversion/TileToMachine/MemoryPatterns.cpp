//===- MemoryPatterns.cpp - Shared memory, copies and uniform reads -------===//
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

struct WarpIdPattern : TilePattern<WarpIdOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WarpIdOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, emitter(op, rewriter).lanes.warp);
    return success();
  }
};

struct LaneIdPattern : TilePattern<LaneIdOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LaneIdOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, emitter(op, rewriter).lanes.lane);
    return success();
  }
};

struct BlockIdPattern : TilePattern<BlockIdOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(BlockIdOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::BlockIdXOp>(op, rewriter.getI32Type());
    return success();
  }
};

struct BlockCountPattern : TilePattern<BlockCountOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(BlockCountOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::GridDimXOp>(op, rewriter.getI32Type());
    return success();
  }
};

struct ReadPattern : TilePattern<ReadOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReadOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type type = op.getValue().getType();
    rewriter.replaceOp(op, e.loadGlobal(adaptor.getBuffer(), type, adaptor.getIndex(), type,
                                        type.getIntOrFloatBitWidth() / 8));
    return success();
  }
};

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

struct ReduceLanesPattern : TilePattern<ReduceLanesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReduceLanesOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value value = adaptor.getValue();
    for (int64_t distance : {16, 8, 4, 2, 1}) {
      Value other = e.shuffle(NVVM::ShflKind::bfly, value, e.i32(distance));
      value = op.getKind() == Combine::Add ? e.fadd(value, other) : e.fmax(value, other);
    }
    rewriter.replaceOp(op, value);
    return success();
  }
};

struct FromLanePattern : TilePattern<FromLaneOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(FromLaneOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    rewriter.replaceOp(op, e.shuffle(NVVM::ShflKind::idx, adaptor.getValue(), adaptor.getLane()));
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

struct ReciprocalPattern : TilePattern<ReciprocalOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReciprocalOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    rewriter.replaceOp(op, e.intrinsic("llvm.nvvm.rcp.approx.ftz.f", rewriter.getF32Type(), adaptor.getX()));
    return success();
  }
};

/// Eight integers as two 16-byte loads.
struct RecordPattern : TilePattern<RecordOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(RecordOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type i32 = rewriter.getI32Type();
    Value first = e.mul(e.widen(adaptor.getIndex()), 8);
    SmallVector<Value> fields;
    for (int64_t half = 0; half < 2; ++half) {
      Value loaded =
          e.loadGlobal(adaptor.getBuffer(), i32, e.add(first, half * 4), VectorType::get(4, i32), 16);
      for (int64_t i = 0; i < 4; ++i)
        fields.push_back(LLVM::ExtractElementOp::create(rewriter, op.getLoc(), loaded, e.i32(i)));
    }
    fields.resize(op.getNumResults());
    rewriter.replaceOp(op, fields);
    return success();
  }
};

struct AllocPattern : TilePattern<AllocOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(AllocOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value base = e.sharedAt(e.lanes.shared, *op.getOffset());
    if (op.getPerWarp())
      base = e.sharedAt(base, e.mul(e.lanes.warp, memoryBytes(op.getMemory().getType())));
    rewriter.replaceOp(op, base);
    return success();
  }
};

struct SlotPattern : TilePattern<SlotOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(SlotOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    int64_t bytes = op.getTile().getType().getBytes();
    rewriter.replaceOp(op, e.sharedAt(adaptor.getRing(), e.mul(adaptor.getIndex(), bytes)));
    return success();
  }
};

/// Every warp copies a contiguous share of the lines, 16 bytes per lane. Where the slot comes from a table,
/// lane i looks up line i of the share once and the others take it by shuffle.
struct GatherPattern : TilePattern<GatherOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(GatherOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    int64_t lines = cast<SharedType>(op.getTargets()[0].getType()).getRows();
    Value firstLine;
    if (op.getScope() != Scope::Warp) { // the warps of either scope are the first of the block
      auto schedule = op->getParentOfType<func::FuncOp>()->getAttrOfType<ScheduleAttr>("tile.schedule");
      lines /= schedule.getCopyWarps(op.getScope());
      firstLine = e.mul(e.lanes.warp, lines);
    }
    bool lookup = op.getSlot().walk([](ReadOp) { return WalkResult::interrupt(); }).wasInterrupted();

    Value begin = adaptor.getBegin(), last = e.add(adaptor.getEnd(), -1);
    // Lines past the end are looked up as the last one; nothing is read from where they point.
    auto slotOf = [&](Emitter &at, Value local) {
      Value line = at.add(begin, firstLine ? at.add(local, firstLine) : local);
      return inlineRegion(op.getSlot(), at.min(line, last), at.b);
    };
    Value ownSlot;
    if (lookup)
      ownSlot = slotOf(e, e.min(e.lanes.lane, e.i32(lines - 1)));

    for (int64_t width : {128, 64, 32}) {
      SmallVector<std::pair<size_t, SharedType::Panel>> panels; // of all targets: they take the same lines
      for (auto [i, target] : llvm::enumerate(op.getTargets()))
        for (const SharedType::Panel &panel : cast<SharedType>(target.getType()).getPanels())
          if (panel.width == width)
            panels.push_back({i, panel});
      if (panels.empty())
        continue;
      int64_t chunks = width / 16, perStep = 32 / chunks;
      auto copyStep = [&](OpBuilder &builder, Value step) {
        Emitter at(builder, op.getLoc(), e.lanes);
        Value line = at.add(at.shr(e.lanes.lane, llvm::Log2_64(chunks)), step);
        Value slot = lookup ? at.shuffle(NVVM::ShflKind::idx, ownSlot, line)
                            : slotOf(at, at.min(line, at.i32(lines - 1)));
        auto copyPanels = [&](OpBuilder &inner) {
          Emitter in(inner, op.getLoc(), e.lanes);
          for (auto [i, panel] : panels)
            copyLine(in, op, adaptor, i, panel, firstLine ? in.add(line, firstLine) : line, slot);
        };
        if (lines % perStep == 0)
          return copyPanels(builder);
        // Fewer lines than one step covers: some lanes have nothing to do.
        scf::IfOp::create(builder, op.getLoc(), at.less(line, at.i32(lines)),
                          [&](OpBuilder &inner, Location loc) {
                            copyPanels(inner);
                            scf::YieldOp::create(inner, loc);
                          });
      };
      if (op.getScope() == Scope::Producers && lines > perStep) {
        // Producers have time but few registers: a loop instead of as many addresses as steps.
        scf::ForOp::create(rewriter, op.getLoc(), e.i32(0), e.i32(lines), e.i32(perStep), ValueRange(),
                           [&](OpBuilder &builder, Location loc, Value step, ValueRange) {
                             copyStep(builder, step);
                             scf::YieldOp::create(builder, loc);
                           });
        continue;
      }
      for (int64_t step = 0; step < lines; step += perStep)
        copyStep(rewriter, e.i32(step));
    }
    rewriter.eraseOp(op);
    return success();
  }

  /// This lane's 16 bytes of one panel of a line: from the line's slot in global memory, or zeros.
  static void copyLine(Emitter &e, GatherOp op, OpAdaptor adaptor, size_t i, const SharedType::Panel &panel,
                       Value line, Value slot) {
    Type element = cast<SharedType>(op.getTargets()[i].getType()).getElement();
    int64_t size = element.getIntOrFloatBitWidth() / 8, chunks = panel.width / 16;
    Value chunk = e.band(e.lanes.lane, chunks - 1);
    Value index = e.add(e.mul(e.widen(slot), op.getStrides()[i]), adaptor.getOrigins()[i]);
    index = e.add(e.add(index, e.mul(e.widen(chunk), 16 / size)), panel.chunk * 16 / size);
    Value from = e.globalAt(adaptor.getSources()[i], element, index);

    Value swizzle = e.band(e.shr(line, swizzleShift(panel.width)), chunks - 1);
    Value bytes = e.add(e.mul(line, panel.width), e.mul(e.bxor(chunk, swizzle), 16));
    Value to = e.sharedAt(e.sharedAt(adaptor.getTargets()[i], bytes), panel.offset);
    Value exists = e.less(e.add(adaptor.getBegin(), line), adaptor.getEnd());
    NVVM::CpAsyncOp::create(e.b, op.getLoc(), to, from, 16, NVVM::LoadCacheModifierKind::CG,
                            e.select(exists, e.i32(16), e.i32(0)));
  }
};

struct CommitPattern : TilePattern<CommitOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(CommitOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::CpAsyncCommitGroupOp>(op);
    return success();
  }
};

struct WaitPattern : TilePattern<WaitOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WaitOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::CpAsyncWaitGroupOp>(op, op.getPending());
    return success();
  }
};

struct SyncPattern : TilePattern<SyncOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(SyncOp op, OpAdaptor, ConversionPatternRewriter &rewriter) const override {
    if (op.getScope() == Scope::Warp)
      rewriter.replaceOpWithNewOp<NVVM::SyncWarpOp>(op, emitter(op, rewriter).i32(-1));
    else
      rewriter.replaceOpWithNewOp<NVVM::Barrier0Op>(op);
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
      Value first =
          rewriter.createOrFold<arith::CmpIOp>(op.getLoc(), arith::CmpIPredicate::eq, e.lanes.quad, e.i32(0));
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
      SmallVector<std::pair<Value, Value>> stores; // (column in the fragment, value)
      if (element.isF32()) {
        for (int64_t block = 0; block < blocks; ++block) {
          Value vector = LLVM::PoisonOp::create(rewriter, op.getLoc(), VectorType::get(2, element));
          for (int64_t i = 0; i < 2; ++i)
            vector = LLVM::InsertElementOp::create(rewriter, op.getLoc(), vector, pairOf(block)[i], e.i32(i));
          stores.push_back({e.add(e.mul(e.lanes.quad, 2), block * 8), vector});
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
          stores.push_back({e.add(firstColumn, block * 8), vector});
        }
      }
      guarded(e.less(line, lines), [&](OpBuilder &builder) {
        Emitter inner(builder, op.getLoc(), e.lanes);
        Value index = inlineRegion(op.getIndex(), line, builder);
        for (auto [local, value] : stores) {
          Value col = column ? inner.add(local, column) : local;
          auto store = [&](OpBuilder &at) {
            Emitter atom(at, op.getLoc(), e.lanes);
            atom.storeGlobal(value, atom.globalAt(buffer, element, atom.add(index, atom.widen(col))), 8);
          };
          if (!op.getColumns()) {
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

void tile::populateMemoryPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                  const LaneMap &lanes) {
  patterns.add<WarpIdPattern, LaneIdPattern, BlockIdPattern, BlockCountPattern, ReadPattern, ReadRangePattern,
               ReduceLanesPattern, FromLanePattern, WritePattern, ReciprocalPattern, RecordPattern,
               AllocPattern, SlotPattern, GatherPattern, CommitPattern, WaitPattern, SyncPattern,
               LoadVectorPattern, StorePattern>(converter, patterns.getContext(), lanes);
}
