//===- GradientTile.h - A tile of rows and tokens, and gradients -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_GRADIENTTILE_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_GRADIENTTILE_H

#include "Expansion.h"

namespace mlir::attn {

/// A sum of gradients of what a warp holds.
tile::FragmentType gradientType(FragmentExpansion &e, int64_t features);
/// This warp's first token of a tile.
Value firstToken(KernelBuilder &b, TokensOp tokens);

/// The steps of an update by which something is added up that rows and tokens have to do with each other once
/// rows are finished.
class GradientTile {
public:
  GradientTile(FragmentExpansion &e, const OneUpdate &one)
      : e(e), b(e.b), one(one), rows(one.rows(e.b, e.form)), tokens(one.tokens()),
        held(e.form.keepsTokens()) {}

  /// Whether mmas are started, to be finished later.
  bool startsMmas() { return e.form.getMmas() == Mmas::Wgmma; }
  /// Held lines of a tile times the others', less the deltas of rows where there are some.
  Value mmaPairs(Value ofRows, Value ofTokens, Value deltas = {});
  /// sum + pairs * other, in the element of queries.
  Value addMma(Value sum, Value ofPairs, Value other);
  /// The mmas' results, when at most `pending` later ones are unfinished.
  SmallVector<Value> finish(ValueRange mmas, int64_t pending);
  /// Exchanges a tile's gradients of scores with the other warpgroup, and starts what this one adds to the
  /// tile's rows of it: some of the features.
  Value startRowsPiece(Value scoreGradients, Value exchange, Value keys);
  /// Adds it to sums in memory, by way of its place on the chip.
  void addRowsPiece(Value piece, Value place);
  /// A number of each row: as it is, or out of the tile that it was copied to.
  Value number(Copy name);
  Value weights(Value scores, Value lse);
  /// Scores and, behind them, slopes by the score and by what `reads` read, as the update's region makes
  /// them; plain scores have no slopes.
  SmallVector<Value> regionScores(Value products, Value position, ArrayRef<TableRead> reads);
  /// Scores of what rows see.
  Value masked(Value scores, Value position);

private:
  /// Which of the warpgroups that compute this is.
  Value group() { return b.div(tokens.getGroup(), tile::ScheduleAttr::groupRows); }
  /// Whether a warpgroup adds to half of a tile's rows, or to all of them half of the features.
  bool halvesRows() { return e.form.getRows() > tile::ScheduleAttr::groupRows; }
  /// Features of a row that a warpgroup adds to, and its first.
  int64_t pieceFeatures() { return e.form.getKeyTile() / (halvesRows() ? 1 : e.schedule.getConsumers()); }
  Value firstFeature() { return b.mul(group(), b.i32(pieceFeatures())); }

  FragmentExpansion &e;
  KernelBuilder &b;
  const OneUpdate &one;
  RowsPart rows;
  TokensOp tokens;
  bool held; ///< whether tokens are
};

} // namespace mlir::attn

#endif
