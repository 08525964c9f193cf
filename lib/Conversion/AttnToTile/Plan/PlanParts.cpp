//===- PlanParts.cpp - Sorted parts of work tiles, on the device ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With cuts at multiples of a fixed size, a work tile has parts of one segment
// each, as the planner's Balancer::listChunks makes them: so results have the
// same bits. Otherwise a work tile is one part, or, if blocks would get too
// unequal shares, PlanCuts.cpp cuts it.
//
// Parts are sorted by their cost, in 64 steps; the order of equal parts is
// kept.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static constexpr int64_t costBits = 6, partBits = 24; ///< of a word that is sorted
static constexpr int64_t digitBits = 3, digits = 1 << digitBits;
static constexpr int64_t mostSums = 4; ///< side by side
/// The cost of the mean part, in steps: all parts of more than two and a half times that are alike.
static constexpr int64_t meanSteps = 24;

void PlanKernel::declareParameters() {
  Type i32 = b.getI32Type();
  Number warp = number(WarpIdOp::create(b, i32)), lane = number(LaneIdOp::create(b, i32));
  thread = warp * 32 + lane;
  block = number(BlockIdOp::create(b, i32));
  Number blocks = number(BlockCountOp::create(b, i32));
  first = (warp * blocks + block) * 32 + lane;
  step = blocks * threads;
  sequences = number(b.dimension("sequences"));
  fixed = dim(PlanDim::IsFixed) > 0;
  scratchMemory = planArray(b, PlanArray::Scratch);
  exchange = AllocOp::create(b, ScratchType::get(b.getContext(), 4 * warps * mostSums), Value(), UnitAttr(),
                             IntegerAttr());
}

void PlanKernel::layOutScratch() {
  ::attn::rt::PlanScratchSizes<Number> sizes{sequences, number(lists), dim(PlanDim::WorkTiles),
                                             dim(PlanDim::Parts), dim(PlanDim::Blocks)};
  SmallVector<ScratchArray *> arrays;
  Number words = number(0);
  sizes.forEach(*this, [&](ScratchArray &array, Number size) {
    array.first = words;
    words = words + size;
    arrays.push_back(&array);
  });
  Number begin = block * words;
  for (ScratchArray *array : arrays)
    array->first = array->first + begin;
}

PlanKernel::Chunks PlanKernel::chunksOf(const SeenTokens &seen) {
  Number isSome = seen.tokens.begin < seen.tokens.end;
  Number inside = cutsInside(seen.tokens, chunkOrigin(seen.pos0), by(PlanDim::Chunk));
  Number rest = equal(inside, 0) || endOfChunk(seen, inside) < seen.tiles;
  return {inside, select(isSome, inside + count(rest), 0)};
}

/// The key tile, counted from the segment's first, at which a chunk of the segment ends; chunks are numbered
/// from 1.
Number PlanKernel::endOfChunk(const SeenTokens &seen, Number chunk) {
  Number origin = chunkOrigin(seen.pos0);
  Number tile = tileOfCut(seen.tokens, origin, chunk, by(PlanDim::Chunk), by(PlanDim::Keys));
  return select(chunk > 0, tile, 0);
}

/// With fixed cuts the sink is a part of its own, the last one.
Number PlanKernel::partsOf(const PlanWorkTile &workTile) {
  Number chunks = number(0);
  for (const SeenTokens &seen : workTile.seen)
    chunks = chunks + chunksOf(seen).parts;
  return select(fixed, sinks ? chunks + 1 : max(chunks, 1), 1);
}

PlanPiece PlanKernel::partOf(const PlanWorkTile &workTile, Number part) {
  Number firstTile = number(0), firstPart = number(0);
  PlanPiece piece{workTile.tiles, workTile.tiles, {}};
  for (const SeenTokens &seen : workTile.seen) {
    Chunks chunks = chunksOf(seen);
    Number nth = part - firstPart, next = nth + 1;
    Number isHere = 0 <= nth && nth < chunks.parts;
    Number end = select(next <= chunks.inside, endOfChunk(seen, next), seen.tiles);
    piece.begin = select(isHere, firstTile + endOfChunk(seen, nth), piece.begin);
    piece.end = select(isHere, firstTile + end, piece.end);
    firstTile = firstTile + seen.tiles;
    firstPart = firstPart + chunks.parts;
  }
  piece.begin = select(fixed, piece.begin, 0);
  piece.end = select(fixed, piece.end, workTile.tiles);
  if (sinks)
    piece.sink = !fixed || equal(part, firstPart);
  return piece;
}

/// Sums parts, rows of parts, rows to merge and cost over the work tiles, and checks that they fit.
void PlanKernel::findParts() {
  Number isFirst = equal(thread, 0);
  const ScratchArray arrays[] = {partStart, partial, mergeStart, costs};
  Numbers found =
      walk(workTiles, Numbers(4, number(0)), [&](Number i, Number exists, ArrayRef<Number> carried) {
        Numbers values = ifThere(exists, 4, [&]() -> Numbers {
          Number sequence = search(workTileStart, sequences, i);
          put(sequenceOf, i, sequence);
          PlanWorkTile workTile = workTileOf(i, sequence);
          Number parts = partsOf(workTile), rows = workTile.packedCount * dealt;
          Number isCut = sinks ? fixed || parts > 1 : parts > 1;
          return {parts, select(isCut, rows * parts, 0), select(isCut, rows, 0),
                  costOfTask(dim(PlanDim::Fixed), workTile.tiles)};
        });
        Sums sums = scan(values);
        for (auto [array, before, here] : llvm::zip_equal(arrays, carried, sums.before))
          b.doIf(exists, [&] { put(array, i, before + here); });
        return sumsOf(carried, sums.totals);
      });
  b.doIf(isFirst, [&] {
    for (auto [array, total] : llvm::zip_equal(arrays, found))
      put(array, workTiles, total);
  });
  parts = found[0], partials = found[1], merges = found[2], cost = found[3];
  for (auto [which, needed] : {std::pair(PlanDim::Parts, parts), std::pair(PlanDim::Partials, partials),
                               std::pair(PlanDim::MergeRows, merges)})
    isHeld = isHeld && needed <= dim(which);
  for (Number *total : {&workTiles, &parts, &partials, &merges, &cost})
    *total = select(isHeld, *total, 0);
  b.doIf(equal(block, 0) && isFirst && isRight, [&] {
    writeFinding({.fault = select(isHeld, 0, static_cast<int64_t>(PlanFault::CapacityExceeded))});
  });
  sync();
}

/// Assigns whole work tiles if every round over the blocks would give no block more than 3 % above its equal
/// share: so the least is merged. Otherwise work tiles are cut into as many shares as are long enough. If
/// these are fewer than blocks, work tiles may be as quick whole: the tasks of a block cost at most the mean
/// of all blocks and the longest task. Then they are not cut either.
///
/// If all tasks are about as long, they are cut into as many pieces each, where nearly all blocks have one:
/// no block then begins twice, and tasks that read the same tokens, such as the two of 128 heads over
/// latents, do so at the same time, from the L2 cache. In shares that begin anywhere, 16 sequences of 16,384
/// latents took 1.4 times as long (H200, 2026-12-02).
void PlanKernel::decide() {
  Number blocks = dim(PlanDim::Blocks), overhead = dim(PlanDim::Fixed), shareTiles = dim(PlanDim::ShareTiles);
  Number all = workTiles * dealt, total = cost * dealt;
  Number tiles = tilesOfCost(total, all * overhead);
  Number most = max(mostShares(blocks, tiles, shareTiles), 1);
  Number even = equalShare(total, most) + costOfTask(overhead, 1);
  // In lockstep every work tile is listed once, for all of its heads.
  lockstep = dim(PlanDim::Lockstep), isLockstep = lockstep > 1;
  Number listTotal = select(isLockstep, cost, total);
  Number together = mostShares(blocks / by(PlanDim::Lockstep), tiles, shareTiles * lockstep);
  most = select(isLockstep, max(together, 1), most);
  share = max(equalShare(listTotal, most), 1);
  Number rounds = max(ceilDiv(all, by(PlanDim::Blocks)), 1);
  Number longest = even + even / 32; // of the tasks of all rounds
  Number longestBesideMean = max(share - equalShare(total, blocks), 0);
  Number listedTasks = max(select(isLockstep, workTiles, all), 1), mean = listTotal / listedTasks;
  Numbers longer = walk(workTiles, Numbers(3, number(0)),
                        [&](Number i, Number exists, ArrayRef<Number> carried) -> Numbers {
                          Numbers isLonger = ifThere(exists, 3, [&]() -> Numbers {
                            Number cost = get(costs, i + 1) - get(costs, i);
                            return {count(longest < cost * rounds), count(longestBesideMean < cost),
                                    count(mean + mean / 32 < cost || cost < mean - mean / 32)};
                          });
                          Sums sums = scan(isLonger);
                          return sumsOf(carried, sums.totals);
                        });
  Number isCut = !fixed && longer[0] > 0 && longer[1] > 0;
  piecesOfTask = most / listedTasks;
  Number isEven = equal(longer[2], 0) && most - most / 32 <= piecesOfTask * listedTasks;
  piecesOfTask = select(isEven, piecesOfTask, 0);
  shares = select(isCut, select(isEven, piecesOfTask * listedTasks, most), 0);
  listed = select(isCut, workTiles, 0);
  parts = select(isCut, 0, parts);
  tasks = parts * dealt;
}

/// Sorts by one digit after the other, the lowest first; each pass keeps the order of equal digits.
void PlanKernel::sortParts() {
  Number steps = number((1 << costBits) - 1);
  Number tiles = tilesOfCost(cost, workTiles * dim(PlanDim::Fixed));
  Number mean = max(tiles / max(parts, 1), 1);
  walk(parts, {}, [&](Number i, Number exists, ArrayRef<Number>) -> Numbers {
    b.doIf(exists, [&] { // without cuts a part is a work tile
      Number workTile = search(partStart, select(fixed, workTiles, 0), i) + select(fixed, 0, i);
      PlanPiece piece = partOf(workTileOf(workTile), i - get(partStart, workTile));
      Number size = min(piece.end - piece.begin, 1 << 20);
      Number rank = steps - min(size * meanSteps / mean, steps);
      put(workTileOfPart, i, workTile);
      put(order, i, rank * (1 << partBits) + i);
    });
    return {};
  });
  sync();
  Number rounds = select(parts > 0, costBits / digitBits, 0);
  forEach(number(0), rounds, [&](Number round) {
    Number odd = equal(round % 2, 1);
    ScratchArray from{select(odd, sorted.first, order.first)}, to{select(odd, order.first, sorted.first)};
    sortByDigit(from, to, round * digitBits + partBits);
  });
}

/// Counts the words with each digit for this thread, two counts to a sum, as no block has 2^16 threads.
PlanKernel::Numbers PlanKernel::countDigit(Number digit) {
  Numbers counts;
  for (int64_t d = 0; d < digits; d += 2)
    counts.push_back(count(equal(digit, d)) + count(equal(digit, d + 1)) * (1 << 16));
  return counts;
}

PlanKernel::Numbers PlanKernel::unpackDigits(ArrayRef<Number> counts) {
  Numbers each;
  for (Number pair : counts)
    each.append({pair % (1 << 16), pair / (1 << 16)});
  return each;
}

/// If there are more words than threads, all are counted first; otherwise one sum is enough.
void PlanKernel::sortByDigit(ScratchArray from, ScratchArray to, Number shift) {
  Numbers none(digits, number(0));
  auto digitOf = [&](Number word) { return shiftedRight(word, shift) % digits; };
  auto countAt = [&](Number i, Number exists) { // the word, and the counts of its digit
    return ifThere(exists, 1 + digits / 2, [&] {
      Numbers found = {get(from, i)};
      llvm::append_range(found, countDigit(digitOf(found.front())));
      return found;
    });
  };
  Number isLong = parts > threads;
  Numbers counted =
      walk(select(isLong, parts, 0), none, [&](Number i, Number exists, ArrayRef<Number> carried) {
        Sums sums = scan(ArrayRef(countAt(i, exists)).drop_front());
        return sumsOf(carried, unpackDigits(sums.totals));
      });
  walk(parts, none, [&](Number i, Number exists, ArrayRef<Number> carried) {
    Numbers values = countAt(i, exists);
    Sums sums = scan(ArrayRef(values).drop_front());
    Numbers here = unpackDigits(sums.totals);
    b.doIf(exists, [&] {
      Numbers before = sumsOf(carried, unpackDigits(sums.before));
      Number digit = digitOf(values.front()), place = number(0);
      for (int64_t d = 0; d < digits; ++d) {
        Number all = select(isLong, counted[d], here[d]);
        place = place + select(d < digit, all, 0);
        place = place + select(equal(digit, d), before[d], 0);
      }
      put(to, place, values.front());
    });
    return sumsOf(carried, here);
  });
  sync();
}
