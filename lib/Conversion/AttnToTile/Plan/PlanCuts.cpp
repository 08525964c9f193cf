//===- PlanCuts.cpp - Equal shares of the list, on the device -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Units laid end to end, each as often as there are ordinals, are a list of tasks. Share k
// ends where the cost of what is before it is k + 1 shares, at the nearest key tile:
//
//     task 0        task 1  task 2                    task 3
//     [# # # # # #] [# #]   [# # # # # # # # # # #]   [# # # #]
//     '--- block 0 ---'-- block 1 --'-- block 2 --'-- block 3 --'
//
// The place of every cut is found by itself; how many cuts are before it, and rows of
// parts, by sums over all of them. A task that no cut is in stands as many places behind
// its number as there are cuts before.
//
// Where heads go abreast (headsAbreast in plan/Balance.h), a unit is in the list once, and
// each share is walked by as many neighbouring blocks as there are heads. Their tasks are
// those of the share once for each of them, their partial rows those of the list.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static constexpr int64_t tileCost = 16;  ///< of a key tile, as in the planner's CostModel
static constexpr int64_t leastTiles = 2; ///< of a part: a cut nearer to the end of a task moves there

PlanKernel::Listed PlanKernel::listedAt(Value task, Value nth) {
  return {b.select(isAbreast, task, b.div(task, dealt)), b.select(isAbreast, nth, b.rem(task, dealt))};
}

PlanKernel::Run PlanKernel::runOf(Value shareNumber, Value nth) {
  Value next = b.min(b.add(shareNumber, b.i32(1)), dim(PlanDim::Blocks));
  Value from = b.add(get(cutTask, shareNumber), get(cutsUpTo, shareNumber));
  Value to = b.add(get(cutTask, next), get(cutsUpTo, next));
  Value first = b.add(b.mul(from, abreast), b.mul(nth, b.sub(to, from)));
  return {from, to, first};
}

PlanKernel::Place PlanKernel::placeOf(Value cut) {
  Value zero = b.i32(0), one = b.i32(1), ordinals = b.select(isAbreast, one, b.i32(dealt));
  Value end = b.mul(listed, ordinals), target = b.mul(b.min(cut, shares), share);
  Value unit = search(costs, listed, listedAt(target, zero).unit);
  Value before = get(costs, unit), size = b.sub(get(costs, b.add(unit, one)), before);
  Value inUnit = b.sub(target, b.mul(before, ordinals));
  Value task = b.add(b.mul(unit, ordinals), quotient(inUnit, size));
  Value tiles = b.div(b.sub(size, dim(PlanDim::Fixed)), tileCost);
  Value inTask = b.add(b.sub(remainder(inUnit, size), dim(PlanDim::Fixed)), b.i32(tileCost / 2));
  Value tile = b.div(b.max(inTask, zero), tileCost);
  Value isAtEnd = b.less(b.sub(tiles, tile), b.i32(leastTiles));
  Value isAtBegin = b.less(tile, b.i32(leastTiles));
  task = b.select(both(isAtEnd, negate(isAtBegin)), b.add(task, one), task);
  tile = zeroUnless(negate(either(isAtEnd, isAtBegin)), tile);
  Value isPast = either(atMost(shares, cut), atMost(end, task));
  return {b.select(isPast, end, task), zeroUnless(negate(isPast), tile)};
}

void PlanKernel::findCuts() {
  Value all = zeroUnless(isAbove(shares, b.i32(0)), b.add(dim(PlanDim::Blocks), b.i32(1)));
  walk(all, {}, [&](Value i, Value exists, ValueRange) -> SmallVector<Value> {
    b.doIf(exists, [&] {
      Place place = placeOf(i);
      put(cutTask, i, place.task);
      put(cutTile, i, place.tile);
    });
    return {};
  });
  sync();
}

/// A cut is the last of its task where the next one is in another, or at one's begin.
Value PlanKernel::isLastCut(Value cut, Value task) {
  Value next = b.min(b.add(cut, b.i32(1)), dim(PlanDim::Blocks));
  return either(negate(equal(get(cutTask, next), task)), equal(next, cut));
}

void PlanKernel::countCuts() {
  Value zero = b.i32(0), one = b.i32(1), isCut = isAbove(shares, zero);
  Value all = zeroUnless(isCut, b.add(dim(PlanDim::Blocks), one));
  SmallVector<Value> found = walk(
      all, SmallVector<Value>(3, zero), [&](Value i, Value exists, ValueRange carried) -> SmallVector<Value> {
        SmallVector<Value> next,
            values = ifThere(exists, 3, [&]() -> SmallVector<Value> {
              Value task = get(cutTask, i), cuts = isAbove(get(cutTile, i), zero);
              Value isLast = both(cuts, isLastCut(i, task));
              Value rows = unitOf(b.min(listedAt(task, zero).unit, b.sub(listed, one))).packedCount;
              return {count(cuts), b.add(zeroUnless(cuts, rows), zeroUnless(isLast, rows)),
                      zeroUnless(isLast, rows)};
            });
        ScanOp sums = scan(values);
        for (auto [which, value] : llvm::enumerate(values)) {
          Value before = b.add(carried[which], sums.getBefore()[which]);
          b.doIf(exists, [&] {
            put(which == 0   ? cutsUpTo
                : which == 1 ? cutPartial
                             : cutMerge,
                i, which == 0 ? b.add(before, value) : before);
          });
          next.push_back(b.add(carried[which], sums.getTotals()[which]));
        }
        return next;
      });
  listPartials = found[1], listMerges = found[2];
  partials = b.select(isCut, b.mul(listPartials, abreast), partials);
  merges = b.select(isCut, b.mul(listMerges, abreast), merges);
  sync();
}

void PlanKernel::writeWholeTasks() {
  Value zero = b.i32(0), blocks = b.add(dim(PlanDim::Blocks), b.i32(1));
  spread(listed, [&](Value number) {
    PlanUnit unit = unitOf(number);
    segmentsOf(unit, {zero, unit.tiles, {}}, b.mul(number, b.i32(mostSeen())));
  });
  spread(b.mul(listed, b.i32(dealt)), [&](Value number) {
    Value ofUnit = b.div(number, dealt), ordinal = b.rem(number, dealt);
    Value task = b.select(isAbreast, ofUnit, number), nth = zeroUnless(isAbreast, ordinal);
    Value cut = search(cutTask, blocks, task);
    Value isCut = both(equal(get(cutTask, cut), task), isAbove(get(cutTile, cut), zero));
    b.doIf(negate(isCut), [&] {
      PlanUnit unit = unitOf(ofUnit);
      Value index = placeIn(runOf(cut, nth), b.add(task, get(cutsUpTo, cut)));
      writeCutPiece(unit, ordinal, zero, unit.tiles, b.i32(-1), index, ofUnit);
    });
  });
}

/// The task of a piece; `segments`: the number of the piece among those that have room for segments.
void PlanKernel::writeCutPiece(const PlanUnit &unit, Value ordinal, Value begin, Value end, Value partialRow,
                               Value index, Value segments) {
  PlanPiece piece{begin, end, sinks ? equal(begin, b.i32(0)) : Value()};
  Value number = segmentsOf(unit, piece, Value()).first;
  Task record = taskOf(unit, piece, ordinal, b.mul(segments, b.i32(mostSeen())), number, partialRow);
  auto fields = ::attn::rt::fieldsOf(record);
  writeWords(PlanArray::Tasks, b.mul(index, b.i32(Task::words)),
             SmallVector<Value>(fields.begin(), fields.end()));
}

/// Of each cut the piece that it ends, and of a task's last the piece behind it. Blocks abreast read the same
/// segments, which the first of them writes.
void PlanKernel::writeCutTasks() {
  Value zero = b.i32(0), one = b.i32(1);
  Value cuts = zeroUnless(isAbove(shares, zero), b.add(shares, one));
  spread(b.mul(cuts, abreast), [&](Value number) {
    Value cut = quotient(number, PlanDim::Abreast), nth = nthOf(number, cut);
    Value tile = get(cutTile, cut), task = get(cutTask, cut);
    b.doIf(isAbove(tile, zero), [&] {
      Listed listedTask = listedAt(task, nth);
      PlanUnit unit = unitOf(listedTask.unit);
      Value before = b.max(b.sub(cut, one), zero);
      Value begin =
          zeroUnless(both(isAbove(cut, zero), equal(get(cutTask, before), task)), get(cutTile, before));
      Value behind = b.add(task, get(cutsUpTo, cut)), rows = partialIn(nth, get(cutPartial, cut));
      auto writePiece = [&](Value from, Value to, Value partialRow, Value ofShare, Value index, Value which) {
        b.doIf(equal(nth, zero), [&] { segmentsOf(unit, {from, to, {}}, b.mul(which, b.i32(mostSeen()))); });
        writeCutPiece(unit, listedTask.ordinal, from, to, partialRow, placeIn(runOf(ofShare, nth), index),
                      which);
      };
      Value which = b.add(listed, b.mul(cut, b.i32(2)));
      writePiece(begin, tile, rows, before, b.sub(behind, one), which);
      b.doIf(isLastCut(cut, task), [&] {
        writePiece(tile, unit.tiles, b.add(rows, unit.packedCount), cut, behind, b.add(which, one));
      });
    });
  });
}

/// A block begins with what is behind its share's first cut: the rest of a task, or a piece up to the next.
void PlanKernel::writeCutStarts() {
  Value zero = b.i32(0), one = b.i32(1), two = b.i32(2), blocks = dim(PlanDim::Blocks);
  spread(zeroUnless(isAbove(shares, zero), b.add(blocks, one)), [&](Value number) {
    Value cut = quotient(number, PlanDim::Abreast), nth = nthOf(number, cut);
    Value next = b.min(b.add(cut, one), blocks), task = get(cutTask, cut), begin = get(cutTile, cut);
    Run run = runOf(cut, nth);
    write(PlanArray::BlockTasks, number, run.first);
    b.doIf(equal(number, zero), [&] {
      write(PlanArray::MergeStart, zero, merges);
      write(PlanArray::MergeStart, b.add(merges, one), partials);
    });
    Value word = b.mul(number, b.i32(Start::words));
    b.doIf(both(b.less(number, blocks), equal(run.from, run.to)),
           [&] { writeWords(PlanArray::Starts, word, SmallVector<Value>(Start::usedWords, zero)); });
    b.doIf(both(b.less(number, blocks), b.less(run.from, run.to)), [&] {
      Listed listedTask = listedAt(task, nth);
      PlanUnit unit = unitOf(listedTask.unit);
      Value isEnded = both(equal(get(cutTask, next), task), isAbove(get(cutTile, next), zero));
      Value isRest = isAbove(begin, zero);
      PlanPiece piece{begin, b.select(isEnded, get(cutTile, next), unit.tiles),
                      sinks ? equal(begin, zero) : Value()};
      Value rest = b.add(get(cutPartial, cut), unit.packedCount);
      Value partialRow = b.select(isRest, partialIn(nth, rest),
                                  b.select(isEnded, partialIn(nth, get(cutPartial, next)), b.i32(-1)));
      Value last = b.add(listed, b.add(b.mul(cut, two), one)), ended = b.add(listed, b.mul(next, two));
      Value which = b.select(isEnded, ended, b.select(isRest, last, listedTask.unit));
      auto [segments, front] = segmentsOf(unit, piece, Value());
      Task record =
          taskOf(unit, piece, listedTask.ordinal, b.mul(which, b.i32(mostSeen())), segments, partialRow);
      auto fields = ::attn::rt::fieldsOf(record), ofSegment = ::attn::rt::fieldsOf(front);
      SmallVector<Value> words(fields.begin(), fields.end());
      llvm::append_range(words, ofSegment);
      words.append({run.first, placeIn(run, run.to)});
      writeWords(PlanArray::Starts, word, words);
    });
  });
}

void PlanKernel::writeCutMerges() {
  Value zero = b.i32(0), one = b.i32(1), blocks = b.add(dim(PlanDim::Blocks), one);
  spread(zeroUnless(isAbove(shares, zero), merges), [&](Value list) {
    Value nth = quotient(list, b.max(listMerges, one)), inList = b.sub(list, b.mul(nth, listMerges));
    Value cut = search(cutMerge, blocks, inList), task = get(cutTask, cut),
          row = b.sub(inList, get(cutMerge, cut));
    Listed listedTask = listedAt(task, nth);
    PlanUnit unit = unitOf(listedTask.unit);
    Value before = get(cutsUpTo, search(cutTask, blocks, b.sub(task, one)));
    Value pieces = b.add(b.sub(get(cutsUpTo, cut), before), one);
    Value first = b.sub(get(cutPartial, cut), b.mul(b.sub(pieces, b.i32(2)), unit.packedCount));
    Value rows = partialIn(nth, first);
    writeMerge(list, b.add(rows, b.mul(row, pieces)), pieces, b.add(rows, row), unit.packedCount, unit,
               listedTask.ordinal, row);
  });
}
