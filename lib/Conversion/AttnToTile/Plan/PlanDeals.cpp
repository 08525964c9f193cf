//===- PlanDeals.cpp - Parts are assigned to blocks, on the device --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// All ordinals of the longest part, then those of the next, go to the blocks
// one after the other, and the next round goes back: a block that gets an
// early, long part gets a late, short one.
//
//   number 0 1 2 3 | 4 5 6 7 | 8 9
//   block  0 1 2 3 | 3 2 1 0 | 0 1
//
// So the index of a block's first task is known without asking any other block.
//
// The partials of a work tile that is cut lie by ordinal and then by part: part
// k of ordinal s has its rows' partials after those of part k - 1. The lists of
// the merge map follow from that.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The segment over some of the tokens that a work tile sees.
Segment PlanKernel::segmentOf(const PlanWorkTile &workTile, const SeenTokens &seen,
                              const NumberRange &ofTiles) {
  NumberRange tokens = ofTiles;
  if (numericsAttr.isOn(chain.function)) // tiles may begin before the tokens
    tokens.begin = max(tokens.begin, seen.first);
  NumberRange full = fullWithin(tokens, seen.full);
  Segment segment;
  segment.operand = number(seen.operand);
  segment.instance = workTile.sequence;
  segment.kvBegin = tokens.begin;
  segment.kvEnd = tokens.end;
  segment.fullBegin = full.begin;
  segment.fullEnd = full.end;
  segment.pos0 = seen.pos0;
  segment.firstOrdinal = number(0);
  return segment;
}

std::pair<Number, Segment> PlanKernel::segmentsOf(const PlanWorkTile &workTile, const PlanPiece &piece,
                                                  std::optional<Number> at) {
  Number segments = number(0), firstTile = number(0);
  Segment front = ::attn::rt::recordOf<Segment>(SmallVector<Value>(Segment::usedWords, b.i32(0)));
  for (const SeenTokens &seen : workTile.seen) {
    NumberRange tokens = tokensOfTiles(seen.tokens, firstTile, piece.begin, piece.end, dim(PlanDim::Keys));
    Segment segment = segmentOf(workTile, seen, tokens);
    Number exists = tokens.begin < tokens.end;
    firstTile = firstTile + seen.tiles;
    if (at)
      b.doIf(exists,
             [&] { writeRecord(PlanArray::Segments, (*at + segments) * int64_t{Segment::words}, segment); });
    Number isFront = exists && equal(segments, 0);
    auto fields = ::attn::rt::fieldsOf(segment), known = ::attn::rt::fieldsOf(front);
    SmallVector<Value> chosen;
    for (auto [field, before] : llvm::zip(fields, known))
      chosen.push_back(b.select(isFront, field, before));
    front = ::attn::rt::recordOf<Segment>(chosen);
    segments = segments + count(exists);
  }
  return {segments, front};
}

Task PlanKernel::taskOf(const PlanWorkTile &workTile, const PlanPiece &piece, Number ordinal, Number segments,
                        Number segmentCount, Number partialRow) {
  Task task;
  task.packedBegin = workTile.packedBegin;
  task.packedCount = workTile.packedCount;
  task.ordinal = workTile.head + ordinal;
  task.segmentBegin = segments;
  task.segmentEnd = segments + segmentCount;
  task.partial = partialRow;
  Number flags =
      number((follows ? ::attn::rt::taskRowsFollow : 0) | (stores ? ::attn::rt::taskStoresScores : 0));
  task.flags = piece.sink ? flags + select(*piece.sink, ::attn::rt::taskHasSink, 0) : flags;
  task.headClass = number(0);
  return task;
}

/// Writes a block's start: its first task, that task's first segment, and the range of its tasks.
void PlanKernel::writeStart(Number start, const Task &task, const Segment &front, Number tasksBegin,
                            Number tasksEnd) {
  auto fields = ::attn::rt::fieldsOf(task), ofSegment = ::attn::rt::fieldsOf(front);
  SmallVector<Value> words(fields.begin(), fields.end());
  llvm::append_range(words, ofSegment);
  words.append({tasksBegin, tasksEnd});
  writeWords(PlanArray::Starts, start * int64_t{Start::words}, words);
}

void PlanKernel::writeNoStart(Number start) {
  writeWords(PlanArray::Starts, start * int64_t{Start::words},
             SmallVector<Value>(Start::usedWords, b.i32(0)));
}

/// Writes the number of rows that are merged, and the end of the last list.
void PlanKernel::writeMergeCounts() {
  write(PlanArray::MergeStart, number(0), merges);
  write(PlanArray::MergeStart, merges + 1, partials);
}

PlanKernel::Dealt PlanKernel::dealtAt(Number turn) {
  return {get(order, turn / dealt) % (1 << 24), turn % dealt};
}

/// The index of a block's first task, in the order of blocks.
Number PlanKernel::startOf(Number which) {
  Number blocks = dim(PlanDim::Blocks);
  Number rounds = tasks / by(PlanDim::Blocks), rest = tasks % by(PlanDim::Blocks);
  Number there = min(which, rest), back = max(which - (blocks - rest), 0);
  return which * rounds + select(equal(rounds % 2, 0), there, back);
}

void PlanKernel::writeParts() {
  spread(parts, [&](Number part) {
    Number which = get(workTileOfPart, part);
    PlanWorkTile workTile = workTileOf(which);
    segmentsOf(workTile, partOf(workTile, part - get(partStart, which)), part * mostSeen());
  });
}

/// Writes the task of each number, at its index; a block's first task also goes to the block's start.
void PlanKernel::writeTasks() {
  Number blocks = dim(PlanDim::Blocks);
  spread(tasks, [&](Number turn) {
    Dealt dealt = dealtAt(turn);
    Number which = get(workTileOfPart, dealt.part), firstPart = get(partStart, which);
    Number ofWorkTile = get(partStart, which + 1) - firstPart, nth = dealt.part - firstPart;
    PlanWorkTile workTile = workTileOf(which);
    PlanPiece piece = partOf(workTile, nth);
    auto [segments, front] = segmentsOf(workTile, piece);
    Number rows = get(partial, which), isCut = get(partial, which + 1) > rows;
    Number partialRow = rows + (dealt.ordinal * ofWorkTile + nth) * workTile.packedCount;
    Task task = taskOf(workTile, piece, dealt.ordinal, dealt.part * mostSeen(), segments,
                       select(isCut, partialRow, -1));
    Number round = turn / by(PlanDim::Blocks), place = turn % by(PlanDim::Blocks);
    Number to = select(equal(round % 2, 0), place, blocks - 1 - place);
    writeRecord(PlanArray::Tasks, (startOf(to) + round) * int64_t{Task::words}, task);
    b.doIf(equal(round, 0), [&] { writeStart(to, task, front, startOf(to), startOf(to + 1)); });
  });
}

/// Writes the range of each block's tasks, zeros as the start of blocks without any, and the number of rows
/// that are merged.
void PlanKernel::writeStarts() {
  Number blocks = dim(PlanDim::Blocks), isDealt = equal(shares, 0);
  spread(blocks + 1, [&](Number which) {
    b.doIf(isDealt, [&] { write(PlanArray::BlockTasks, which, startOf(which)); });
    b.doIf(which < blocks && (isDealt && tasks <= which), [&] { writeNoStart(which); });
    b.doIf(equal(which, 0) && isDealt, [&] { writeMergeCounts(); });
  });
}

/// Writes a list of the merge map. `partialRow` is its first part; the next part is `stride` rows further.
void PlanKernel::writeMerge(Number list, Number firstEntry, Number ofWorkTile, Number partialRow,
                            Number stride, const PlanWorkTile &workTile, Number ordinal, Number row) {
  Number packed = workTile.packedBegin + row;
  Number output =
      outputOf(rowOf(packed, group), workTile.head + ordinal, packed % group, heads * group, group);
  write(PlanArray::MergeStart, list + 1, firstEntry);
  write(PlanArray::MergeRows, list, output);
  forEach(number(0), ofWorkTile,
          [&](Number nth) { write(PlanArray::MergePartials, firstEntry + nth, partialRow + nth * stride); });
}

void PlanKernel::writeMerges() {
  spread(select(equal(shares, 0), merges, 0), [&](Number list) {
    Number which = search(mergeStart, workTiles, list);
    PlanWorkTile workTile = workTileOf(which);
    Number inWorkTile = list - get(mergeStart, which);
    Number ordinal = inWorkTile / workTile.packedCount, row = inWorkTile % workTile.packedCount;
    Number ofWorkTile = get(partStart, which + 1) - get(partStart, which);
    Number rows = get(partial, which), ofOrdinal = ordinal * ofWorkTile * workTile.packedCount;
    writeMerge(list, rows + (ofOrdinal + row * ofWorkTile), ofWorkTile, rows + (ofOrdinal + row),
               workTile.packedCount, workTile, ordinal, row);
  });
}
