//===- GradientTile.h - A tile of rows and tokens, and gradients -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_GRADIENTTILE_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_GRADIENTTILE_H

#include "Expansion.h"

namespace mlir::attn {

/// An update of a gradient, or what stands around it.
class GradientTile {
public:
  explicit GradientTile(FragmentExpansion &e) : e(e), b(e.b), held(e.chain.holdsTokens()) {}

  /// Of the lines of a dot's left operand, and these others.
  tile::FragmentType product(tile::Axis axis, int64_t size, Type element = {}) {
    bool first = e.tokensFirst();
    return b.fragment({first ? tile::Axis::Key : tile::Axis::Query, axis}, {first ? e.keys : e.rows, size},
                      element ? element : Type(b.getF32Type()));
  }
  tile::FragmentType pairs(Type element = {}) {
    return e.tokensFirst() ? product(tile::Axis::Query, e.rows, element)
                           : product(tile::Axis::Key, e.keys, element);
  }
  tile::FragmentType accumulator(int64_t features) { return product(tile::Axis::Feature, features); }
  Value firstToken(TokensOp tokens) {
    return held ? b.add(tokens.getFirst(), e.warpToken) : tokens.getFirst();
  }
  /// The tokens that a part of a region is.
  static TokensOp tokensOf(Value part);
  /// How many of this warp's lines are tokens, where tokens are held, and where a number of such a line lies
  /// among those of all tokens of a region and KV heads: as keys do or, of a paged store, by instance, head
  /// and token.
  Value tokensLeft(TokensOp tokens) { return b.sub(tokens.getEnd(), firstToken(tokens)); }
  Value slotOfToken(UpdateOp update, TokensOp tokens, Value line);
  /// Whether dots are started, to be finished later.
  bool startsDots() { return e.schedule.getKind() == tile::ScheduleKind::Wgmma; }
  /// Held lines of a tile times the others', less the deltas of rows where that is asked for.
  Value dotPairs(Value ofRows, Value ofTokens, bool lessDeltas = false);
  /// sum + pairs * other, in the element of queries.
  Value addDot(Value sum, Value ofPairs, Value other);
  /// The dots' results, when at most `pending` later ones are unfinished.
  SmallVector<Value> finish(ValueRange dots, int64_t pending);
  /// Exchanges a tile's gradients of scores with the other warpgroup, and starts what this one adds to the
  /// tile's rows of it: some of the features.
  Value startRowsPiece(Value scoreGradients, Value exchange, Value keys);
  /// Adds it to sums in memory, by way of its place on the chip.
  void addRowsPiece(Value piece, Value place);
  /// Sums of this warp's rows.
  Value loadSums();
  Value weights(Value scores);
  /// Of the products of queries and keys, or of what a table holds; `slopes`, if there are some, are those of
  /// a score region. Where there are no deltas of rows, products have them.
  Value scoreGradients(Value weights, Value products, Value slopes);
  /// Scores and, behind them, slopes by the score and by what `reads` read, as the update's region makes
  /// them; plain scores have no slopes.
  SmallVector<Value> regionScores(UpdateOp update, TokensOp tokens, Value products,
                                  ArrayRef<TableRead> reads);
  /// Of the update by a tile of one region, or where `operand` is none of that which `which` says.
  Value masked(UpdateOp update, TokensOp tokens, std::optional<unsigned> operand, Value which, Value scores);

private:
  /// Which of the warpgroups that compute this is.
  Value group() { return b.div(e.groupToken, tile::ScheduleAttr::groupRows); }
  /// Whether a warpgroup adds to half of a tile's rows, or to all of them half of the features.
  bool halvesRows() { return e.rows > tile::ScheduleAttr::groupRows; }
  /// Features of a row that a warpgroup adds to, and its first.
  int64_t pieceFeatures() { return e.chain.paddedKeyDim() / (halvesRows() ? 1 : e.schedule.getConsumers()); }
  Value firstFeature() { return b.mul(group(), b.i32(pieceFeatures())); }

  FragmentExpansion &e;
  KernelBuilder &b;
  bool held; ///< whether tokens are
};

} // namespace mlir::attn

#endif
