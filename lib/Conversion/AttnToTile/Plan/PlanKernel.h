//===- PlanKernel.h - The kernel that makes plans ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the planner does on the host (attn_rt/plan/Plan.h), as a program of many threads
// that know their number and the prefix sums of what all of them hold:
//
//   sequences -> units   how many tiles of rows each has                 PlanUnits.cpp
//   sequences -> pages   that rows read: whether the pool has them all   PlanPages.cpp
//   units -> parts       cut at multiples of a fixed size, or not at all PlanParts.cpp
//   parts -> blocks      longest first, there and back over the blocks   PlanDeals.cpp
//   units -> blocks      instead: equal shares of the list, cut          PlanCuts.cpp
//
// Blocks of the launch do not wait for each other. Each finds all units, parts and their
// order in scratch memory of its own, and writes a share of the plan's arrays.
//
// Heads that have lengths and pages of their own have units of their own. Else a unit stands
// for the same rows of all heads, and its parts are dealt once for each.
//
// Where something is wrong or does not fit there are no units, and nothing follows from
// that but an empty plan.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_PLAN_PLANKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_PLAN_PLANKERNEL_H

#include "AttnToTile/Kernel/PlanAccess.h"

namespace mlir::attn {

using ::attn::rt::PlanDim;
using ::attn::rt::PlanFault;

/// Tokens [begin, end) of an instance that rows of a unit see, of which all of them see [fullBegin, fullEnd).
struct SeenTokens {
  unsigned operand;
  Value begin, end, fullBegin, fullEnd, pos0;
  Value tiles;
};

/// A tile of packed rows.
struct PlanUnit {
  Value sequence, packedBegin, packedCount, firstPosition, lastPosition, rowBegin, rowEnd;
  Value head; ///< the only one that it is of, where heads differ; else 0
  SmallVector<SeenTokens> seen;
  Value tiles; ///< of all that it sees
};

/// Key tiles [begin, end) of a unit, for one ordinal.
struct PlanPiece {
  Value begin, end;
  Value sink; ///< whether it adds the sink; null where there are none
};

/// An array of words in this block's scratch memory.
struct ScratchArray {
  Value first;
};

class PlanKernel {
public:
  /// Few enough that those without a unit cost the others little: warps share what issues instructions.
  static constexpr int64_t warps = 16, threads = warps * 32;

  PlanKernel(Chain &chain, func::FuncOp kernel);
  void run();

  /// Intervals that a visibility gives at most.
  static int64_t mostRanges(VisibilityAttr visibility);

private:
  using Body = function_ref<SmallVector<Value>(Value i, Value exists, ValueRange carried)>;

  // Threads, loops and memory.
  /// All threads of each block go through [0, count) together; `exists` says whether there is an i for this
  /// one.
  SmallVector<Value> walk(Value count, ValueRange carried, Body body);
  /// What `body` computes where there is an i, else zeros; warps without any pass over it.
  SmallVector<Value> ifThere(Value exists, size_t values, function_ref<SmallVector<Value>()> body);
  /// The threads of all blocks share [0, count), 32 of it a warp, the next 32 a warp of the next block.
  void spread(Value count, function_ref<void(Value)> body);
  int64_t spreads = 0; ///< so far
  tile::ScanOp scan(ValueRange values);
  void sync() { tile::SyncOp::create(b, tile::Scope::Block); }
  Value get(ScratchArray array, Value index);
  void put(ScratchArray array, Value index, Value value);
  /// The last i of [0, count) with array[i] <= x; array[0] is.
  Value search(ScratchArray array, Value count, Value x);
  ScratchArray allocate(Value words);
  void write(PlanArray array, Value index, Value value);
  void writeWords(PlanArray array, Value word, ArrayRef<Value> words);

  // Arithmetic.
  Value dim(PlanDim which);
  Value quotient(Value x, PlanDim divisor);
  Value remainder(Value x, PlanDim divisor) { return b.sub(x, b.mul(quotient(x, divisor), dim(divisor))); }
  Value ceilQuotient(Value x, PlanDim divisor) {
    return quotient(b.add(x, b.sub(dim(divisor), b.i32(1))), divisor);
  }
  Value quotient(Value x, Value y) { return b.createOrFold<arith::DivUIOp>(x, y); }
  Value remainder(Value x, Value y) { return b.createOrFold<arith::RemUIOp>(x, y); }
  Value ceilQuotient(Value x, Value y) { return quotient(b.add(x, b.sub(y, b.i32(1))), y); }
  Value both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(x, y); }
  Value either(Value x, Value y) { return b.createOrFold<arith::OrIOp>(x, y); }
  Value equal(Value x, Value y) { return b.compare(arith::CmpIPredicate::eq, x, y); }
  Value isAbove(Value x, Value y) { return b.compare(arith::CmpIPredicate::sgt, x, y); }
  Value atMost(Value x, Value y) { return b.compare(arith::CmpIPredicate::sle, x, y); }
  Value negate(Value condition) {
    return b.createOrFold<arith::XOrIOp>(condition, arith::ConstantIntOp::create(b, 1, 1));
  }
  Value count(Value condition) { return b.createOrFold<arith::ExtUIOp>(b.getI32Type(), condition); }
  Value zeroUnless(Value condition, Value x) { return b.select(condition, x, b.i32(0)); }

  // PlanUnits.cpp
  void declareParameters();
  void layOutScratch();
  void findUnits();
  Value faultOf(Value sequence, Value first, Value last);
  void writeFinding(const Finding &finding);
  bool isRagged(unsigned operand) const;
  Value listOf(unsigned operand, Value sequence, Value head);
  Value lengthOf(unsigned operand, Value sequence, Value head);
  /// The least and the greatest length of a sequence's heads.
  std::pair<Value, Value> lengthsOf(unsigned operand, Value sequence);
  Value roomOf(unsigned operand);
  Value pos0Of(unsigned operand, Value sequence);
  PlanUnit unitOf(Value number) { return unitOf(number, get(sequenceOf, number)); }
  PlanUnit unitOf(Value number, Value sequence);
  /// All rows of a list, a sequence's or one head's of it, as one unit: what they see, and nothing of tiles.
  PlanUnit rowsOf(Value list);
  void findSeen(PlanUnit &unit, Value end);
  void addSeen(unsigned operand, PlanUnit &unit);
  void writePositions();
  void writeScoreTasks();
  int64_t mostSeen() const; ///< segments of a piece

  // PlanPages.cpp
  struct PageRun {
    Value begin, end; ///< entries of a row of the block table
    Value pieces;     ///< that threads look at
  };
  bool isPaged(unsigned operand) const;
  PageRun pageRunOf(const SeenTokens &seen);
  Value pagePiecesOf(const PlanUnit &rows);
  std::pair<Value, Value> firstWrongPage(unsigned operand, Value row, Value begin, Value end);
  Finding wrongPageIn(Value piece);
  void countPieces();
  void checkPages();

  // PlanParts.cpp
  struct Chunks {
    Value inside, parts; ///< cuts between its tokens; what they leave
  };
  Chunks chunksOf(const SeenTokens &seen);
  Value endOfChunk(const SeenTokens &seen, Value number);
  Value partsOf(const PlanUnit &unit);
  PlanPiece partOf(const PlanUnit &unit, Value number);
  void findParts();
  void decide();
  void sortParts();
  SmallVector<Value> countDigit(Value digit);
  SmallVector<Value> unpackDigits(ValueRange counts);
  void sortByDigit(ScratchArray from, ScratchArray to, Value shift);

  // PlanDeals.cpp
  Segment segmentOf(const PlanUnit &unit, const SeenTokens &seen, Value first, const PlanPiece &piece,
                    Value &exists);
  /// Writes the segments of a piece from `at` on, where `at` is given; returns their number and the first.
  std::pair<Value, Segment> segmentsOf(const PlanUnit &unit, const PlanPiece &piece, Value at);
  Task taskOf(const PlanUnit &unit, const PlanPiece &piece, Value ordinal, Value segments, Value segmentCount,
              Value partial);
  struct Dealt {
    Value part, ordinal;
  };
  Dealt dealtAt(Value turn);
  Value startOf(Value block);
  void writeParts();
  void writeTasks();
  void writeStarts();
  void writeMerges();
  void writeMerge(Value list, Value first, Value parts, Value partial, Value stride, const PlanUnit &unit,
                  Value ordinal, Value row);

  // PlanCuts.cpp
  struct Place {
    Value task, tile;
  };
  /// A task that is listed: which unit's it is, and for which ordinal. Blocks abreast are numbered by theirs.
  struct Listed {
    Value unit, ordinal;
  };
  Listed listedAt(Value task, Value nth);
  /// A share's tasks in the order of the list, and where those of its nth block begin.
  struct Run {
    Value from, to, first;
  };
  Run runOf(Value share, Value nth);
  Value placeIn(const Run &run, Value index) { return b.add(run.first, b.sub(index, run.from)); }
  Value nthOf(Value number, Value share) { return b.sub(number, b.mul(share, abreast)); }
  Value partialIn(Value nth, Value row) { return b.add(row, b.mul(nth, listPartials)); }
  Place placeOf(Value cut);
  Value isLastCut(Value cut, Value task);
  void findCuts();
  void countCuts();
  void writeWholeTasks();
  void writeCutTasks();
  void writeCutPiece(const PlanUnit &unit, Value ordinal, Value begin, Value end, Value partial, Value index,
                     Value segments);
  void writeCutStarts();
  void writeCutMerges();

  Chain &chain;
  KernelBuilder b;
  Value thread, block, first, step; ///< of threads: in the block; in the grid, and how many there are
  Value scratchMemory, region, words;
  tile::AllocOp exchange;
  int64_t heads, group;
  int64_t lists, dealt; ///< heads of a sequence that have units of their own, and heads of a unit
  bool sinks, follows;
  bool stores; ///< whether tasks store scores, which significance is made of: sequences then have a row at
               ///< most
  Value isRight, isHeld;  ///< whether inputs have no fault, and what they make fits
  Value sequences, fixed; ///< fixed: whether cuts are at multiples of plan.chunk

  ScratchArray unitStart;                                        ///< of each sequence, and the end
  ScratchArray piecesUpTo;                                       ///< of each list, and the end
  ScratchArray sequenceOf;                                       ///< of each unit
  ScratchArray partStart, partial, mergeStart, costs;            ///< of each unit, and the end
  ScratchArray order, sorted, unitOfPart;                        ///< of parts
  ScratchArray cutTask, cutTile, cutsUpTo, cutPartial, cutMerge; ///< of each block, and the end
  Value pieces;                                                  ///< of rows of block tables
  Value units, parts, partials, merges, cost;                    ///< how many
  Value tasks;                                                   ///< that are dealt
  Value shares, listed, share;                                   ///< units that are cut into so many shares
  Value abreast, isAbreast;       ///< blocks that walk a share together, and whether they are several
  Value listPartials, listMerges; ///< of the list, for one of those blocks
};

} // namespace mlir::attn

#endif
