//===- GradientTile.h - A tile of rows and tokens, and gradients -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_GRADIENTTILE_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_GRADIENTTILE_H

#include "Expansion.h"

namespace mlir::attn {

/// The type of a sum of gradients, of a warp's stationary lines.
tile::FragmentType gradientType(FragmentExpansion &e, int64_t features);
/// This warp's first token of a tile.
Value firstToken(KernelBuilder &b, TokensOp tokens);

/// The `attn.init_gradient` of the kernel.
InitGradientOp beginningOf(KernelBuilder &b);
/// Lets the warp that stores pieces of sums wait until all have left: then the block may end.
void waitForPieces(KernelBuilder &b);

/// The steps of an update after rows are finished: sums over pairs of rows and tokens.
class GradientTile {
public:
  GradientTile(FragmentExpansion &e, const OneUpdate &one)
      : e(e), b(e.b), one(one), rows(one.rows(e.b, e.form)), tokens(one.tokens()),
        held(e.form.keepsTokens()) {}

  /// Whether MMAs are started here and finished later.
  bool startsMmas() { return e.form.getMmas() == Mmas::Wgmma; }
  /// The products of the stationary lines of a tile and the other lines, less the deltas of rows if given.
  /// `features` is given if lines are padded.
  Value mmaPairs(Value ofRows, Value ofTokens, IntegerAttr features, Value deltas = {});
  /// sum + pairs * other, where pairs have the element type of queries.
  Value addMma(Value sum, Value ofPairs, Value other);
  /// The results of the MMAs, when at most `pending` later ones are unfinished.
  SmallVector<Value> finish(ValueRange mmas, int64_t pending);
  /// Whether values' gradients are started when those of scores have been written to shared memory, and not
  /// before they are computed.
  bool startsValuesLate() { return halvesRows(); }
  /// Writes a tile's gradients of scores to shared memory, for the other warpgroup.
  void stage(Value scoreGradients, Value exchange);
  /// Waits for the other warpgroup's gradients of scores, and starts this warpgroup's MMA for the sums of the
  /// tile's rows: some of the features.
  Value startRowsPiece(Value exchange, Value keys);
  /// Adds the piece to sums in memory, through `place` in shared memory, from where a producer warp stores
  /// it.
  void addRowsPiece(Value piece, Value place);
  /// A number of each row: a fragment, or loaded from the tile that it was copied to.
  Value number(Copy name);
  Value weights(Value scores, Value lse);
  /// Applies the update's score region. Returns scores, slopes by the score, and slopes by the elements that
  /// `reads` read; plain scores have no slopes.
  SmallVector<Value> regionScores(Value products, Value position, ArrayRef<TableRead> reads);
  /// Masks scores that rows do not see.
  Value masked(Value scores, Value position);

private:
  /// The index of this warpgroup among those that compute.
  Value group() { return b.div(tokens.getGroup(), tile::ScheduleAttr::groupRows); }
  /// Whether a warpgroup adds to half of a tile's rows; otherwise it adds half of the features of all rows.
  bool halvesRows() { return e.form.getRows() > tile::ScheduleAttr::groupRows; }
  /// The number of features of a row that a warpgroup adds to, and the first of them.
  int64_t pieceFeatures() { return e.form.getKeyTile() / (halvesRows() ? 1 : e.schedule.getConsumers()); }
  Value firstFeature() { return b.mul(group(), b.i32(pieceFeatures())); }
  /// Lets the warp that stores add the pieces of all warpgroups to the sums.
  void storePieces(Value place);
  /// Whether this task posts its progress at this tile; null: it does. Posting takes about as long as a tile.
  /// With heads of a group in a tile, tasks are long and post at every second one. In others it counts more
  /// how soon the next task may follow.
  Value postsHere();
  /// A warpgroup's part of the place of pieces.
  Value pieceOf(Value place, Value group);
  /// The threads that compute, and those of the warp that stores.
  int64_t threadsThatSync();

  FragmentExpansion &e;
  KernelBuilder &b;
  const OneUpdate &one;
  RowsPart rows;
  TokensOp tokens;
  bool held; ///< whether tokens are stationary
};

} // namespace mlir::attn

#endif
