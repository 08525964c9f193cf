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
  GradientTile(FragmentExpansion &e, const OneUpdate &one, Stationary of = Stationary::Tokens)
      : e(e), b(e.b), one(one), rows(one.rows(e.b, e.form)), tokens(one.tokens()), held(e.form.keepsTokens()),
        of(of) {}

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
  bool startsValuesLate() { return halvesRows() || isWide(); }
  /// Whether sums of tokens leave no registers for the results of two other MMAs, or for numbers of rows
  /// beside one: gradients of scores then begin with deltas, when the weights are known, values' gradients
  /// end when warpgroups have met, and sums of rows are added piece by piece.
  bool isWide() { return of == Stationary::Tokens && e.form.getKeyTile() > widestBeside; }
  /// Writes a tile's gradients of scores to shared memory, for the other warpgroup.
  void stage(Value scoreGradients, Value exchange, Value place);
  /// Waits for the other warpgroup's gradients of scores.
  void syncExchange(Value place);
  /// Starts this warpgroup's MMAs for the sums of the tile's rows: beside values' gradients the first.
  SmallVector<Value> startRows(Value exchange, Value keys);
  /// Adds to sums in memory, through `place` in shared memory, from where a producer warp stores them: the
  /// results of MMAs that have been started, and those of others, which it starts. Beside values' gradients
  /// the sum of keys was started meanwhile. It ends with those others if there are any; returns whether it
  /// did.
  bool addRows(ArrayRef<Value> started, Value &ofKeys, Value exchange, Value keys, Value place);
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
  /// Features of a row's sum that one MMA of a warpgroup makes: from which on, in each of the two.
  struct Piece {
    int64_t ofFirst, ofSecond, features;
  };
  /// The features of a row that this warpgroup adds to: half of them, or all features of its rows. Half of an
  /// odd number of panels is some whole ones and half of the middle one, each a piece.
  SmallVector<Piece, 2> pieces();
  Value startPiece(const Piece &piece, Value exchange, Value keys);
  /// Its first feature in this warpgroup; null if each has all features of its rows.
  Value firstOf(const Piece &piece);
  /// Returns a sum with zeros in the lines past the last row.
  Value clearPastLast(Value sum);
  /// Writes the sum of a piece to its place.
  void put(const Piece &piece, Value sum, Value place);
  /// The parts of pieces, if only parts have a place, one after the other.
  SmallVector<Piece> parts();
  /// Writes parts of these sums there.
  void putParts(ArrayRef<Value> sums, Value exchange, Value place);
  /// Whether sums have a place in parts. The tile of gradients of scores is another one, when these have been
  /// multiplied.
  bool placesParts(Value place);
  SmallVector<Value, 2> placesOf(Value exchange, Value place);
  /// Waits for the other warpgroup.
  void meet();
  /// Lets the warp that stores add the pieces of all warpgroups to the sums.
  void storePieces(Value exchange, Value place);
  /// Adds what lies at these places, one piece each.
  void storeAt(ArrayRef<Value> places, ArrayRef<Piece> pieces, bool first);
  /// The number of parts of a group, one after the other at the same rows.
  int64_t groupParts();
  /// How far this task has come when the tile before this one has been added.
  Value progressBefore();
  /// How far another task must have come, whose terms of this tile's sums come first.
  Value progressOf(Value task);
  /// Whether this task posts its progress at this tile; null: it does. Posting takes about as long as a tile.
  /// With several heads of a group, tasks are long and post at every second tile. With one it counts more how
  /// soon the next task may follow.
  Value postsHere();
  /// A place in shared memory for sums.
  tile::SharedType placeType(int64_t lines, int64_t features);
  /// The places of all pieces of a warpgroup, and of one of this warpgroup's.
  Value partOf(Value place, Value group);
  Value placeOf(const Piece &piece, Value place);
  /// The threads that compute, and those of the warp that stores.
  int64_t threadsThatSync();

  FragmentExpansion &e;
  KernelBuilder &b;
  const OneUpdate &one;
  RowsPart rows;
  TokensOp tokens;
  bool held;     ///< whether tokens are stationary
  Stationary of; ///< the sums that stay
};

} // namespace mlir::attn

#endif
