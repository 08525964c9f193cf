//===- StoreScoresPatterns.cpp - Scores to global memory as integers -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// A lane has two neighbouring columns of every eighth line of an accumulator. If these are heads of a token,
/// and tokens begin with whole words, they are stored as one word. Otherwise they are stored as halves, each
/// made by an integer instruction first: ptxas would store 16 bits of a register that a float sum wrote as
/// the float's value, converted.
///
/// This code stands in the loop over keys of a step of decoding. Most of its tiles are whole: there no key is
/// tested, and addresses are a lane's first one plus constants.
struct StoreScoresPattern : TilePattern<StoreScoresOp> {
  using TilePattern::TilePattern;

  LogicalResult matchAndRewrite(StoreScoresOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    FragmentType type = op.getFragment().getType();
    bool keysFirst = type.getAxes()[0] == Axis::Key;
    int64_t keys = type.getSizes()[keysFirst ? 0 : 1], group = op.getGroup();
    Emitter e = emitter(op, rewriter);
    Value column = e.mul(e.lanes.quad, 2);
    Lane lane{keysFirst ? e.lanes.group : column, keysFirst ? column : e.lanes.group};
    SmallVector<Piece> pieces = piecesOf(op, adaptor, e);
    Value slot = e.widen(inlineRegion(op.getSlot(), lane.key, rewriter));
    Value buffer = adaptor.getBuffer().front(), tokens = adaptor.getTokens().front();
    Type element = op.getBuffer().getType().getElement();
    Value first = e.globalAt(buffer, element, e.add(e.mul(slot, group), e.widen(lane.head)));
    auto store = [&](Emitter &inner, const Piece &piece) {
      int64_t place = piece.key * op.getApart() * group + piece.head;
      passCacheHint(
          op, inner.storeGlobal(piece.codes, inner.globalAt(first, element, inner.i64(place)), piece.bytes));
    };
    auto isHead = [&](Emitter &inner, int64_t head) {
      return inner.less(inner.add(lane.head, head), inner.i32(group));
    };
    Value isWhole = e.less(e.i32(keys - 1), tokens);
    auto whole = [&](OpBuilder &builder, Location loc) {
      Emitter inner(builder, loc, e.lanes);
      for (int64_t head = 0; head < group; ++head)
        if (llvm::any_of(pieces, [&](const Piece &piece) { return piece.head == head; }))
          inner.doIf(isHead(inner, head), [&](Emitter &some) {
            for (const Piece &piece : pieces)
              if (piece.head == head)
                store(some, piece);
          });
      scf::YieldOp::create(builder, loc);
    };
    auto some = [&](OpBuilder &builder, Location loc) {
      Emitter inner(builder, loc, e.lanes);
      for (const Piece &piece : pieces)
        inner.doIf(inner.both(inner.less(inner.add(lane.key, piece.key), tokens), isHead(inner, piece.head)),
                   [&](Emitter &one) { store(one, piece); });
      scf::YieldOp::create(builder, loc);
    };
    scf::IfOp::create(rewriter, op.getLoc(), isWhole, whole, some);
    rewriter.eraseOp(op);
    return success();
  }

private:
  /// The lane's first key and head.
  struct Lane {
    Value key, head;
  };
  /// Scores that are stored at once; their key and head are counted from the lane's first ones.
  struct Piece {
    int64_t key, head;
    Value codes;
    unsigned bytes;
  };

  static SmallVector<Piece> piecesOf(StoreScoresOp op, OneToNOpAdaptor adaptor, Emitter &e) {
    FragmentType type = op.getFragment().getType();
    bool keysFirst = type.getAxes()[0] == Axis::Key;
    int64_t group = op.getGroup(), blocks = type.getSizes()[1] / 8;
    SmallVector<Piece> pieces;
    for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row)
      for (int64_t block = 0; block < blocks; ++block) {
        if ((keysFirst ? block : row) * 8 >= group)
          continue;
        ValueRange pair = adaptor.getFragment().slice(((row / 2) * blocks + block) * 4 + (row % 2) * 2, 2);
        Value unit = adaptor.getUnit().front();
        Value first = codeOf(e, pair[0], unit), second = codeOf(e, pair[1], unit);
        if (keysFirst && group % 2 == 0) {
          pieces.push_back({row * 8, block * 8, e.bytes(first, second, {0, 1, 4, 5}), 4});
          continue;
        }
        for (auto [at, code] : {std::pair(block * 8, first), std::pair(block * 8 + 1, second)}) {
          Value low = e.bytes(code, code, {0, 1, 4, 5});
          Value half = LLVM::TruncOp::create(e.b, e.loc, e.b.getI16Type(), low);
          pieces.push_back({keysFirst ? row * 8 : at, keysFirst ? at : row * 8, half, 2});
        }
      }
    return pieces;
  }

  /// The nearest integer plus 2^15, in the low half: a sum with 1.5 * 2^23 + 2^15 has it in the last bits of
  /// its mantissa.
  static Value codeOf(Emitter &e, Value number, Value unit) {
    constexpr float most = 32767, rounds = (3 << 22) + (1 << 15);
    auto f32 = [&](float value) -> Value {
      return LLVM::ConstantOp::create(e.b, e.loc, e.b.getF32Type(), e.b.getF32FloatAttr(value));
    };
    Value sum = LLVM::FMAOp::create(e.b, e.loc, number, unit, f32(rounds));
    Value notBelow = LLVM::MaxNumOp::create(e.b, e.loc, sum, f32(rounds - most));
    Value inside = LLVM::MinNumOp::create(e.b, e.loc, notBelow, f32(rounds + most));
    return e.bitcast(e.b.getI32Type(), inside);
  }
};

} // namespace

void tile::populateStoreScoresPattern(const TypeConverter &converter, RewritePatternSet &patterns,
                                      const LaneMap &lanes) {
  patterns.add<StoreScoresPattern>(converter, patterns.getContext(), lanes);
}
