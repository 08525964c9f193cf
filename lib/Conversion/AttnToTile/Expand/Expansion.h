//===- Expansion.h - What expanding online operations needs ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The two forms in which a warp holds a state (see OnlineOpInterface.td), and what
// the operations of a kernel have become so far.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_EXPANSION_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_EXPANSION_H

#include "AttnToTile/Stage/TileCopies.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include "attn/Conversion/OnlineOpInterface.h"
#include "attn/Dialect/Attn/IR/StepOps.h"

namespace mlir::attn {

/// What stands for values of the online level: of a state, of rows, of results.
class Pieces {
public:
  ArrayRef<Value> of(Value online) const {
    auto found = pieces.find(online);
    assert(found != pieces.end() && "an operand has not been expanded");
    return found->second;
  }
  void set(Value online, ArrayRef<Value> values) { pieces[online] = SmallVector<Value>(values); }

private:
  DenseMap<Value, SmallVector<Value>> pieces;
};

/// A partial softmax of one warp's rows.
struct State {
  Value max, sum, acc;
  Value zeros; ///< what the values' zeros add to every feature of a row; null where acc has it
  SmallVector<Value> values() const {
    SmallVector<Value> all{max, sum, acc};
    if (zeros)
      all.push_back(zeros);
    return all;
  }
};

/// Sixteen rows to a warp, or eight. Pieces of a state are maximum, sum and accumulator and, where weights
/// take what values are scaled by, the sum of zeros, or, where warps share the columns, this warp's first; of
/// rows their positions and query heads; of an output its fragment and the
/// first column, if there is one; of an LSE its fragment.
struct FragmentExpansion : TileCopies {
  using TileCopies::TileCopies;

  State stateOf(Value state) {
    ArrayRef<Value> values = pieces.of(state);
    return {values[0], values[1], values[2], weighsIntegers() ? values[3] : Value()};
  }
  /// The copy of a staged part.
  static Value copyOf(Value part, unsigned number) {
    return part.getDefiningOp<StagedOp>().getCopies()[number];
  }
  /// Which instructions multiply.
  Dots dots() { return schedule.getKind() == tile::ScheduleKind::Wgmma ? Dots::Wgmma : Dots::Mma; }
  /// Scores of rows and tokens, times these factors.
  Value scores(Value ofRows, Value ofTokens, Value scale = {}, Value tokenScales = {});

  /// Computes what is the same for the whole kernel.
  void computeConstants();
  /// From here on these, which have been expanded, are the rows that the methods speak of.
  void setRows(Value rows);
  /// Reads what is known of each of them.
  void readRows(RowsOp queryRows);

  // Stores of codes (Dequantize.cpp).
  /// The products of the rows and a staged tile's keys.
  Value rowsDotTokens(UpdateOp update, StagedOp staged, const Segment &segment);
  /// What a dot with weights takes of a staged tile's values: the tile, or fragments of f16.
  Value valuesOf(UpdateOp update, StagedOp staged);
  /// Whether weights are multiplied by the scales of integer values: where these have one for a token, the
  /// same format in all regions, and rows are few.
  bool weighsIntegers();
  /// Scale and, of integers, zero of the tokens whose weights are multiplied by scales and whose values are
  /// codes alone; of the others none.
  struct TokenMeta {
    Value scale, zero;
  };
  TokenMeta weighedMeta(UpdateOp update, StagedOp staged, const Segment &segment);
  /// Returns what is added to a row's maximum where this region's weights take no scales and another's do;
  /// else null.
  Value liftBesideScales(UpdateOp update);
  /// Whether weights are multiplied by the scales of 8-bit floats.
  bool weighsFloats(UpdateOp update);
  /// A state of values, of one that has codes and zeros apart.
  State settled(const State &state);
  /// Whether units and results take a scale that the whole kernel shares.
  bool foldsScales() { return foldsScale(true) || foldsScale(false); }
  /// Reads those of the task's head, and sets the units by them.
  void readScales();
  /// Sets what scores are multiplied by, and in which units they enter the softmax.
  void setUnits(Value keyScale = {});

  // Gradients (ExpandGradients.cpp).
  /// Reads the LSE of each row, and its delta where gradients of tokens are held: from memory.
  void readFinished();
  /// Reads the gradient of each row's LSE.
  Value readLseGradient();
  /// LSEs of rows as weights take them, and of lines behind the last row: +inf.
  Value lseOfLines(Value ofRows);
  /// Whether those and positions of rows are staged with them.
  bool stagesNumbers() { return chain.holdsTokens() && schedule.getKind() == tile::ScheduleKind::Wgmma; }
  Value rowLse;   ///< in log2; +inf of rows whose weights are all zero
  Value rowDelta; ///< of rows: <do, o> - dlse
  /// First token of this warp, and of its warpgroup, of those that the block holds.
  Value warpToken, groupToken;

  /// Where in its table a read finds its element, by head and position of the row.
  Value tablePlace(attn::ReadOp read, ValueRange headAndPosition);
  /// The reads of an update whose tables get gradients here.
  SmallVector<TableRead> readsWithGradients(UpdateOp update) {
    return tableReads(update, tablesAttr.get(b.kernel));
  }
  // States (States.cpp).
  /// A state before any token.
  State initialState();
  /// The union of two states of the same rows.
  State mergeStates(const State &x, const State &y);
  /// Memory in which the warps of a block exchange their states, in place of what they copy to.
  Value exchangeMemory();

  /// The step of an update's score region on a tile.
  ScoreFnOp scoreRegion(UpdateOp update, TypeRange types, Value scores, Value firstKey, Value pos0,
                        ArrayRef<int64_t> reads = {});
  /// Scores as the score region of an update makes them, in units of scoreUnit.
  Value applyScoreRegion(UpdateOp update, Value scores, const Segment &segment, Value firstKey);
  /// Scores of what rows see; of the others -inf.
  Value maskScores(Value scores, std::optional<unsigned> operand, const Segment &segment, Value firstKey);
  /// Stores them where the task's are asked for (StoreScores.cpp).
  void storeScores(Value scores, UpdateOp update, TokensOp tokens);
  /// The sum of zeros behind a step.
  Value addZeros(Value zeros, Value decay, Value weights, Value zero);
  /// Output and LSE of a state.
  struct Results {
    Value output, lse;
  };
  /// `sinks`: an argument of the kernel, or null.
  Results finishState(Value max, Value sum, Value acc, Value sinks);
  Value sinksInLog2(Value sinks, tile::FragmentType rowType);
  /// Writes those of a state that was finished early.
  void writeFirst(Results results);
  /// Writes them, or, where `part` is not negative, the state of that number. `column`/`columns`/`lseLines`
  /// restrict what this warp writes of its rows. `writeRows`, if there is one, writes an output that is
  /// whole.
  void writeResults(Results results, Value part, Value column, IntegerAttr columns, Value lseLines,
                    llvm::function_ref<void(Value)> writeRows = {});

  Pieces pieces;

  // Values of the kernel.
  Value dotScale;         ///< what the dot of a query and a key is multiplied by to be a score
  Value scoreUnit;        ///< what a score of 1 is, as it enters the softmax
  Value toLog2;           ///< the same in log2
  bool fixedUnit = false; ///< whether a row's unit is its first: bounded scores need no maximum
  // Values of the rows.
  Value queryPosition, queryHead;
  Value valueScale; ///< of the task's head, which results are multiplied by; null where there is none
  /// The sizes of a visibility's terms, of which the first is this number of the kernel's.
  SmallVector<Value> endsOf(VisibilityAttr visibility, int64_t first);

private:
  bool foldsScale(bool keys);
  Value sharedScale(UpdateOp update, bool keys, Value place);
  Value regionScale(UpdateOp update, bool keys, const Segment &segment);
  SmallVector<Value> lineMeta(StagedOp staged, bool keys);
  Value dequantized(Value tile, tile::Axis kept, const rt::StorePart &part, Type element, ValueRange scales,
                    ValueRange zeros, bool tiny);
  IntegerAttr groupOf(const rt::StorePart &part);
  Value queryFragment(Value query);
  Value groupScores(UpdateOp update, Value query, Value keys, ArrayRef<Value> meta, const rt::StorePart &part,
                    Value scale);
  Value maskForList(Value scores, const Segment &segment, Value firstKey);
  /// The masks of what a tile may hold, of which one applies; none where each row sees all of it.
  Value maskTile(Value scores, std::optional<unsigned> operand, const Segment &segment, Value firstKey,
                 Value partialTile);
  Value maskFor(unsigned operand, unsigned headClass, Value scores, const Segment &segment, Value firstKey,
                Value partialTile);
};

/// One row to a warp, its columns four adjacent ones of each 128 to a lane. Pieces of a state are maximum,
/// sum and columns; of stored states which is this lane's, and their count; of an output its columns, of an
/// LSE a number.
struct LaneExpansion {
  LaneExpansion(StateType type, func::FuncOp kernel);

  int64_t chunks() const { return llvm::divideCeil(dim, 128); }
  /// Whether a chunk has lanes without columns.
  bool isRagged(int64_t chunk) const { return (chunk + 1) * 128 > dim; }

  KernelBuilder b;
  int64_t dim;
  int64_t partsAtOnce; ///< stored states that are read before the first is used
  Value lane;
  SmallVector<Value> columns, wideColumns; ///< this lane's first column of each chunk, also as i64
  Pieces pieces;
};

} // namespace mlir::attn

#endif
