//===- StoreScoresPatterns.cpp - Scores to global memory as integers -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Of an accumulator a lane has two neighbouring columns of every eighth line: where these are heads of a
/// token, and tokens begin with whole words, they go as one. Else halves go, and each is made by an
/// instruction of integers first: of a register that a sum of floats wrote, ptxas stores 16 bits as the
/// float's value, converted.
struct StoreScoresPattern : TilePattern<StoreScoresOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(StoreScoresOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    FragmentType type = op.getFragment().getType();
    bool keysFirst = type.getAxes()[0] == Axis::Key;
    int64_t group = op.getGroup(), blocks = type.getSizes()[1] / 8;
    for (int64_t row = 0; row < type.getSizes()[0] / 8; ++row)
      for (int64_t block = 0; block < blocks; ++block) {
        if ((keysFirst ? block : row) * 8 >= group)
          continue;
        Emitter e = emitter(op, rewriter);
        Value line = e.add(e.lanes.group, row * 8), column = e.add(e.mul(e.lanes.quad, 2), block * 8);
        ValueRange pair = adaptor.getFragment().slice(((row / 2) * blocks + block) * 4 + (row % 2) * 2, 2);
        Value first = codeOf(e, pair[0]), second = codeOf(e, pair[1]), next = e.add(column, 1);
        if (keysFirst && group % 2 == 0) {
          store(op, adaptor, rewriter, line, column, e.bytes(first, second, {0, 1, 4, 5}), 4);
          continue;
        }
        for (auto [at, code] : {std::pair(column, first), std::pair(next, second)}) {
          Value whole = e.bytes(code, code, {0, 1, 4, 5});
          Value half = LLVM::TruncOp::create(rewriter, op.getLoc(), rewriter.getI16Type(), whole);
          store(op, adaptor, rewriter, keysFirst ? line : at, keysFirst ? at : line, half, 2);
        }
      }
    rewriter.eraseOp(op);
    return success();
  }

private:
  /// Writes what a key and heads from one on score, if they exist.
  void store(StoreScoresOp op, OneToNOpAdaptor adaptor, ConversionPatternRewriter &rewriter, Value key,
             Value head, Value codes, unsigned bytes) const {
    Emitter e = emitter(op, rewriter);
    Value exists = e.both(e.less(key, adaptor.getTokens().front()), e.less(head, e.i32(op.getGroup())));
    scf::IfOp::create(rewriter, op.getLoc(), exists, [&](OpBuilder &builder, Location loc) {
      Emitter inner(builder, loc, e.lanes);
      Value slot = inner.widen(inlineRegion(op.getSlot(), key, builder));
      Value place = inner.add(inner.mul(slot, op.getGroup()), inner.widen(head));
      Type element = op.getBuffer().getType().getElement();
      passCacheHint(
          op, inner.storeGlobal(codes, inner.globalAt(adaptor.getBuffer().front(), element, place), bytes));
      scf::YieldOp::create(builder, loc);
    });
  }

  /// The nearest integer, in the low half: a sum with this number has it in the last bits of its mantissa.
  static Value codeOf(Emitter &e, Value number) {
    constexpr float most = 32767, rounds = 3 << 22;
    auto f32 = [&](float value) -> Value {
      return LLVM::ConstantOp::create(e.b, e.loc, e.b.getF32Type(), e.b.getF32FloatAttr(value));
    };
    Value notBelow = LLVM::MaxNumOp::create(e.b, e.loc, number, f32(-most));
    Value inside = LLVM::MinNumOp::create(e.b, e.loc, notBelow, f32(most));
    Value sum = LLVM::FAddOp::create(e.b, e.loc, inside, f32(rounds));
    return LLVM::BitcastOp::create(e.b, e.loc, e.b.getI32Type(), sum);
  }
};

} // namespace

void tile::populateStoreScoresPattern(const TypeConverter &converter, RewritePatternSet &patterns,
                                      const LaneMap &lanes) {
  patterns.add<StoreScoresPattern>(converter, patterns.getContext(), lanes);
}
