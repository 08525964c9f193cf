//===- Expansion.h - What expanding online operations needs ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The two forms in which a warp holds a state (see OnlineOpInterface.td). The
// values that stand for a value of the online level are the operands of the
// cast that takes its place: a state's maximum, sum and accumulator, say. So an
// operation finds all it needs in its operands and its kernel's attributes.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_EXPANSION_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_EXPANSION_H

#include "AttnToTile/Kernel/Parts.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include "attn/Conversion/OnlineOpInterface.h"
#include "attn/Dialect/Attn/IR/StepOps.h"

namespace mlir::attn {

/// Returns the values that stand for a value of the online level.
ValueRange piecesOf(Value online);
/// Lets `pieces` stand for `online` from the insertion point on.
void become(OpBuilder &builder, Value online, ValueRange pieces);

/// A partial softmax of one warp's rows.
struct State {
  Value max, sum, acc;
  Value zeros; ///< the sum that zero points add to every feature of a row; null if acc includes it
  Value unit;  ///< the score of 1 in log2, as it enters the softmax
  SmallVector<Value> pieces() const {
    SmallVector<Value> all{max, sum, acc};
    if (zeros)
      all.push_back(zeros);
    all.push_back(unit);
    return all;
  }
};

/// One of several updates by a tile, selected by `which`; null: there is only one.
struct OneUpdate {
  ArrayRef<UpdateOp> all;
  Value which;

  /// The first update; it stands for all in whatever they share.
  UpdateOp front() const { return all.front(); }
  RowsPart rows(KernelBuilder &b, FormAttr form) const { return RowsPart(b, form, front().getQuery()); }
  TokensOp tokens() const { return tokensOf(front().getKv()); }
};

/// The form of a warp with sixteen rows, or eight. The pieces of a state are the fields of State. The pieces
/// of an output are its fragment and its rows' LSEs; the piece of an LSE is the LSEs.
struct FragmentExpansion {
  explicit FragmentExpansion(func::FuncOp kernel)
      : b(kernel), form(formAttr.get(kernel)), schedule(tile::scheduleAttr.get(kernel)) {}

  // Types of the fragments that one warp holds.
  tile::FragmentType rowsOf(Type element, bool partial = false) {
    return b.fragment({tile::Axis::Query}, {form.getRows()}, element, partial);
  }
  tile::FragmentType perToken(Type element) {
    return b.fragment({tile::Axis::Key}, {form.getKeys()}, element);
  }
  /// A number for each pair of a row and a token.
  tile::FragmentType pairs() { return productType(tile::Axis::Key, form.getKeys()); }
  tile::FragmentType accType() { return productType(tile::Axis::Feature, form.getValueTile()); }
  /// A product of the rows. The other axis comes first if tokens do.
  tile::FragmentType productType(tile::Axis axis, int64_t size) {
    if (form.has(FormTraits::TokensFirst))
      return b.fragment({axis, tile::Axis::Query}, {size, form.getRows()}, b.getF32Type());
    return b.fragment({tile::Axis::Query, axis}, {form.getRows(), size}, b.getF32Type());
  }

  State stateOf(Value state);
  void setState(Value state, const State &pieces) { become(b, state, pieces.pieces()); }
  /// The number of a value's last pieces that a loop does not change.
  static unsigned invariants(Type online);

  // Units.
  /// The factor from the product of a query and a key to a score.
  Value mmaScale(Value rows);
  /// The score of 1 in log2, as it enters the softmax of these rows.
  Value unitOf(Value rows);

  // Products (Dequantize.cpp, DequantizeLatents.cpp).
  /// Scores of rows and tokens, times these factors.
  IntegerAttr featuresIfPadded(int64_t features, int64_t tile);
  Value scores(Value rows, Value ofRows, Value ofTokens, Value scale = {}, Value tokenScales = {});
  /// The products of the rows and a staged tile's keys.
  /// From token `line` of the tile on, if warps divide its tokens.
  Value rowsMmaTokens(UpdateOp update, Value line = {});
  /// The factors of a token's weights. Tokens whose weights are multiplied by scales have a scale. Integers
  /// that stay quantized have a zero point, too. Powers of two that blocks share have the exponent of that
  /// scale, the largest of the token. Other tokens have none.
  struct TokenMeta {
    Value scale, zero, most;
    SmallVector<Value> groups; ///< the scales of each group of this warp's features, where lines hold them
  };
  TokenMeta weighedMeta(UpdateOp update);
  /// A staged tile's values as an MMA with weights takes them: the tile, or fragments of f16.
  Value valuesOf(UpdateOp update, const TokenMeta &weighed);
  /// Adds weights times values whose groups of features have a scale per token each: weights take a group's
  /// scales.
  Value accumulateGroups(UpdateOp update, ArrayRef<Value> scales, Value weights, Value acc);
  /// The number of this warp among those that share its rows, and the first feature of its slice of the
  /// values; null if no warps share rows.
  Value valueSlice();
  Value firstFeature();
  /// The distance of a row's unit above its maximum, null if there is none, and by how much the maximum may
  /// exceed the unit.
  struct Room {
    Value lift;
    int64_t slack = 8;
  };
  /// The headroom of a region whose weights take no scales, if those of another region do.
  Room roomBesideScales(UpdateOp update, Value unit);
  /// Adds the terms of a tile's zero points to `zeros`.
  Value addZeros(Value zeros, Value decay, Value weights, Value zero);
  /// A state whose accumulator is complete, from one that keeps quantized sums and zero points apart.
  State settled(const State &state);

  // Scores (ScoreRegion.cpp, Masks.cpp, StoreScores.cpp).
  /// The step of an update's score region on a tile from `firstKey` on.
  ScoreFnOp scoreRegion(UpdateOp update, TypeRange types, Value scores, Value position, Value firstKey,
                        ArrayRef<int64_t> reads = {});
  /// The scores after an update's score region, in units of the state.
  Value applyScoreRegion(UpdateOp update, Value scores, Value firstKey);
  /// The index at which a read finds its element in the table, by head and position of the row.
  Value tablePlace(attn::ReadOp read, ValueRange headAndPosition);
  /// Masks scores: those that rows do not see become -inf.
  Value maskScores(const OneUpdate &update, Value scores, Value position, Value firstKey);
  /// The ends of a visibility's terms; `first` is the number of its first end in the kernel.
  SmallVector<Value> endsOf(VisibilityAttr visibility, int64_t first);
  /// Stores scores if the task asks for them.
  void storeScores(UpdateOp update, Value scores, Value unit);

  // Halves of a tile (SharedWeights.cpp).
  /// Merges a tile of which this warpgroup and its neighbour each weigh one half, into the state of each.
  State mergeHalves(const OneUpdate &one, const State &state);
  /// Merges a tile of which this warp and another each weigh one half.
  State mergeHalvesOfWarps(const OneUpdate &one, const State &state);
  /// The sums of both warpgroups' weights.
  Value sumOfHalves(Value rows, Value sum);

  // States (States.cpp).
  /// A state before any token.
  State initialState(Value rows);
  /// Merges two states of the same rows.
  State mergeStates(const State &x, const State &y);
  /// Merges the states of a block's warps, each of which has some of the columns afterwards.
  State mergeWarps(const State &part);
  /// The output and LSE of a state.
  struct Results {
    Value output, lse;
  };
  Results finishState(FinishOp finish);
  Value firstSliceLines(Value lines);
  /// The columns of an output that this warp holds, those that exist if it holds more, and the lines of which
  /// it writes the LSEs.
  struct Columns {
    Value first;
    IntegerAttr count;
    Value lseLines;
    /// Whether the fragment has all columns of its rows, and no others.
    bool areAll() const { return !first && !count; }
  };
  Columns columnsOf(Value output, Value lines);
  Value firstElementOf(Value row);
  /// Folds a part with the parts before, or all parts with the sinks; stores the parts so far
  /// (FoldParts.cpp).
  Results foldParts(FoldOp fold);
  Results foldSinks(FoldOp fold);
  void keepParts(KeepOp keep);
  /// Writes the output and LSE of the first region alone.
  void writeFirst(mlir::attn::WriteOp write);
  /// An output times the sigmoid of a gate.
  Value gated(Value output, Value gate, RowsPart &rows, const Columns &columns);
  /// The scale of each row, made of the largest of its outputs.
  Value scalesOf(Value output, const Columns &columns);
  /// Writes the output and LSE, or a part's state that another kernel merges.
  void writeResults(mlir::attn::WriteOp write);

  /// Stores `lines` lines of this warp, `stride` elements each, at the indices of `slotOf`. `column`: the
  /// fragment's first column; `columns`: the number of columns that exist if the fragment has more.
  void storeLines(Value fragment, Value buffer, Value lines, Value column, IntegerAttr columns,
                  int64_t stride, function_ref<Value(Value)> slotOf);

  KernelBuilder b;
  FormAttr form;
  tile::ScheduleAttr schedule;

private:
  SmallVector<Value> lineMeta(UpdateOp update, bool keys);
  SmallVector<Value> blockPowers(ValueRange words, int64_t groups);
  Value largestPower(ValueRange words, int64_t groups);
  Value dequantized(Value tile, tile::Axis kept, const rt::StorePart &part, Type element, ValueRange scales,
                    ValueRange zeros, bool tiny);
  Value dequantizedBlocks(UpdateOp update, bool keys, Type element, Value most = {});
  tile::FragmentType factorType(Value tile, tile::Axis kept, Type element);
  IntegerAttr groupOf(const rt::StorePart &part);
  Value queryFragment(Value rows, Value query);
  Value panelsOf(Value tile, Value first, int64_t features);
  Value queriesOf(Value query, int64_t first, int64_t features);
  Value panelScores(UpdateOp update, Value query, const rt::StorePart &part, Value scale, Value line);
  Value mixedScores(UpdateOp update, Value query, const rt::StorePart &part, Value scale);
  Value scaleOfGroup(ArrayRef<Value> scales, int64_t group, int64_t groups);
  Value widenedScores(UpdateOp update, Value query, Value tile, Value factor);
  Value groupScores(UpdateOp update, Value query, Value keys, const rt::StorePart &part, Value scale,
                    bool tiny);
  Value maskForList(UpdateOp update, Value scores, Value firstKey);
  Value maskFor(UpdateOp update, unsigned headClass, Value scores, Value position, Value firstKey,
                Value partialTile);
  /// The logit of each row's sink, times a factor; -inf if the task's rows do not count the sink.
  Value sinkLogitsOf(Value sinks, Value rows, tile::FragmentType rowType, double factor = 1);
  Value exchangeMemory();
};

/// The form of a warp with one row, or a slice of its columns, of which a lane has four adjacent ones of each
/// 128. The pieces of a state are maximum, sum and columns. Those of stored states are the number of this
/// lane's state and the count of states; those of an output its columns; that of an LSE a number.
struct LaneExpansion {
  LaneExpansion(StateType type, func::FuncOp kernel);

  int64_t chunks() const { return llvm::divideCeil(dim, 128 * slices); }
  /// Whether a chunk has lanes without columns, in some slice.
  bool isRagged(int64_t chunk) const { return ((slices - 1) * chunks() + chunk + 1) * 128 > dim; }
  static unsigned invariants(Type) { return 0; }

  KernelBuilder b;
  int64_t dim;
  int64_t partsAtOnce; ///< stored states that are read before the first is used
  int64_t slices;      ///< warps that share a row
  Value lane;
  Value leads;                             ///< whether this lane writes the row's LSE
  SmallVector<Value> columns, wideColumns; ///< this lane's first column of each chunk, also as i64
};

} // namespace mlir::attn

#endif
