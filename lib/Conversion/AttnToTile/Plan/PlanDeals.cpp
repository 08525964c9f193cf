//===- PlanDeals.cpp - Parts are dealt to blocks, on the device -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All ordinals of the longest part, then those of the next, go to the blocks in turn, and
// the next round goes back: what a block gets early and long, it gets late and short.
//
//   turn   0 1 2 3 | 4 5 6 7 | 8 9
//   block  0 1 2 3 | 3 2 1 0 | 0 1
//
// So where a block's tasks begin is known without asking any other block.
//
// Of a unit that is cut, part k of ordinal s has its rows' partials behind those of part
// k - 1, and the lists of the merge map follow from that.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The tokens of a piece in one of the unit's ranges, whose first tile has that number.
Segment PlanKernel::segmentOf(const PlanUnit &unit, const SeenTokens &seen, Value firstTile,
                              const PlanPiece &piece, Value &exists) {
  Value keys = dim(PlanDim::Keys);
  Value begin = b.max(b.sub(piece.begin, firstTile), b.i32(0));
  Value end = b.min(b.sub(piece.end, firstTile), seen.tiles);
  exists = b.less(begin, end);
  Segment segment;
  segment.operand = b.i32(seen.operand);
  segment.instance = unit.sequence;
  segment.kvBegin = b.add(seen.begin, b.mul(begin, keys));
  segment.kvEnd = b.select(b.less(end, seen.tiles), b.add(seen.begin, b.mul(end, keys)), seen.end);
  Value fullBegin = b.max(seen.fullBegin, segment.kvBegin), fullEnd = b.min(seen.fullEnd, segment.kvEnd);
  Value some = b.less(fullBegin, fullEnd);
  segment.fullBegin = b.select(some, fullBegin, segment.kvBegin);
  segment.fullEnd = b.select(some, fullEnd, segment.kvBegin);
  segment.pos0 = seen.pos0;
  segment.firstOrdinal = b.i32(0);
  return segment;
}

std::pair<Value, Segment> PlanKernel::segmentsOf(const PlanUnit &unit, const PlanPiece &piece, Value at) {
  Value zero = b.i32(0), number = zero, firstTile = zero;
  Segment front = ::attn::rt::recordOf<Segment>(SmallVector<Value>(Segment::usedWords, zero));
  for (const SeenTokens &seen : unit.seen) {
    Value exists;
    Segment segment = segmentOf(unit, seen, firstTile, piece, exists);
    firstTile = b.add(firstTile, seen.tiles);
    auto fields = ::attn::rt::fieldsOf(segment), known = ::attn::rt::fieldsOf(front);
    if (at)
      b.doIf(exists, [&] {
        Value word = b.mul(b.add(at, number), b.i32(Segment::words));
        writeWords(PlanArray::Segments, word, SmallVector<Value>(fields.begin(), fields.end()));
      });
    Value isFront = both(exists, equal(number, zero));
    SmallVector<Value> chosen;
    for (auto [field, before] : llvm::zip(fields, known))
      chosen.push_back(b.select(isFront, field, before));
    front = ::attn::rt::recordOf<Segment>(chosen);
    number = b.add(number, count(exists));
  }
  return {number, front};
}

Task PlanKernel::taskOf(const PlanUnit &unit, const PlanPiece &piece, Value ordinal, Value segments,
                        Value segmentCount, Value partialRow) {
  Task task;
  task.packedBegin = unit.packedBegin;
  task.packedCount = unit.packedCount;
  task.ordinal = b.add(unit.head, ordinal);
  task.segmentBegin = segments;
  task.segmentEnd = b.add(segments, segmentCount);
  task.partial = partialRow;
  task.flags =
      b.i32((follows ? ::attn::rt::taskRowsFollow : 0) | (stores ? ::attn::rt::taskStoresScores : 0));
  if (piece.sink)
    task.flags = b.add(task.flags, zeroUnless(piece.sink, b.i32(::attn::rt::taskHasSink)));
  task.headClass = b.i32(0);
  return task;
}

PlanKernel::Dealt PlanKernel::dealtAt(Value turn) {
  Value word = get(order, b.div(turn, dealt));
  return {b.rem(word, 1 << 24), b.rem(turn, dealt)};
}

/// Where a block's tasks begin, in the order of blocks.
Value PlanKernel::startOf(Value blockNumber) {
  Value blocks = dim(PlanDim::Blocks), rounds = quotient(tasks, PlanDim::Blocks);
  Value rest = remainder(tasks, PlanDim::Blocks);
  Value there = b.min(blockNumber, rest);
  Value back = b.max(b.sub(blockNumber, b.sub(blocks, rest)), b.i32(0));
  return b.add(b.mul(blockNumber, rounds), b.select(equal(b.rem(rounds, 2), b.i32(0)), there, back));
}

void PlanKernel::writeParts() {
  spread(parts, [&](Value part) {
    Value number = get(unitOfPart, part);
    PlanUnit unit = unitOf(number);
    segmentsOf(unit, partOf(unit, b.sub(part, get(partStart, number))), b.mul(part, b.i32(mostSeen())));
  });
}

/// The task of a turn, its first segment, and where it stands.
void PlanKernel::writeTasks() {
  Value zero = b.i32(0), blocks = dim(PlanDim::Blocks);
  spread(tasks, [&](Value turn) {
    Dealt dealt = dealtAt(turn);
    Value number = get(unitOfPart, dealt.part), firstPart = get(partStart, number);
    Value ofUnit = b.sub(get(partStart, b.add(number, b.i32(1))), firstPart);
    Value nth = b.sub(dealt.part, firstPart);
    PlanUnit unit = unitOf(number);
    PlanPiece piece = partOf(unit, nth);
    auto [segments, front] = segmentsOf(unit, piece, Value());
    Value rows = get(partial, number);
    Value isCut = isAbove(get(partial, b.add(number, b.i32(1))), rows);
    Value partialRow = b.add(rows, b.mul(b.add(b.mul(dealt.ordinal, ofUnit), nth), unit.packedCount));
    Task task = taskOf(unit, piece, dealt.ordinal, b.mul(dealt.part, b.i32(mostSeen())), segments,
                       b.select(isCut, partialRow, b.i32(-1)));
    Value round = quotient(turn, PlanDim::Blocks), place = remainder(turn, PlanDim::Blocks);
    Value isThere = equal(b.rem(round, 2), zero);
    Value to = b.select(isThere, place, b.sub(b.sub(blocks, b.i32(1)), place));
    auto fields = ::attn::rt::fieldsOf(task), ofSegment = ::attn::rt::fieldsOf(front);
    SmallVector<Value> words(fields.begin(), fields.end());
    writeWords(PlanArray::Tasks, b.mul(b.add(startOf(to), round), b.i32(Task::words)), words);
    b.doIf(equal(round, zero), [&] {
      llvm::append_range(words, ofSegment);
      words.append({startOf(to), startOf(b.add(to, b.i32(1)))});
      writeWords(PlanArray::Starts, b.mul(to, b.i32(Start::words)), words);
    });
  });
}

/// Where blocks' tasks begin; blocks without any start with zeros. How many rows are merged.
void PlanKernel::writeStarts() {
  Value zero = b.i32(0), blocks = dim(PlanDim::Blocks);
  spread(b.add(blocks, b.i32(1)), [&](Value number) {
    b.doIf(equal(shares, zero), [&] { write(PlanArray::BlockTasks, number, startOf(number)); });
    Value isIdle = both(b.less(number, blocks), both(equal(shares, zero), atMost(tasks, number)));
    b.doIf(isIdle, [&] {
      writeWords(PlanArray::Starts, b.mul(number, b.i32(Start::words)),
                 SmallVector<Value>(Start::usedWords, zero));
    });
    b.doIf(both(equal(number, zero), equal(shares, zero)), [&] {
      write(PlanArray::MergeStart, zero, merges);
      write(PlanArray::MergeStart, b.add(merges, b.i32(1)), partials);
    });
  });
}

/// A list of the merge map: `partialRow` is its first part, and `stride` rows lie between that and the next.
void PlanKernel::writeMerge(Value list, Value firstEntry, Value ofUnit, Value partialRow, Value stride,
                            const PlanUnit &unit, Value ordinal, Value row) {
  Value packed = b.add(unit.packedBegin, row);
  Value output = b.add(b.mul(b.div(packed, group), b.i32(heads * group)),
                       b.add(b.mul(b.add(unit.head, ordinal), b.i32(group)), b.rem(packed, group)));
  write(PlanArray::MergeStart, b.add(list, b.i32(1)), firstEntry);
  write(PlanArray::MergeRows, list, output);
  auto loop = scf::ForOp::create(b, b.i32(0), ofUnit, b.i32(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value nth = loop.getInductionVar();
  write(PlanArray::MergePartials, b.add(firstEntry, nth), b.add(partialRow, b.mul(nth, stride)));
}

void PlanKernel::writeMerges() {
  Value one = b.i32(1);
  spread(zeroUnless(equal(shares, b.i32(0)), merges), [&](Value list) {
    Value number = search(mergeStart, units, list);
    PlanUnit unit = unitOf(number);
    Value inUnit = b.sub(list, get(mergeStart, number));
    Value ordinal = quotient(inUnit, unit.packedCount), row = remainder(inUnit, unit.packedCount);
    Value ofUnit = b.sub(get(partStart, b.add(number, one)), get(partStart, number));
    Value rows = get(partial, number), ofOrdinal = b.mul(b.mul(ordinal, ofUnit), unit.packedCount);
    writeMerge(list, b.add(rows, b.add(ofOrdinal, b.mul(row, ofUnit))), ofUnit,
               b.add(rows, b.add(ofOrdinal, row)), unit.packedCount, unit, ordinal, row);
  });
}
