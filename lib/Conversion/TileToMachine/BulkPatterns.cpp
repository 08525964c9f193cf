//===- BulkPatterns.cpp - Boxes of tensors to and from shared memory ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A TMA load or store takes a tensor map, the box of the tensor, and the
// address in shared memory. One lane issues it. (If each lane issued a box,
// they would be issued one after the other all the same, by a loop of ptxas's
// that costs five times the copies.)
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// One copy of some of a tile's lines: of the panels of one map, or of one panel if the lines are fewer than
/// a box's, or padded. It is contiguous in shared memory.
struct Piece {
  size_t map;
  int64_t feature, panel; ///< coordinates: of the first feature, and along the axis of panels
  int64_t offset;         ///< bytes from the tile's start
};

SmallVector<Piece> piecesOf(SharedType tile, int64_t line, int64_t lines, bool padded) {
  SmallVector<Piece> pieces;
  size_t map = 0;
  int64_t width = 0, boxLines = tile.getBoxLines(), box = line / boxLines * boxLines;
  for (const SharedType::Panel &panel : tile.getPanels()) {
    bool next = panel.width != width;
    if (width && next)
      ++map;
    width = panel.width;
    if (!next && lines == boxLines && !padded)
      continue; // belongs to the piece before
    int64_t offset = box * tile.getLineBytes() + panel.offset + (line - box) * width;
    int64_t perChunk = 128 / tile.getElement().getIntOrFloatBitWidth();
    pieces.push_back(
        {map, padded ? panel.chunk * perChunk : 0, padded ? 0 : panel.chunk * 16 / width, offset});
  }
  return pieces;
}

SmallVector<Piece> piecesOf(TmaLoadOp load, int64_t line) {
  SmallVector<Piece> pieces = piecesOf(load.getTarget().getType(), line, load.getLines(), load.getPadded());
  for (Piece &piece : pieces)
    piece.panel += load.getPanel().value_or(0);
  return pieces;
}

/// The coordinates of a box; axes between features and slots are copied whole.
SmallVector<Value> coordinatesOf(Emitter &e, Value map, const Piece &piece, Value slot, Value head) {
  SmallVector<Value> coordinates(cast<TensorMapType>(map.getType()).getRank() - 3, e.i32(0));
  coordinates.front() = e.i32(piece.feature);
  coordinates.append({slot, e.i32(piece.panel), head});
  return coordinates;
}

struct TmaLoadPattern : TilePattern<TmaLoadOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(TmaLoadOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    if (!op.getBarriers())
      return op.emitOpError("completes no mbarrier: --tile-insert-barriers gives it one");
    Emitter e = emitter(op, rewriter);
    SharedType tile = op.getTarget().getType();
    int64_t lines = op.getLines(), boxes = tile.getRows() / lines;
    Value barrier = e.sharedAt(adaptor.getBarriers().front(), e.mul(adaptor.getIndex().front(), 8));
    Value first = e.isFirstLane();
    // Some slots at a time are brought to the one lane: producers have few registers.
    constexpr int64_t atOnce = 2;
    for (int64_t box = 0; box < boxes; box += atOnce) {
      SmallVector<Value> slots;
      for (int64_t i = box; i < std::min(boxes, box + atOnce); ++i)
        slots.push_back(boxes == 1 ? adaptor.getSlot().front()
                                   : e.shuffle(NVVM::ShflKind::idx, adaptor.getSlot().front(), e.i32(i)));
      e.doIf(first, [&](Emitter &at) {
        if (box == 0)
          NVVM::MBarrierArriveExpectTxOp::create(at.b, at.loc, Type(), barrier, at.i32(tile.getBytes()),
                                                 NVVM::MemScopeKind::CTA, /*relaxed=*/false, Value());
        for (auto [i, slot] : llvm::enumerate(slots))
          issue(at, op, adaptor, barrier, (box + i) * lines, slot);
      });
    }
    if (op.getNext())
      e.doIf(first, [&](Emitter &at) { prefetch(at, op, adaptor, 0, adaptor.getNext().front()); });
    rewriter.eraseOp(op);
    return success();
  }

  static void issue(Emitter &e, TmaLoadOp op, OneToNOpAdaptor adaptor, Value barrier, int64_t line,
                    Value slot) {
    auto cluster = LLVM::LLVMPointerType::get(op.getContext(), 7);
    for (const Piece &piece : piecesOf(op, line)) {
      Value to = e.sharedAt(adaptor.getTarget().front(), piece.offset);
      NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
          e.b, e.loc, LLVM::AddrSpaceCastOp::create(e.b, e.loc, cluster, to),
          adaptor.getMaps()[piece.map].front(),
          coordinatesOf(e, op.getMaps()[piece.map], piece, slot, adaptor.getHead().front()), barrier,
          ValueRange(), Value(), Value(), NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false,
          NVVM::CTAGroupKindAttr(), Value());
    }
  }

  static void prefetch(Emitter &e, TmaLoadOp op, OneToNOpAdaptor adaptor, int64_t line, Value slot) {
    for (const Piece &piece : piecesOf(op, line))
      NVVM::CpAsyncBulkTensorPrefetchOp::create(
          e.b, e.loc, adaptor.getMaps()[piece.map].front(),
          coordinatesOf(e, op.getMaps()[piece.map], piece, slot, adaptor.getHead().front()), ValueRange(),
          NVVM::TMALoadMode::TILE, Value());
  }
};

/// A slot that no store has. It is a multiple of every box, and the end of a box there still fits i32.
constexpr int32_t outside = 0x7fff0000;

struct LookupBoxesPattern : TilePattern<LookupBoxesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LookupBoxesOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    int64_t lines = op.getLines();
    rewriter.replaceOp(op, lookIf(e, adaptor.getExists(), [&](Emitter &in) {
                         Value last = in.sub(adaptor.getEnd(), in.i32(1));
                         Value line = in.add(adaptor.getBegin(), in.mul(in.lanes.lane, lines));
                         Value ofLast =
                             in.sub(last, in.b.createOrFold<arith::RemUIOp>(in.loc, last, in.i32(lines)));
                         Value there = inlineRegion(op.getSlot(), in.min(line, ofLast), in.b);
                         return in.select(in.less(line, adaptor.getEnd()), there, in.i32(outside));
                       }));
    return success();
  }
};

struct TmaStorePattern : TilePattern<TmaStoreOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(TmaStoreOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    SharedType tile = op.getTile().getType();
    e.doIf(e.isFirstLane(), [&](Emitter &at) {
      for (const Piece &piece : piecesOf(tile, 0, tile.getRows(), op.getPadded())) {
        Value map = adaptor.getMaps()[piece.map].front();
        Value from = at.sharedAt(adaptor.getTile().front(), piece.offset);
        SmallVector<Value> coordinates = coordinatesOf(at, op.getMaps()[piece.map], piece,
                                                       adaptor.getSlot().front(), adaptor.getHead().front());
        if (op.getPanel()) {
          Value &panel = coordinates[coordinates.size() - 2];
          panel = at.add(panel, adaptor.getPanel().front());
        }
        if (op.getAdds())
          NVVM::CpAsyncBulkTensorReduceOp::create(at.b, at.loc, map, from, NVVM::TMAReduxKind::ADD,
                                                  NVVM::TMAStoreMode::TILE, coordinates, Value());
        else
          NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp::create(at.b, at.loc, map, from, coordinates, Value(),
                                                             NVVM::TMAStoreMode::TILE, Value());
      }
      NVVM::CpAsyncBulkCommitGroupOp::create(at.b, at.loc);
    });
    rewriter.eraseOp(op);
    return success();
  }
};

/// All lanes wait. A lane that stored nothing by TMA has nothing to wait for.
struct WaitTmaStoresPattern : TilePattern<WaitTmaStoresOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WaitTmaStoresOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<NVVM::CpAsyncBulkWaitGroupOp>(
        op, rewriter.getI32IntegerAttr(0), op.getComplete() ? UnitAttr() : rewriter.getUnitAttr());
    return success();
  }
};

struct OverlayPattern : TilePattern<OverlayOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(OverlayOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value offset = e.mul(adaptor.getLine(), op.getTile().getType().getLineBytes());
    rewriter.replaceOp(op, e.sharedAt(adaptor.getTile(), offset));
    return success();
  }
};

struct PanelsPattern : TilePattern<PanelsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(PanelsOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    SharedType tile = op.getTile().getType();
    const int64_t bytes = tile.getRows() * tile.getElement().getIntOrFloatBitWidth() / 8;
    rewriter.replaceOp(op, e.sharedAt(adaptor.getTile(), e.mul(adaptor.getColumn(), bytes)));
    return success();
  }
};

} // namespace

void tile::populateBulkPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                const LaneMap &lanes) {
  patterns.add<LookupBoxesPattern, TmaLoadPattern, TmaStorePattern, WaitTmaStoresPattern, OverlayPattern,
               PanelsPattern>(converter, patterns.getContext(), lanes);
}
