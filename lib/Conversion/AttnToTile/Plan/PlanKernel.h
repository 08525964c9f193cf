//===- PlanKernel.h - The kernel that makes plans ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The host's planner (attn_rt/plan/Plan.h) as a program of many threads. A
// thread knows its number and the prefix sums of the values that all threads
// hold:
//
//   sequences -> work tiles  the tiles of rows of each                      PlanWorkTiles.cpp
//   sequences -> pages       that rows read: whether the pool has them all  PlanPages.cpp
//   work tiles -> parts      cut at multiples of a fixed size, or not at all PlanParts.cpp
//   parts -> blocks          longest first, there and back over the blocks  PlanDeals.cpp
//   work tiles -> blocks     instead: equal shares of the list, cut         PlanCuts.cpp
//
// The formulas are the host planner's (attn_rt/plan/PlanTerms.h), over values.
//
// Blocks of the launch do not wait for each other. Each finds all work tiles,
// parts and their order in scratch memory of its own, and writes a share of the
// plan's arrays.
//
// Heads that have lengths and pages of their own have work tiles of their own.
// Otherwise a work tile stands for the same rows of all heads, and its parts
// are assigned once for each head.
//
// If an input is wrong or does not fit, there are no work tiles, and the plan
// is empty.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_PLAN_PLANKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_PLAN_PLANKERNEL_H

#include "AttnToTile/Kernel/PlanAccess.h"
#include "AttnToTile/Kernel/ValueNumber.h"

#include "attn_rt/plan/PlanTerms.h"

namespace mlir::attn {

using ::attn::rt::PlanDim;
using ::attn::rt::PlanFault;

// The formulas of numbers. Those of ranges are found by their arguments.
using ::attn::rt::ceilDiv, ::attn::rt::tilesOfRows, ::attn::rt::packedInTile, ::attn::rt::rowOf;
using ::attn::rt::equalShare, ::attn::rt::listOfHead, ::attn::rt::scoreTasksOf, ::attn::rt::scoreTaskEnd;
using ::attn::rt::rowEndOf, ::attn::rt::outputOf, ::attn::rt::positionOf, ::attn::rt::chunkOrigin;
using ::attn::rt::tileCost, ::attn::rt::costOfTask, ::attn::rt::tilesOfCost, ::attn::rt::mostShares;

using Number = ValueNumber;
using NumberRange = ::attn::rt::RangeOf<Number>;

/// The tokens of an instance that rows of a work tile see; all rows see those in `full`.
struct SeenTokens {
  unsigned operand;
  NumberRange tokens, full; ///< `tokens` begin with a tile
  Number first;             ///< the first token that a row sees
  Number pos0;
  Number tiles;
};

/// A work tile: a tile of packed rows.
struct PlanWorkTile {
  Number sequence, packedBegin, packedCount, firstPosition, lastPosition, rowBegin, rowEnd;
  Number head; ///< its only head if heads differ; else 0
  SmallVector<SeenTokens> seen;
  Number tiles; ///< of all tokens that it sees
};

/// Key tiles [begin, end) of a work tile, for one ordinal.
struct PlanPiece {
  Number begin, end;
  std::optional<Number> sink; ///< whether it adds the sink, if there is one
};

/// An array of words in this block's scratch memory.
struct ScratchArray {
  Number first;
};

class PlanKernel : ::attn::rt::PlanScratchOf<ScratchArray> {
public:
  /// Threads without a work tile cost the others little if there are this few: warps share the issue slots.
  static constexpr int64_t warps = 16, threads = warps * 32;

  PlanKernel(Chain &chain, func::FuncOp kernel);
  void run();

  /// The most intervals that a visibility can give.
  static int64_t intervalBound(VisibilityAttr visibility);

private:
  using Numbers = SmallVector<Number>;
  using Body = function_ref<Numbers(Number i, Number exists, ArrayRef<Number> carried)>;

  // Threads, loops and memory.
  /// Runs `body` for [0, count) in all threads of each block together; `exists` says whether this thread has
  /// an i.
  Numbers walk(Number count, ArrayRef<Number> carried, Body body);
  /// The values of `body` if there is an i, else zeros. Warps without any skip it.
  Numbers ifThere(Number exists, size_t values, function_ref<Numbers()> body);
  /// Runs `body` for [0, count), shared by the threads of all blocks: 32 numbers to a warp, the next 32 to a
  /// warp of the next block.
  void spread(Number count, function_ref<void(Number)> body);
  int64_t spreads = 0; ///< so far
  /// Runs `body` for [begin, end), one after the other.
  void forEach(Number begin, Number end, function_ref<void(Number)> body);
  /// Sums over the threads of a block: over those before this thread, and over all.
  struct Sums {
    Numbers before, totals;
  };
  Sums scan(ArrayRef<Number> values);
  void sync() { tile::SyncOp::create(b, tile::Scope::Block); }
  Number get(ScratchArray array, Number index);
  void put(ScratchArray array, Number index, Number value);
  /// The last i of [0, count) with array[i] <= x; array[0] must be.
  Number search(ScratchArray array, Number count, Number x);
  void write(PlanArray array, Number index, Number value);
  void writeWords(PlanArray array, Number word, ArrayRef<Value> words);
  /// Writes a record's fields from a word on.
  template <typename Record> void writeRecord(PlanArray array, Number word, const Record &record) {
    auto fields = ::attn::rt::fieldsOf(record);
    writeWords(array, word, SmallVector<Value>(fields.begin(), fields.end()));
  }

  // Numbers.
  Number number(Value value) { return {b, value}; }
  Number number(int64_t constant) { return {b, b.i32(constant)}; }
  Number condition(bool constant) { return {b, arith::ConstantIntOp::create(b, constant, 1)}; }
  Number count(Number condition) { return {b, b.createOrFold<arith::ExtUIOp>(b.getI32Type(), condition)}; }
  Number shiftedRight(Number x, Number by) { return {b, b.createOrFold<arith::ShRUIOp>(x, by)}; }
  Number dim(PlanDim which);
  ValueDivisor by(PlanDim which) { return {b, which}; }
  Numbers numbersOf(ValueRange values);
  SmallVector<Value> valuesOf(ArrayRef<Number> numbers) { return {numbers.begin(), numbers.end()}; }
  Numbers sumsOf(ArrayRef<Number> x, ArrayRef<Number> y);
  Number read(Value buffer, Number index) { return number(b.read(buffer, b.wide(index))); }
  /// An input buffer of numbers.
  Value table(const Twine &name) { return b.buffer(name.str(), b.getI32Type()); }
  /// The rows of a sequence.
  NumberRange rowsOfSequence(Number sequence);

  // PlanWorkTiles.cpp
  void declareParameters();
  void layOutScratch();
  void findWorkTiles();
  Number faultOf(Number sequence, const NumberRange &rows);
  void writeFinding(const Finding &finding);
  StringRef nameOf(unsigned operand) const;
  bool isRagged(unsigned operand) const;
  Number listOf(unsigned operand, Number sequence, Number head);
  Number lengthOf(unsigned operand, Number sequence, Number head);
  /// The least and the greatest length of a sequence's heads.
  std::pair<Number, Number> lengthsOf(unsigned operand, Number sequence);
  Number roomOf(unsigned operand);
  Number pos0Of(unsigned operand, Number sequence);
  PlanWorkTile workTileOf(Number workTile) { return workTileOf(workTile, get(sequenceOf, workTile)); }
  PlanWorkTile workTileOf(Number workTile, Number sequence);
  /// All rows of a list, of a sequence or of one of its heads, as one work tile: only the tokens that they
  /// see.
  PlanWorkTile rowsOf(Number list);
  void findSeen(PlanWorkTile &workTile, Number end);
  void addSeen(unsigned operand, PlanWorkTile &workTile);
  void writePositions();
  void writeScoreTasks();
  int64_t mostSeen() const; ///< segments of a piece

  // PlanPages.cpp
  struct PageRun {
    NumberRange entries; ///< of a row of the block table
    Number pieces;       ///< each checked by one thread
  };
  bool isPaged(unsigned operand) const;
  PageRun pageRunOf(const SeenTokens &seen);
  NumberRange alignedToParts(const NumberRange &range, Number pos0);
  Number pagePiecesOf(const PlanWorkTile &rows);
  std::pair<Number, Number> firstWrongPage(unsigned operand, Number row, const NumberRange &entries);
  Finding wrongPageIn(Number piece);
  void countPieces();
  void checkPages();

  // PlanParts.cpp
  struct Chunks {
    Number inside, parts; ///< cuts between its tokens; and the resulting parts
  };
  Chunks chunksOf(const SeenTokens &seen);
  Number endOfChunk(const SeenTokens &seen, Number chunk);
  Number partsOf(const PlanWorkTile &workTile);
  PlanPiece partOf(const PlanWorkTile &workTile, Number part);
  void findParts();
  void decide();
  void sortParts();
  Numbers countDigit(Number digit);
  Numbers unpackDigits(ArrayRef<Number> counts);
  void sortByDigit(ScratchArray from, ScratchArray to, Number shift);

  // PlanDeals.cpp
  Segment segmentOf(const PlanWorkTile &workTile, const SeenTokens &seen, const NumberRange &tokens);
  /// Writes the segments of a piece from `at` on, if it is given; returns their number and the first segment.
  std::pair<Number, Segment> segmentsOf(const PlanWorkTile &workTile, const PlanPiece &piece,
                                        std::optional<Number> at = {});
  Task taskOf(const PlanWorkTile &workTile, const PlanPiece &piece, Number ordinal, Number segments,
              Number segmentCount, Number partial);
  void writeStart(Number start, const Task &task, const Segment &front, Number tasksBegin, Number tasksEnd);
  void writeNoStart(Number start);
  struct Dealt {
    Number part, ordinal;
  };
  Dealt dealtAt(Number turn);
  Number startOf(Number block);
  void writeParts();
  void writeTasks();
  void writeStarts();
  void writeMerges();
  void writeMergeCounts();
  void writeMerge(Number list, Number first, Number parts, Number partial, Number stride,
                  const PlanWorkTile &workTile, Number ordinal, Number row);

  // PlanCuts.cpp
  struct Place {
    Number task, tile;
  };
  /// A task in the list: its work tile, and its ordinal. Blocks in lockstep are numbered by their ordinals.
  struct Listed {
    Number workTile, ordinal;
  };
  Listed listedAt(Number task, Number nth);
  /// A share's tasks in the order of the list, and the index of the first task of its nth block.
  struct Run {
    NumberRange tasks;
    Number first;
    Number placeOf(Number task) const { return first + (task - tasks.begin); }
  };
  Run runOf(Number share, Number nth);
  Number nthOf(Number number, Number share) { return number - share * lockstep; }
  Number partialIn(Number nth, Number row) { return row + nth * listPartials; }
  Place placeOf(Number cut);
  Number nextCut(Number cut) { return min(cut + 1, dim(PlanDim::Blocks)); }
  Number isLastCut(Number cut, Number task);
  /// `count` if work tiles are cut into shares, else 0.
  Number ifCut(Number count) { return select(shares > 0, count, 0); }
  void findCuts();
  void countCuts();
  void writeWholeTasks();
  void writeCutTasks();
  PlanPiece pieceOf(Number begin, Number end);
  void writeCutPiece(const PlanWorkTile &workTile, Number ordinal, const PlanPiece &piece, Number partial,
                     Number index, Number segments);
  void writeCutStarts();
  void writeCutMerges();

  Chain &chain;
  KernelBuilder b;
  /// This thread in its block, the block, this thread in the grid, and the number of the grid's threads.
  Number thread, block, first, step;
  Value scratchMemory;
  tile::AllocOp exchange;
  int64_t heads, group;
  int64_t lists, dealt; ///< heads of a sequence with work tiles of their own, and heads of a work tile
  bool sinks, follows;
  bool stores; ///< whether tasks store scores for significance; sequences then have at most one row
  Number isRight, isHeld;  ///< whether inputs have no fault, and whether the results fit
  Number sequences, fixed; ///< fixed: whether cuts are at multiples of plan.chunk

  Number pieces;                                   ///< of rows of block tables
  Number workTiles, parts, partials, merges, cost; ///< their numbers
  Number tasks;                                    ///< the number of tasks without shares
  Number shares, listed, share;                    ///< work tiles that are cut into `shares` shares
  Number piecesOfTask;                             ///< of each task, if all are cut into as many; else 0
  Number lockstep, isLockstep;     ///< blocks that walk a share together, and whether they are several
  Number listPartials, listMerges; ///< of the list, for one of those blocks
};

} // namespace mlir::attn

#endif
