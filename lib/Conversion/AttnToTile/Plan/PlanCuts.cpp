//===- PlanCuts.cpp - Equal shares of the list, on the device -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Work tiles laid end to end, each as often as there are ordinals, are a list
// of tasks. Share k ends where the cost of all work before its end is k + 1
// shares, at the nearest key tile:
//
//     task 0        task 1  task 2                    task 3
//     [# # # # # #] [# #]   [# # # # # # # # # # #]   [# # # #]
//     '--- block 0 ---'-- block 1 --'-- block 2 --'-- block 3 --'
//
// Tasks that are about as long are cut into as many pieces each, if nearly all
// blocks then have one: each block has one piece of one task.
//
// The position of every cut is found on its own. The number of cuts before it,
// and of rows of parts, comes from sums over all cuts. The index of a task
// without a cut is its number plus the number of cuts before it.
//
// If heads run in lockstep (headsInLockstep in plan/Balance.h), a work tile is in
// the list once, and as many neighbouring blocks as there are heads walk each
// share. Their tasks are those of the share, once for each block, and their
// partial rows those of the list.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static constexpr int64_t leastTiles = 2; ///< of a part: a cut nearer to the end of a task moves there

PlanKernel::Listed PlanKernel::listedAt(Number task, Number nth) {
  return {select(isLockstep, task, task / dealt), select(isLockstep, nth, task % dealt)};
}

PlanKernel::Run PlanKernel::runOf(Number shareNumber, Number nth) {
  Number next = nextCut(shareNumber);
  Number from = get(cutTask, shareNumber) + get(cutsUpTo, shareNumber);
  Number to = get(cutTask, next) + get(cutsUpTo, next);
  return {{from, to}, from * lockstep + nth * (to - from)};
}

PlanKernel::Place PlanKernel::placeOf(Number cut) {
  Number ordinals = select(isLockstep, 1, number(dealt));
  Number end = listed * ordinals, known = min(cut, shares), target = known * share;
  Number isEqual = piecesOfTask > 0, each = max(piecesOfTask, 1), taskOfCut = known / each;
  Number workTile = select(isEqual, min(taskOfCut / ordinals, max(listed - 1, 0)),
                           search(costs, listed, listedAt(target, number(0)).workTile));
  Number before = get(costs, workTile), size = max(get(costs, workTile + 1) - before, 1);
  Number inWorkTile = target - before * ordinals;
  Number task = select(isEqual, taskOfCut, workTile * ordinals + inWorkTile / size);
  Number overhead = dim(PlanDim::Fixed), tiles = tilesOfCost(size, overhead);
  // Round to the nearest tile.
  Number inTask = inWorkTile % size + tileCost / 2;
  Number tile = select(isEqual, (known - taskOfCut * each) * tiles / each,
                       tilesOfCost(max(inTask, overhead), overhead));
  Number isAtEnd = tiles - tile < leastTiles, isAtBegin = tile < leastTiles;
  task = select(isAtEnd && !isAtBegin, task + 1, task);
  tile = select(isAtEnd || isAtBegin, 0, tile);
  Number isPast = shares <= cut || end <= task;
  return {select(isPast, end, task), select(isPast, 0, tile)};
}

void PlanKernel::findCuts() {
  walk(ifCut(dim(PlanDim::Blocks) + 1), {}, [&](Number i, Number exists, ArrayRef<Number>) -> Numbers {
    b.doIf(exists, [&] {
      Place place = placeOf(i);
      put(cutTask, i, place.task);
      put(cutTile, i, place.tile);
    });
    return {};
  });
  sync();
}

/// A cut is the last of its task if the next cut is in another task, or at the beginning of one.
Number PlanKernel::isLastCut(Number cut, Number task) {
  Number next = nextCut(cut);
  return !equal(get(cutTask, next), task) || equal(next, cut);
}

void PlanKernel::countCuts() {
  Number isCut = shares > 0;
  Numbers found = walk(ifCut(dim(PlanDim::Blocks) + 1), Numbers(3, number(0)),
                       [&](Number i, Number exists, ArrayRef<Number> carried) -> Numbers {
                         Numbers values = ifThere(exists, 3, [&]() -> Numbers {
                           Number task = get(cutTask, i), cuts = get(cutTile, i) > 0;
                           Number isLast = cuts && isLastCut(i, task);
                           Number rows =
                               workTileOf(min(listedAt(task, number(0)).workTile, listed - 1)).packedCount;
                           Number ofLast = select(isLast, rows, 0);
                           return {count(cuts), select(cuts, rows, 0) + ofLast, ofLast};
                         });
                         Sums sums = scan(values);
                         Numbers before = sumsOf(carried, sums.before);
                         b.doIf(exists, [&] {
                           put(cutsUpTo, i, before[0] + values[0]);
                           put(cutPartial, i, before[1]);
                           put(cutMerge, i, before[2]);
                         });
                         return sumsOf(carried, sums.totals);
                       });
  listPartials = found[1], listMerges = found[2];
  partials = select(isCut, listPartials * lockstep, partials);
  merges = select(isCut, listMerges * lockstep, merges);
  sync();
}

/// Makes a piece that adds the sink if it begins its task.
PlanPiece PlanKernel::pieceOf(Number begin, Number end) {
  PlanPiece piece{begin, end, {}};
  if (sinks)
    piece.sink = equal(begin, 0);
  return piece;
}

void PlanKernel::writeWholeTasks() {
  Number blocks = dim(PlanDim::Blocks) + 1;
  spread(listed, [&](Number which) {
    PlanWorkTile workTile = workTileOf(which);
    segmentsOf(workTile, {number(0), workTile.tiles, {}}, which * mostSeen());
  });
  spread(listed * dealt, [&](Number which) {
    Number ofWorkTile = which / dealt, ordinal = which % dealt;
    Number task = select(isLockstep, ofWorkTile, which), nth = select(isLockstep, ordinal, 0);
    Number cut = search(cutTask, blocks, task);
    Number isCut = equal(get(cutTask, cut), task) && get(cutTile, cut) > 0;
    b.doIf(!isCut, [&] {
      PlanWorkTile workTile = workTileOf(ofWorkTile);
      Number index = runOf(cut, nth).placeOf(task + get(cutsUpTo, cut));
      writeCutPiece(workTile, ordinal, pieceOf(number(0), workTile.tiles), number(-1), index, ofWorkTile);
    });
  });
}

/// Writes the task of a piece; `segments` is the number of the piece among those that have memory for
/// segments.
void PlanKernel::writeCutPiece(const PlanWorkTile &workTile, Number ordinal, const PlanPiece &piece,
                               Number partialRow, Number index, Number segments) {
  Number ofPiece = segmentsOf(workTile, piece).first;
  writeRecord(PlanArray::Tasks, index * int64_t{Task::words},
              taskOf(workTile, piece, ordinal, segments * mostSeen(), ofPiece, partialRow));
}

/// Writes, for each cut, the piece that it ends and, for a task's last cut, also the piece after it. Blocks
/// in lockstep read the same segments, which the first of them writes.
void PlanKernel::writeCutTasks() {
  spread(ifCut(shares + 1) * lockstep, [&](Number which) {
    Number cut = which / by(PlanDim::Lockstep), nth = nthOf(which, cut);
    Number tile = get(cutTile, cut), task = get(cutTask, cut);
    b.doIf(tile > 0, [&] {
      Listed listedTask = listedAt(task, nth);
      PlanWorkTile workTile = workTileOf(listedTask.workTile);
      Number before = max(cut - 1, 0);
      Number begin = select(cut > 0 && equal(get(cutTask, before), task), get(cutTile, before), 0);
      Number behind = task + get(cutsUpTo, cut), rows = partialIn(nth, get(cutPartial, cut));
      auto writePiece = [&](const PlanPiece &piece, Number partialRow, Number ofShare, Number index,
                            Number segments) {
        b.doIf(equal(nth, 0), [&] { segmentsOf(workTile, piece, segments * mostSeen()); });
        writeCutPiece(workTile, listedTask.ordinal, piece, partialRow, runOf(ofShare, nth).placeOf(index),
                      segments);
      };
      Number segments = listed + cut * 2;
      writePiece(pieceOf(begin, tile), rows, before, behind - 1, segments);
      b.doIf(isLastCut(cut, task), [&] {
        writePiece(pieceOf(tile, workTile.tiles), rows + workTile.packedCount, cut, behind, segments + 1);
      });
    });
  });
}

/// A block begins after its share's first cut: with the rest of a task, or with a piece up to the next cut.
void PlanKernel::writeCutStarts() {
  Number blocks = dim(PlanDim::Blocks);
  spread(ifCut(blocks + 1), [&](Number which) {
    Number cut = which / by(PlanDim::Lockstep), nth = nthOf(which, cut);
    Number next = nextCut(cut), task = get(cutTask, cut), begin = get(cutTile, cut);
    Run run = runOf(cut, nth);
    write(PlanArray::BlockTasks, which, run.first);
    b.doIf(equal(which, 0), [&] { writeMergeCounts(); });
    b.doIf(which < blocks && equal(run.tasks.begin, run.tasks.end), [&] { writeNoStart(which); });
    b.doIf(which < blocks && run.tasks.begin < run.tasks.end, [&] {
      Listed listedTask = listedAt(task, nth);
      PlanWorkTile workTile = workTileOf(listedTask.workTile);
      Number isEnded = equal(get(cutTask, next), task) && get(cutTile, next) > 0;
      Number isRest = begin > 0;
      PlanPiece piece = pieceOf(begin, select(isEnded, get(cutTile, next), workTile.tiles));
      Number rest = get(cutPartial, cut) + workTile.packedCount;
      Number partialRow =
          select(isRest, partialIn(nth, rest), select(isEnded, partialIn(nth, get(cutPartial, next)), -1));
      Number last = listed + (cut * 2 + 1), ended = listed + next * 2;
      Number ofPiece = select(isEnded, ended, select(isRest, last, listedTask.workTile));
      auto [segments, front] = segmentsOf(workTile, piece);
      Task record = taskOf(workTile, piece, listedTask.ordinal, ofPiece * mostSeen(), segments, partialRow);
      writeStart(which, record, front, run.first, run.placeOf(run.tasks.end));
    });
  });
}

void PlanKernel::writeCutMerges() {
  Number blocks = dim(PlanDim::Blocks) + 1;
  spread(ifCut(merges), [&](Number list) {
    Number nth = list / max(listMerges, 1), inList = list - nth * listMerges;
    Number cut = search(cutMerge, blocks, inList), task = get(cutTask, cut);
    Number row = inList - get(cutMerge, cut);
    Listed listedTask = listedAt(task, nth);
    PlanWorkTile workTile = workTileOf(listedTask.workTile);
    Number before = get(cutsUpTo, search(cutTask, blocks, task - 1));
    Number pieces = get(cutsUpTo, cut) - before + 1;
    Number first = get(cutPartial, cut) - (pieces - 2) * workTile.packedCount;
    Number rows = partialIn(nth, first);
    writeMerge(list, rows + row * pieces, pieces, rows + row, workTile.packedCount, workTile,
               listedTask.ordinal, row);
  });
}
