//===- CopyPatterns.cpp - Shared memory and copies into it ------------------===//
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

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
} // namespace

void tile::populateCopyPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                const LaneMap &lanes) {
  patterns.add<AllocPattern, SlotPattern, GatherPattern, CommitPattern, WaitPattern, SyncPattern>(
      converter, patterns.getContext(), lanes);
}
