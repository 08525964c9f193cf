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
  /// acc + of-rows * stored, lines of a shared left operand from the warp's or, where four multiply as one,
  /// from the warpgroup's first row on. Without `acc` the product.
  Value dot(tile::FragmentType type, Value ofRows, Value stored, Value acc);

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
  /// What is to be added to a row's maximum, so that its weights are below 2^8 times scales, too.
  Value liftOf(Value scale);
  /// Likewise, of weights that take no scales; null where no other region's do.
  Value liftBesideScales(UpdateOp update);
  /// How much of the scores' unit a step of 1 in log2 is; 0 where scores are multiplied by 0.
  Value unitsPerLog2();
  /// Whether weights are multiplied by the scales of 8-bit floats.
  bool weighsFloats(UpdateOp update);
  /// Weights times a number of each token.
  Value timesTokens(Value weights, Value tokens);
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

  /// What a score region makes of one score, head and positions, and behind it its derivatives by the score
  /// and by each of `reads` (ScoreSlopes.cpp).
  SmallVector<Value> scoreAndSlopes(Block &region, ValueRange arguments, ArrayRef<TableRead> reads);
  /// Where in its table a read finds its element, by head and position of the row.
  Value tablePlace(attn::ReadOp read, ValueRange headAndPosition);
  /// The reads of an update whose tables get gradients here.
  SmallVector<TableRead> readsWithGradients(UpdateOp update) {
    return tableReads(update, b.kernel->getAttrOfType<ArrayAttr>(tablesAttr));
  }
  /// An element of a table; `inside` gives what stands for a value of the region.
  Value readTensor(attn::ReadOp read, llvm::function_ref<Value(Value)> inside);
  Value elementIndex(attn::ReadOp read, llvm::function_ref<Value(Value)> inside);

  // States (Softmax.cpp).
  /// A state before any token.
  State initialState();
  /// The union of two states of the same rows.
  State mergeStates(const State &x, const State &y);
  /// Memory in which the warps of a block exchange their states, in place of what they copy to.
  Value exchangeMemory();

  /// Scores as they enter the softmax: score region and mask applied. `operand` null: the segment tells
  /// which.
  Value finishScores(Value scores, std::optional<unsigned> operand, const Segment &segment, Value firstKey);
  /// Scores of what rows see; of the others -inf.
  Value maskScores(Value scores, std::optional<unsigned> operand, const Segment &segment, Value firstKey);
  /// Stores them where the task's are asked for (StoreScores.cpp).
  void storeScores(Value scores, UpdateOp update, TokensOp tokens);
  struct Step {
    Value max, sum, decay;
    Value moved;   ///< whether the unit of some row moved; else decay is 1. Null under fixedUnit
    Value weights; ///< of the tile's tokens
  };
  /// One step of the online softmax: new max and sum, the factor of what was accumulated, the tile's weights.
  /// `lift`, if there is one, is how much higher than the largest score the maximum is to be.
  Step softmax(Value scores, const State &state, Value lift = {});
  /// The unit that a row keeps under fixedUnit: `unit`, or where a row has none the first that it can have.
  Value firstUnit(Value scores, Value unit);
  /// The sum of zeros behind a step.
  Value addZeros(Value zeros, const Step &step, Value zero);
  /// Brings what was accumulated to the new unit, if it moved.
  Value rescale(Value acc, const Step &step);
  /// Rounds weights to what values are multiplied as.
  Value packWeights(Value weights, Type element);
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
  /// Whether a row sees `column`, of those before `exists`: `last` is the row's own. `ends` are consumed in
  /// order.
  Value visible(VisibilityAttr visibility, Value column, Value last, Value exists, ArrayRef<Value> &ends);

private:
  bool foldsScale(bool keys);
  Value sharedScale(UpdateOp update, bool keys, Value place);
  Value regionScale(UpdateOp update, bool keys, const Segment &segment);
  SmallVector<Value> lineMeta(StagedOp staged, bool keys);
  Value loadCodes(Value tile, tile::Axis kept, const rt::StorePart &part);
  Value queryFragment(Value query);
  Value partOfFeatures(Value fragment, int64_t group, const rt::StorePart &part);
  Value sumOfGroup(Value query, int64_t group, const rt::StorePart &part);
  Value dotGroups(UpdateOp update, Value query, Value keys, ArrayRef<Value> meta, const rt::StorePart &part);
  struct TileBounds;
  void addEnds(VisibilityAttr visibility, int64_t &end, Value origin, TileBounds &bounds);
  /// How a score region computes one score.
  struct ScoreForm {
    DenseMap<Operation *, Value>
        factors;               ///< products of the score with a constant: scale and constant in one
    Operation *unit = nullptr; ///< a last product with a constant, which is left to the softmax
    double unitValue = 1;
    math::TanhOp tanh;               ///< one that has a short form
    Value tanhFactor;                ///< its argument over the raw score
    SmallVector<Value> coefficients; ///< of the short form, in the raw score
  };
  void readScoreRegion();
  Value score(ValueRange arguments, bool shortForm);
  /// Scores as the score region makes them, in units of scoreUnit (Scores.cpp).
  Value applyScoreRegion(Value scores, const Segment &segment, Value firstKey);
  ScoreForm form;
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
