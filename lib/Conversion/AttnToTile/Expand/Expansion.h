//===- Expansion.h - What expanding online operations needs ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The two forms in which a warp holds a state (see OnlineOpInterface.td). What stands
// for a value of the online level is the operands of the cast that takes its place:
// a state's maximum, sum and accumulator, say. So an operation finds all it needs in its
// operands and its kernel's attributes.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_EXPANSION_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_EXPANSION_H

#include "AttnToTile/Kernel/Parts.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include "attn/Conversion/OnlineOpInterface.h"
#include "attn/Dialect/Attn/IR/StepOps.h"

namespace mlir::attn {

/// Returns what stands for a value of the online level.
ValueRange piecesOf(Value online);
/// Lets these stand for it from the builder's place on.
void become(OpBuilder &builder, Value online, ValueRange pieces);

/// A partial softmax of one warp's rows.
struct State {
  Value max, sum, acc;
  Value zeros; ///< what the values' zeros add to every feature of a row; null where acc has it
  Value unit;  ///< what a score of 1 is in log2, as it enters the softmax
  SmallVector<Value> pieces() const {
    SmallVector<Value> all{max, sum, acc};
    if (zeros)
      all.push_back(zeros);
    all.push_back(unit);
    return all;
  }
};

/// One of a number of updates by a tile, of which `which` says which; null: there is one.
struct OneUpdate {
  ArrayRef<UpdateOp> all;
  Value which;

  /// Stands for all of them where they are alike.
  UpdateOp front() const { return all.front(); }
  RowsPart rows(KernelBuilder &b, FormAttr form) const { return RowsPart(b, form, front().getQuery()); }
  TokensOp tokens() const { return tokensOf(front().getKv()); }
};

/// Sixteen rows to a warp, or eight. Pieces of a state are those of State; of an output its fragment and its
/// rows' LSEs, of an LSE these.
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
  /// Holds a number for each pair of a row and a token.
  tile::FragmentType pairs() { return productType(tile::Axis::Key, form.getKeys()); }
  tile::FragmentType accType() { return productType(tile::Axis::Feature, form.getValueTile()); }
  /// Holds a product of the rows. The axis that they are multiplied with comes first where tokens do.
  tile::FragmentType productType(tile::Axis axis, int64_t size) {
    if (form.has(FormTraits::TokensFirst))
      return b.fragment({axis, tile::Axis::Query}, {size, form.getRows()}, b.getF32Type());
    return b.fragment({tile::Axis::Query, axis}, {form.getRows(), size}, b.getF32Type());
  }

  State stateOf(Value state);
  void setState(Value state, const State &pieces) { become(b, state, pieces.pieces()); }
  /// How many of a value's last pieces a loop does not change.
  static unsigned invariants(Type online);

  // Units.
  /// What the mma of a query and a key is multiplied by to be a score.
  Value mmaScale(Value rows);
  /// What a score of 1 is in log2, as it enters the softmax of these rows.
  Value unitOf(Value rows);

  // Products (Dequantize.cpp).
  /// Scores of rows and tokens, times these factors.
  Value scores(Value rows, Value ofRows, Value ofTokens, Value scale = {}, Value tokenScales = {});
  /// The products of the rows and a staged tile's keys.
  Value rowsMmaTokens(UpdateOp update);
  /// Tokens whose weights are multiplied by scales have a scale. Integers whose values are codes alone have a
  /// zero, too, and powers of two that blocks share have the exponent of that scale, their largest. Other
  /// tokens have none.
  struct TokenMeta {
    Value scale, zero, most;
  };
  TokenMeta weighedMeta(UpdateOp update);
  /// Gives a staged tile's values as an mma with weights takes them: the tile, or fragments of f16.
  Value valuesOf(UpdateOp update, const TokenMeta &weighed);
  /// How far a row's unit is above its maximum, null where it is not, and how far the maximum may pass that.
  struct Room {
    Value lift;
    int64_t slack = 8;
  };
  /// The room of a region whose weights take no scales, where those of another do.
  Room roomBesideScales(UpdateOp update, Value unit);
  /// The sum of zeros behind a step.
  Value addZeros(Value zeros, Value decay, Value weights, Value zero);
  /// A state of values, of one that has codes and zeros apart.
  State settled(const State &state);

  // Scores (ScoreRegion.cpp, Masks.cpp, StoreScores.cpp).
  /// The step of an update's score region on a tile from `firstKey` on.
  ScoreFnOp scoreRegion(UpdateOp update, TypeRange types, Value scores, Value position, Value firstKey,
                        ArrayRef<int64_t> reads = {});
  /// Scores as the score region of an update makes them, in units of the state.
  Value applyScoreRegion(UpdateOp update, Value scores);
  /// Where in its table a read finds its element, by head and position of the row.
  Value tablePlace(attn::ReadOp read, ValueRange headAndPosition);
  /// Scores of what rows see; of the others -inf.
  Value maskScores(const OneUpdate &update, Value scores, Value position, Value firstKey);
  /// The sizes of a visibility's terms, of which the first is this number of the kernel's.
  SmallVector<Value> endsOf(VisibilityAttr visibility, int64_t first);
  /// Stores scores where the task's are asked for.
  void storeScores(UpdateOp update, Value scores, Value unit);

  // States (States.cpp).
  /// A state before any token.
  State initialState(Value rows);
  /// The union of two states of the same rows.
  State mergeStates(const State &x, const State &y);
  /// The union of those that the warps of a block hold, whose columns they share.
  State mergeWarps(const State &part);
  /// Output and LSE of a state.
  struct Results {
    Value output, lse;
  };
  Results finishState(FinishOp finish);
  /// Writes output and LSE of the first region alone.
  void writeFirst(mlir::attn::WriteOp write);
  /// Writes output and LSE, or a part's state that another kernel merges.
  void writeResults(mlir::attn::WriteOp write);

  /// Stores so many lines of this warp, `stride` elements each, where `slotOf` says of a line. `column`: the
  /// fragment's first; `columns`: how many exist where the fragment has more.
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
  Value groupScores(UpdateOp update, Value query, Value keys, const rt::StorePart &part, Value scale,
                    bool tiny);
  Value maskForList(UpdateOp update, Value scores, Value firstKey);
  Value maskFor(UpdateOp update, unsigned headClass, Value scores, Value position, Value firstKey,
                Value partialTile);
  Value sinksInLog2(FinishOp finish, tile::FragmentType rowType);
  Value exchangeMemory();
};

/// One row to a warp, its columns four adjacent ones of each 128 to a lane. Pieces of a state are maximum,
/// sum and columns; of stored states which is this lane's, and their count; of an output its columns, of an
/// LSE a number.
struct LaneExpansion {
  LaneExpansion(StateType type, func::FuncOp kernel);

  int64_t chunks() const { return llvm::divideCeil(dim, 128); }
  /// Whether a chunk has lanes without columns.
  bool isRagged(int64_t chunk) const { return (chunk + 1) * 128 > dim; }
  static unsigned invariants(Type) { return 0; }

  KernelBuilder b;
  int64_t dim;
  int64_t partsAtOnce; ///< stored states that are read before the first is used
  Value lane;
  SmallVector<Value> columns, wideColumns; ///< this lane's first column of each chunk, also as i64
};

} // namespace mlir::attn

#endif
