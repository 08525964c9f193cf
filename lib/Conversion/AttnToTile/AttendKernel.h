//===- AttendKernel.h - What all schedules of a kernel share ----*- C++ -*-===//
//
// A kernel that computes a chain of updates walks the plan:
//
//   for each task of this block            rows that share an accumulator
//     load the rows' queries
//     for each segment of the task         a token range of one instance
//       for each tile of keys
//         scores, mask, online softmax, O += P V
//     write O and LSE, or a part of them
//
// Rows are *packed*: row p of KV head h is query row p / G, query head
// h*G + p % G, so that the heads of a group share every key they read. Where
// heads have classes, a task names a slot, and `slot_heads` its KV head. In the
// store of one class a slot's head is the one after the class's slots before it.
//
// Schedules differ in who copies and who computes, and in how the tensor cores
// are driven; they derive from this class. What a tile means (scores, score
// regions, visibility, softmax, sinks, results) is written here, once.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_ATTENDKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_ATTENDKERNEL_H

#include "PlanAccess.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {

/// A partial softmax of one warp's rows.
struct State {
  Value max, sum, acc;
  SmallVector<Value> values() const { return {max, sum, acc}; }
};

class AttendKernel {
public:
  /// Goes on with a kernel that a pass before has begun.
  AttendKernel(Chain &chain, func::FuncOp kernel)
      : chain(chain), schedule(kernel->getAttrOfType<tile::ScheduleAttr>("tile.schedule")), b(kernel),
        rows(schedule.getWarpRows()), keys(schedule.getWarpKeys()) {}

  // Types of the fragments that one warp holds.
  tile::FragmentType rowsOf(Type element, bool partial = false) {
    return b.fragment({tile::Axis::Query}, {rows}, element, partial);
  }
  tile::FragmentType scoresType() {
    return b.fragment({tile::Axis::Query, tile::Axis::Key}, {rows, keys}, b.getF32Type());
  }
  tile::FragmentType accType() {
    return b.fragment({tile::Axis::Query, tile::Axis::Feature}, {rows, chain.paddedValueDim()},
                      b.getF32Type());
  }
  tile::FragmentType queryType() {
    return b.fragment({tile::Axis::Query, tile::Axis::Feature}, {rows, chain.paddedKeyDim()},
                      chain.element());
  }
  /// Of elements of the query's type, if no other is named.
  tile::SharedType sharedType(tile::Axis axis, int64_t lines, int64_t features, int64_t boxes = 0,
                              Type element = {}) {
    return tile::SharedType::get(b.getContext(), axis, lines, tile::Axis::Feature, features,
                                 element ? element : chain.element(), false, boxes);
  }

  // Stores of codes (Dequantize.cpp).
  /// What a dot takes of a tile of keys or values, of which it keeps `kept`: the tile, or its codes widened.
  Value rightOperand(Value tile, tile::Axis kept);
  /// Whether keys or values come with scales.
  bool hasScales();
  /// Reads those of the task's head, and sets the units by them.
  void readScales();
  /// Sets what scores are multiplied by, and in which units they enter the softmax.
  void setUnits(Value keyScale = {});

  /// Declares the parameters every schedule has, in the order of the manifest.
  void declareParameters();
  /// Computes what is the same for the whole kernel.
  void computeConstants();
  void setTask(const Task &task);
  /// What a tile's tokens say of the segment they are of.
  static Segment segmentOf(TokensOp tokens);
  /// The rows that a kernel's loop works on.
  void setRows(RowsOp queryRows);
  /// Copies the task's queries to `target`.
  void gatherQueries(Value target, tile::Scope scope);
  /// Where the tokens of the tile from `firstKey` on lie, where a table says that; else null.
  Value lookupTokens(UpdateOp update, const Segment &segment, Value firstKey, tile::Scope scope);
  /// Copies keys, values or both of that tile, whose tokens were looked up.
  void gatherTokens(UpdateOp update, const Segment &segment, Value firstKey, Value slots,
                    ArrayRef<StringRef> parts, ValueRange targets, tile::Scope scope);
  /// The same as bulk copies, by one warp.
  void fetchQueries(Value target);
  /// Writes a warpgroup's rows of the output, from the task's `firstRow` on, by way of their box of the
  /// queries, which nobody else uses. Its warps meet at the barrier; until finish_sends the box must stay as
  /// it is.
  void sendOutput(Value output, Value queries, Value firstRow, Value barrier);
  void fetchTokens(UpdateOp update, Value slot, StringRef part, Value target);
  /// Where this lane's box of the tile from `firstKey` on begins, of keys and values alike.
  Value fetchSlot(UpdateOp update, const Segment &segment, Value firstKey);
  void readRows();
  /// Whether the task's rows count the sink.
  Value countsSink() {
    return b.compare(arith::CmpIPredicate::ne,
                     b.createOrFold<arith::AndIOp>(flags, b.i32(::attn::rt::taskHasSink)), b.i32(0));
  }
  /// A state before any token; `sinks` are the logits of one token that `counts` says whether to count.
  State initialState(Value sinks, Value counts);
  /// The union of two states of the same rows.
  State mergeStates(const State &x, const State &y);
  /// Memory in which the warps of a block exchange their states, in place of what they copy to.
  Value exchangeMemory();
  /// End of a segment's tokens, and its tiles: none where it belongs to another operand.
  Value endOf(const Segment &segment, unsigned operand);
  Value tilesOf(const Segment &segment, unsigned operand);

  /// Scores as they enter the softmax: score region and mask applied. `operand` null: the segment tells
  /// which.
  Value finishScores(Value scores, std::optional<unsigned> operand, const Segment &segment, Value firstKey);
  struct Step {
    Value max, sum, decay;
    Value
        moved; ///< whether the unit of some row moved: decay is 1 everywhere where not; null under fixedUnit
    Value weights;
  };
  /// One step of the online softmax: new max and sum, the factor of what was accumulated, the tile's weights.
  Step softmax(Value scores, const State &state);
  /// Brings what was accumulated to the new unit, if it moved. `acc` is called in both branches of whether it
  /// did, so that a wait for a dot in flight can stand there.
  Value rescale(llvm::function_ref<Value()> acc, const Step &step);
  Value packWeights(Value weights);
  /// Output and LSE of a state.
  struct Results {
    Value output, lse;
  };
  Results finishState(Value max, Value sum, Value acc);
  /// Writes them; `column`/`columns`/`lseLines` restrict what this warp writes of its rows. `writeRows`, if
  /// there is one, writes the output where it is no part of a result.
  void writeResults(Results results, Value column, IntegerAttr columns, Value lseLines,
                    llvm::function_ref<void(Value)> writeRows = {});
  /// Columns of the output that exist, where tiles have more.
  IntegerAttr outputColumns() {
    bool padded = chain.paddedValueDim() != chain.valueDim();
    return padded ? b.getI64IntegerAttr(chain.valueDim()) : IntegerAttr();
  }
  /// Element of the output where a packed row of the task begins.
  Value outputIndex(Value row) { return b.mul(rowAndHead(row), b.i64(chain.valueDim())); }
  Value rowAndHead(Value row) {
    auto [query, head] = unpack(b.add(packedBegin, row));
    return b.add(b.mul(b.wide(query), b.i64(chain.queryHeads())), b.wide(head));
  }

  /// Query row and query head of a packed row.
  std::pair<Value, Value> unpack(Value packed) {
    return {b.div(packed, chain.group()),
            b.add(b.mul(kvHead, b.i32(chain.group())), b.rem(packed, chain.group()))};
  }
  /// Lines of the boxes in which a region's keys or values come.
  int64_t linesOf(UpdateOp update, StringRef part) {
    ArrayRef<int64_t> copies = part == "k" ? schedule.getKeyCopies() : schedule.getValueCopies();
    return copies[llvm::find(chain.updates, update) - chain.updates.begin()];
  }
  std::string tensor(UpdateOp update, StringRef part) {
    return (argumentName(update.getKv()) + "." + part).str();
  }
  /// The type in which an operand's store holds keys ("k") or values ("v").
  static Type storedElement(UpdateOp update, StringRef part) {
    KVType type = update.getKv().getType();
    return part == "k" ? type.getKey() : type.getValue();
  }
  Value taskEnd() { return b.add(packedBegin, packedCount); }
  /// Packed row of a line of this warp; lines past the task's last repeat it.
  Value packedRow(Value line) {
    return b.min(b.add(b.add(packedBegin, warpRow), line), b.add(taskEnd(), b.i32(-1)));
  }
  /// Whether scores enter the softmax as the dots leave them.
  bool rawScores() { return chain.updates.empty() || chain.updates.front().getScore().empty(); }
  /// Whether the score region asks where a key stands: its last argument.
  bool readsKeyPosition() {
    return !rawScores() && !chain.updates.front().getScore().front().getArguments().back().use_empty();
  }

  Chain &chain;
  tile::ScheduleAttr schedule;
  KernelBuilder b;
  int64_t rows, keys;

  // Values of the kernel.
  Value dotScale;         ///< what the dot of a query and a key is multiplied by to be a score
  Value scoreUnit;        ///< what a score of 1 is, as it enters the softmax
  Value toLog2;           ///< the same in log2
  bool fixedUnit = false; ///< whether weights are exp(score): bounded scores need no maximum
  Value warpRow;          ///< this warp's first row, counted from the task's first
  // Values of the task being written.
  Value packedBegin, packedCount, slot, kvHead, segmentBegin, segmentEnd, partial, flags, headClass;
  Value sinkCounts; ///< whether this warp's rows count the sink
  Value groupRow;   ///< first row of this warp's warpgroup, where there are such
  Value queryPosition, queryHead;
  Value valueScale; ///< of the task's head, which results are multiplied by; null where there is none

private:
  Value scaleOfHead(StringRef part);
  /// `extent` elements times the named dimensions, `stride` bytes apart, `box` of them in a copy.
  struct MapAxis {
    int64_t extent;
    SmallVector<std::string> dims;
    int64_t stride, box;
  };
  SmallVector<Value> tensorMaps(StringRef name, StringRef buffer, tile::SharedType tile, int64_t lines,
                                std::optional<MapAxis> inner, MapAxis slots, int64_t features, int64_t heads,
                                int64_t headStride);
  SmallVector<Value> rowMaps(StringRef buffer, tile::SharedType tile, int64_t dim);
  /// Whether a tile's lines are longer than those of the tensor it is copied from or to.
  static bool isPadded(tile::SharedType tile, int64_t features) { return tile.getCols() != features; }
  struct TileBounds;
  void addEnds(VisibilityAttr visibility, int64_t &end, Value origin, TileBounds &bounds);
  Value visible(VisibilityAttr visibility, Value column, Value last, Value exists, ArrayRef<Value> &ends);
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
  Value readTensor(attn::ReadOp read, llvm::function_ref<Value(Value)> inside);
  /// Scores as the score region makes them, in units of scoreUnit (AttendScores.cpp).
  Value applyScoreRegion(Value scores, const Segment &segment, Value firstKey);
  ScoreForm form;
  Value placeOf(UpdateOp update, const Segment &segment);
  Value slotOf(UpdateOp update, const Segment &segment, Value token, bool startsPage = false);
  /// The same, where slots are of one head in the store of a class.
  Value lineOf(UpdateOp update, const Segment &segment, Value token);
  /// Whether a segment may be a list of single tokens (see runtime/src/plan/Lists.cpp), and whether it is.
  /// Long heads leave no registers for another mask, and a list has places where a score region would read
  /// positions; the planner sees by the parameters that there is none.
  bool mayList();
  Value isList(const Segment &segment) { return b.less(segment.instance, b.i32(0)); }
  Value maskForList(Value scores, const Segment &segment, Value firstKey);
  Value maskFor(unsigned operand, unsigned headClass, Value scores, const Segment &segment, Value firstKey,
                Value partialTile);
};

} // namespace mlir::attn

#endif
