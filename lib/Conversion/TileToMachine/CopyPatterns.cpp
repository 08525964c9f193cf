//===- CopyPatterns.cpp - Shared memory and copies into it ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "attn_rt/tensor/Store.h"

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

struct RingStagePattern : TilePattern<RingStageOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(RingStageOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    int64_t bytes = op.getTile().getType().getBytes();
    rewriter.replaceOp(op, e.sharedAt(adaptor.getRing(), e.mul(adaptor.getIndex(), bytes)));
    return success();
  }
};

/// The lines of a tile that this warp copies, a contiguous share.
struct Share {
  int64_t lines;
  Value first; ///< null: 0
  Share(Emitter &e, Operation *op, Scope scope, int64_t tileLines) : lines(tileLines) {
    if (scope == Scope::Warp)
      return;
    auto schedule = scheduleAttr.get(op->getParentOfType<func::FuncOp>());
    lines /= schedule.getCopyWarps(scope); // the block's first warps, in either scope
    first = e.mul(e.lanes.warp, lines);
  }
};

/// A pattern of an operation whose region maps lines to slots.
template <typename OpT> struct SlotsPattern : TilePattern<OpT> {
  using TilePattern<OpT>::TilePattern;
  /// The slot of a line of this warp. Lines past the end look up the last line; nothing is read from their
  /// address.
  static Value slotOf(Emitter &e, OpT op, typename OpT::Adaptor adaptor, const Share &share, Value line) {
    Value last = e.add(adaptor.getEnd(), -1);
    line = e.add(adaptor.getBegin(), share.first ? e.add(line, share.first) : line);
    return TilePattern<OpT>::inlineRegion(op.getSlot(), e.min(line, last), e.b);
  }
};

struct LookupPattern : SlotsPattern<LookupOp> {
  using SlotsPattern::SlotsPattern;
  LogicalResult matchAndRewrite(LookupOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    rewriter.replaceOp(op, lookIf(e, adaptor.getExists(), [&](Emitter &in) {
                         Share share(in, op, op.getScope(), op.getLines());
                         return slotOf(in, op, adaptor, share,
                                       in.min(in.lanes.lane, in.i32(share.lines - 1)));
                       }));
    return success();
  }
};

struct PagedSlotPattern : TilePattern<PagedSlotOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(PagedSlotOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Numbers numbers{emitter(op, rewriter), adaptor.getTable()};
    Value apart = adaptor.getApart() ? adaptor.getApart() : numbers.number(op.getPage());
    rewriter.replaceOp(op, ::attn::rt::pagedSlotOf(numbers, adaptor.getRow(), adaptor.getColumns(),
                                                   adaptor.getToken(), op.getPage(), apart, op.getStart()));
    return success();
  }

  /// The algebra of a lane's code (attn_rt/tensor/Store.h).
  struct Numbers {
    using Value = mlir::Value;
    Emitter e;
    Value table;

    Value number(int64_t n) { return e.i32(n); }
    Value add(Value x, Value y) { return e.add(x, y); }
    Value mul(Value x, Value y) { return e.mul(x, y); }
    Value div(Value x, int64_t y) { return e.b.createOrFold<arith::DivUIOp>(e.loc, x, e.i32(y)); }
    Value rem(Value x, int64_t y) { return e.b.createOrFold<arith::RemUIOp>(e.loc, x, e.i32(y)); }
    Value wide(Value x) { return e.widen(x); }
    Value read(::attn::rt::StoreTable, Value index) {
      Type i32 = e.b.getI32Type();
      return e.loadGlobal(table, i32, index, i32, 4);
    }
  };
};

/// A tensor whose lines are copied. Distances of slots are `stride` elements, times `factor` if there is one,
/// or `pitch` bytes.
struct LineSource {
  Value buffer, origin, pitch, factor, apart;
  int64_t stride, page; ///< 0: none

  /// The address of 16 bytes of a slot's line, `chunk` + `further` times as many from its beginning. The part
  /// that all lines share comes first if there are registers to keep it (`roomy`): each line then takes one
  /// instruction.
  Value addressOf(Emitter &e, Type element, Value slot, Value chunk, int64_t further, bool roomy) const {
    const int64_t bits = element.getIntOrFloatBitWidth(), group = bits < 8 && !pitch ? 8 / bits : 1;
    Value base = buffer;
    if (page) {
      // The offset of the page is the same for all sources.
      Value number = e.shr(slot, llvm::Log2_64(page));
      base = e.globalAt(base, e.b.getI8Type(), e.mul(e.widen(number), e.widen(apart)));
      slot = e.band(slot, page - 1);
    }
    if (bits < 8 || pitch)
      element = e.b.getI8Type();
    const int64_t size = element.getIntOrFloatBitWidth() / 8;
    // Lines begin at whole bytes.
    Value first = group > 1 ? e.shr(origin, llvm::Log2_64(group)) : origin;
    Value shared = e.add(e.add(first, e.mul(e.widen(chunk), 16 / size)), further * 16 / size);
    Value ofSlot = pitch ? e.mul(e.widen(slot), e.widen(pitch)) : e.mul(e.widen(slot), stride / group);
    if (factor)
      ofSlot = e.mul(ofSlot, e.widen(factor));
    return roomy ? e.globalAt(e.globalAt(base, element, shared), element, ofSlot)
                 : e.globalAt(e.globalAt(base, element, ofSlot), element, shared);
  }
};

/// Every warp copies its share, 16 bytes per lane. Slots that lanes have looked up are exchanged by shuffle.
struct GatherPattern : SlotsPattern<GatherOp> {
  using SlotsPattern::SlotsPattern;
  LogicalResult matchAndRewrite(GatherOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Share share(e, op, op.getScope(), cast<SharedType>(op.getTargets()[0].getType()).getRows());
    int64_t lines = share.lines;

    for (int64_t width : {128, 64, 32, 16, 8, 4}) {
      SmallVector<std::pair<size_t, SharedType::Panel>> panels; // of all targets: they take the same lines
      for (auto [i, target] : llvm::enumerate(op.getTargets()))
        for (const SharedType::Panel &panel : cast<SharedType>(target.getType()).getPanels())
          if (panel.width == width)
            panels.push_back({i, panel});
      if (panels.empty())
        continue;
      int64_t chunks = chunksOf(width), perStep = 32 / chunks;
      // Lines that are a multiple of eight further lie at the same offset, that many lines further.
      auto copyStep = [&](OpBuilder &builder, Value step, int64_t further) {
        Emitter at(builder, op.getLoc(), e.lanes);
        Value near = at.add(at.shr(e.lanes.lane, llvm::Log2_64(chunks)), step), line = at.add(near, further);
        Value slot = op.getSlots() ? at.shuffle(NVVM::ShflKind::idx, adaptor.getSlots(), line)
                                   : slotOf(at, op, adaptor, share, at.min(line, at.i32(lines - 1)));
        auto copyPanels = [&](Emitter &in) {
          for (auto [i, panel] : panels)
            copyLine(in, op, adaptor, i, panel, share.first ? in.add(near, share.first) : near, further,
                     slot);
        };
        if (lines % perStep == 0)
          return copyPanels(at);
        // Fewer lines than one step covers: some lanes have nothing to do.
        at.doIf(at.less(line, at.i32(lines)), copyPanels);
      };
      if (op.getScope() == Scope::Producers && lines > perStep) {
        // Producers have time but few registers: a loop instead of as many addresses as steps.
        scf::ForOp::create(rewriter, op.getLoc(), e.i32(0), e.i32(lines), e.i32(perStep), ValueRange(),
                           [&](OpBuilder &builder, Location loc, Value step, ValueRange) {
                             copyStep(builder, step, 0);
                             scf::YieldOp::create(builder, loc);
                           });
        continue;
      }
      for (int64_t step = 0; step < lines; step += perStep)
        copyStep(rewriter, e.i32(step % 8), step / 8 * 8);
    }
    rewriter.eraseOp(op);
    return success();
  }

  /// Whether a thread has registers to spare. Eight blocks of a kernel of significance leave it 64, and it
  /// spilled two of them.
  static bool isRoomy(GatherOp op) {
    constexpr int64_t mostBlocks = 3;
    auto schedule = tile::scheduleAttr.get(op->getParentOfType<func::FuncOp>());
    return schedule && schedule.getBlocks() <= mostBlocks;
  }

  /// Copies this lane's 16 bytes of one panel of a line, `further` lines after `near`: from the line's slot
  /// in global memory, or zeros.
  static void copyLine(Emitter &e, GatherOp op, OpAdaptor adaptor, size_t i, const SharedType::Panel &panel,
                       Value near, int64_t further, Value slot) {
    auto tile = cast<SharedType>(op.getTargets()[i].getType());
    Type element = tile.getElement();
    int64_t bits = element.getIntOrFloatBitWidth(), chunks = chunksOf(panel.width);
    Value chunk = e.band(e.lanes.lane, chunks - 1);
    Value pitch = op.getPitches().empty() ? Value() : adaptor.getPitches()[i];
    LineSource source{adaptor.getSources()[i],
                      adaptor.getOrigins()[i],
                      pitch,
                      adaptor.getFactor(),
                      adaptor.getApart(),
                      op.getStrides() ? (*op.getStrides())[i] : 0,
                      static_cast<int64_t>(op.getPage().value_or(0))};
    Value from = source.addressOf(e, element, slot, chunk, panel.chunk, isRoomy(op));

    Value bytes = tile.getSwizzled() ? e.placeOf(tile, panel.width, near, chunk) : e.mul(near, panel.width);
    Value to = e.sharedAt(e.sharedAt(adaptor.getTargets()[i], bytes), panel.offset + further * panel.width);
    Value left = e.sub(e.sub(adaptor.getEnd(), adaptor.getBegin()), near);
    Value exists = e.less(e.i32(further), left);
    if (op.getFeatures() && (*op.getFeatures())[i] < tile.getCols()) // nothing is read past them
      if (int64_t rest = (*op.getFeatures())[i] * bits / 128 - panel.chunk; rest < chunks)
        exists = e.both(exists, e.less(chunk, e.i32(rest)));
    int64_t copied = std::min<int64_t>(panel.width, 16);
    auto cache = copied == 16 ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA;
    passCacheHint(op, NVVM::CpAsyncOp::create(e.b, op.getLoc(), to, from, copied, cache,
                                              e.select(exists, e.i32(copied), e.i32(0))));
  }
  static int64_t chunksOf(int64_t width) { return std::max<int64_t>(width / 16, 1); }
};

/// Every warp loads its share, eight lines at a time: a lane has 16 features of one of them in each panel
/// that `tile.widen_lines` writes. Nothing depends on a load before that, so all are in flight at once.
struct FetchLinesPattern : TilePattern<FetchLinesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(FetchLinesOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    constexpr int64_t runs = FetchLinesOp::runsOfPanel, runBytes = 16, requestBytes = 128;
    Emitter e = emitter(op, rewriter);
    const Share share(e, op, Scope::Producers, op.getLines());
    const LineSource source{adaptor.getSource(), adaptor.getOrigin(), adaptor.getPitch(), {}, {}, 0, 0};
    const auto panels = static_cast<int64_t>(op.getPanels());
    Type words = VectorType::get(4, e.b.getI32Type()), byte = e.b.getI8Type();
    Value run = e.band(e.lanes.lane, runs - 1), first = e.shr(e.lanes.lane, llvm::Log2_64(runs));
    SmallVector<Value> held;
    for (int64_t step = 0; step < share.lines; step += FetchLinesOp::linesOfStep) {
      // The addresses of a line's parts differ by constants.
      auto lineAt = [&](Value slots) {
        Value slot = e.shuffle(NVVM::ShflKind::idx, slots, e.add(first, step));
        return source.addressOf(e, byte, slot, run, 0, /*roomy=*/true);
      };
      Value line = lineAt(adaptor.getSlots());
      for (int64_t panel = 0; panel < panels; ++panel) {
        Value from = e.globalAt(line, byte, e.i64(panel * runs * runBytes));
        held.push_back(LLVM::LoadOp::create(e.b, e.loc, words, from, runBytes));
      }
      if (op.getNext()) {
        auto level = NVVM::PrefetchCacheLevelAttr::get(e.b.getContext(), NVVM::PrefetchCacheLevel::L2);
        Value next = lineAt(adaptor.getNext());
        for (int64_t at = 0; at < panels * runs * runBytes; at += requestBytes)
          NVVM::PrefetchOp::create(e.b, e.loc, level, NVVM::CacheEvictionPriorityAttr(),
                                   e.globalAt(next, byte, e.i64(at)), /*predicate=*/Value(),
                                   /*tensormap=*/false);
      }
    }
    rewriter.replaceOp(op, held);
    return success();
  }
};

/// Copies panels of one width together, in a loop: it runs only if lines are missing, so little code matters
/// more than speed.
struct ScatterPattern : TilePattern<ScatterOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ScatterOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    SharedType tile = op.getTile().getType();
    Type element = tile.getElement();
    int64_t perChunk = 128 / element.getIntOrFloatBitWidth();
    Value end = e.min(e.sub(adaptor.getEnd(), adaptor.getLine()), e.i32(op.getCount()));
    for (int64_t width : {128, 64, 32}) {
      int64_t chunks = width / 16;
      SmallVector<SharedType::Panel> panels = tile.getPanels();
      llvm::erase_if(panels, [&](const SharedType::Panel &panel) { return panel.width != width; });
      if (panels.empty())
        continue;
      Value first = e.shr(e.lanes.lane, llvm::Log2_64(chunks)), chunk = e.band(e.lanes.lane, chunks - 1);
      auto copy = [&](OpBuilder &builder, Location loc, Value local, ValueRange) {
        Emitter at(builder, loc, e.lanes);
        Value line = at.add(adaptor.getLine(), local);
        Value from = at.sharedAt(adaptor.getTile(), at.placeOf(tile, width, line, chunk));
        Value slot = inlineRegion(op.getSlot(), line, builder);
        Value index = at.add(at.mul(at.widen(slot), op.getStride()), at.widen(at.mul(chunk, perChunk)));
        Value to = at.globalAt(adaptor.getBuffer(), element, index);
        for (const SharedType::Panel &panel : panels) {
          Value loaded = LLVM::LoadOp::create(builder, loc, VectorType::get(4, builder.getI32Type()),
                                              at.sharedAt(from, panel.offset), 16);
          auto store = [&](Emitter &in) {
            in.storeGlobal(loaded, in.globalAt(to, element, in.i64(panel.chunk * perChunk)), 16);
          };
          int64_t left = op.getColumns().value_or(tile.getCols()) / perChunk - panel.chunk;
          if (left >= chunks) {
            store(at);
            continue;
          }
          at.doIf(at.less(chunk, at.i32(left)), store);
        }
        scf::YieldOp::create(builder, loc);
      };
      scf::ForOp::create(rewriter, op.getLoc(), first, end, e.i32(32 / chunks), ValueRange(), copy);
    }
    rewriter.eraseOp(op);
    return success();
  }
};

struct RingPositionPattern : TilePattern<RingPositionOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(RingPositionOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value stages = e.i32(op.getStages());
    Value round = rewriter.createOrFold<arith::DivUIOp>(op.getLoc(), adaptor.getTile(), stages);
    rewriter.replaceOp(op, {rewriter.createOrFold<arith::RemUIOp>(op.getLoc(), adaptor.getTile(), stages),
                            rewriter.createOrFold<arith::RemUIOp>(op.getLoc(), round, e.i32(2))});
    return success();
  }
};
} // namespace

void tile::populateCopyPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                const LaneMap &lanes) {
  patterns.add<AllocPattern, RingStagePattern, RingPositionPattern, LookupPattern, PagedSlotPattern,
               GatherPattern, FetchLinesPattern, ScatterPattern>(converter, patterns.getContext(), lanes);
}
