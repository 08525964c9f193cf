//===- PlanParts.cpp - Units become parts in an order, on the device ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where cuts are at multiples of a fixed size, a unit has parts of one segment each, as
// the planner's Balancer::listChunks makes them: so results have the same bits. Else a
// unit is one part, or, where blocks would get too unequal shares, what PlanCuts.cpp cuts.
//
// Parts are sorted by what they cost, in 64 steps, of equals the first first.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static constexpr int64_t tileCost = 16;               ///< of a key tile, as in the planner's CostModel
static constexpr int64_t costBits = 6, partBits = 24; ///< of a word that is sorted
static constexpr int64_t digitBits = 3, digits = 1 << digitBits;
static constexpr int64_t mostSums = 4; ///< side by side
/// Cost of the mean part, in steps: parts of more than two and a half times that are alike.
static constexpr int64_t meanSteps = 24;

void PlanKernel::declareParameters() {
  Type i32 = b.getI32Type();
  Value thirtyTwo = b.i32(32);
  Value warp = WarpIdOp::create(b, i32), lane = LaneIdOp::create(b, i32);
  thread = b.add(b.mul(warp, thirtyTwo), lane);
  block = BlockIdOp::create(b, i32);
  Value blocks = BlockCountOp::create(b, i32);
  first = b.add(b.mul(b.add(b.mul(warp, blocks), block), thirtyTwo), lane);
  step = b.mul(blocks, b.i32(threads));
  sequences = b.dimension("sequences");
  fixed = isAbove(dim(PlanDim::IsFixed), b.i32(0));
  scratchMemory = planArray(b, PlanArray::Scratch);
  exchange = AllocOp::create(b, ScratchType::get(b.getContext(), 4 * warps * mostSums), Value(), UnitAttr(),
                             IntegerAttr());
}

void PlanKernel::layOutScratch() {
  Value one = b.i32(1), ofUnits = b.add(dim(PlanDim::Units), one), ofParts = dim(PlanDim::Parts);
  Value ofBlocks = b.add(dim(PlanDim::Blocks), one);
  region = words = b.i32(0);
  auto place = [&](Value size, auto... arrays) { ((*arrays = allocate(size)), ...); };
  place(b.add(sequences, one), &unitStart);
  place(b.add(b.mul(sequences, b.i32(lists)), one), &piecesUpTo);
  place(ofUnits, &sequenceOf, &partStart, &partial, &mergeStart, &costs);
  place(ofParts, &order, &sorted, &unitOfPart);
  place(ofBlocks, &cutTask, &cutTile, &cutsUpTo, &cutPartial, &cutMerge);
  Value begin = b.mul(block, words);
  for (ScratchArray *array :
       {&unitStart, &piecesUpTo, &sequenceOf, &partStart, &partial, &mergeStart, &costs, &order, &sorted,
        &unitOfPart, &cutTask, &cutTile, &cutsUpTo, &cutPartial, &cutMerge})
    array->first = b.add(array->first, begin);
}

PlanKernel::Chunks PlanKernel::chunksOf(const SeenTokens &seen) {
  Value one = b.i32(1), some = b.less(seen.begin, seen.end);
  Value origin = b.max(seen.pos0, b.i32(0)), last = zeroUnless(some, b.add(origin, b.sub(seen.end, one)));
  Value before = quotient(b.add(origin, seen.begin), PlanDim::Chunk);
  Value inside = zeroUnless(some, b.sub(quotient(last, PlanDim::Chunk), before));
  Value rest = either(equal(inside, b.i32(0)), b.less(endOfChunk(seen, inside), seen.tiles));
  return {inside, zeroUnless(some, b.add(inside, count(rest)))};
}

/// The key tile, counted from the segment's first, at which its chunk of that number from 1 on ends.
Value PlanKernel::endOfChunk(const SeenTokens &seen, Value number) {
  Value begin = b.add(b.max(seen.pos0, b.i32(0)), seen.begin);
  Value end = b.mul(b.add(quotient(begin, PlanDim::Chunk), number), dim(PlanDim::Chunk));
  return zeroUnless(isAbove(number, b.i32(0)), ceilQuotient(b.sub(end, begin), PlanDim::Keys));
}

/// With fixed cuts the sink is a part of its own, the last one.
Value PlanKernel::partsOf(const PlanUnit &unit) {
  Value chunks = b.i32(0), one = b.i32(1);
  for (const SeenTokens &seen : unit.seen)
    chunks = b.add(chunks, chunksOf(seen).parts);
  return b.select(fixed, sinks ? b.add(chunks, one) : b.max(chunks, one), one);
}

PlanPiece PlanKernel::partOf(const PlanUnit &unit, Value number) {
  Value zero = b.i32(0), one = b.i32(1), firstTile = zero, firstPart = zero;
  PlanPiece piece{unit.tiles, unit.tiles, {}};
  for (const SeenTokens &seen : unit.seen) {
    Chunks chunks = chunksOf(seen);
    Value nth = b.sub(number, firstPart), next = b.add(nth, one);
    Value isHere = both(atMost(zero, nth), b.less(nth, chunks.parts));
    Value end = b.select(atMost(next, chunks.inside), endOfChunk(seen, next), seen.tiles);
    piece.begin = b.select(isHere, b.add(firstTile, endOfChunk(seen, nth)), piece.begin);
    piece.end = b.select(isHere, b.add(firstTile, end), piece.end);
    firstTile = b.add(firstTile, seen.tiles);
    firstPart = b.add(firstPart, chunks.parts);
  }
  piece.begin = zeroUnless(fixed, piece.begin);
  piece.end = b.select(fixed, piece.end, unit.tiles);
  if (sinks)
    piece.sink = either(negate(fixed), equal(number, firstPart));
  return piece;
}

/// Sums over the units of parts, rows of parts, rows to merge and cost; and whether there is room for them.
void PlanKernel::findParts() {
  Value zero = b.i32(0), one = b.i32(1), isFirst = equal(thread, zero);
  SmallVector<ScratchArray> arrays = {partStart, partial, mergeStart, costs};
  SmallVector<Value> found =
      walk(units, SmallVector<Value>(4, zero), [&](Value i, Value exists, ValueRange carried) {
        SmallVector<Value> next,
            values = ifThere(exists, 4, [&]() -> SmallVector<Value> {
              Value sequence = search(unitStart, sequences, i);
              put(sequenceOf, i, sequence);
              PlanUnit unit = unitOf(i, sequence);
              Value parts = partsOf(unit), rows = b.mul(unit.packedCount, b.i32(dealt));
              Value isCut = sinks ? either(fixed, isAbove(parts, one)) : isAbove(parts, one);
              Value cost = b.add(b.mul(unit.tiles, b.i32(tileCost)), dim(PlanDim::Fixed));
              return {parts, zeroUnless(isCut, b.mul(rows, parts)), zeroUnless(isCut, rows), cost};
            });
        ScanOp sums = scan(values);
        for (size_t a = 0; a < values.size(); ++a) {
          b.doIf(exists, [&] { put(arrays[a], i, b.add(carried[a], sums.getBefore()[a])); });
          next.push_back(b.add(carried[a], sums.getTotals()[a]));
        }
        return next;
      });
  b.doIf(isFirst, [&] {
    for (auto [array, total] : llvm::zip(arrays, found))
      put(array, units, total);
  });
  parts = found[0], partials = found[1], merges = found[2], cost = found[3];
  for (auto [which, needed] : {std::pair(PlanDim::Parts, parts), std::pair(PlanDim::Partials, partials),
                               std::pair(PlanDim::MergeRows, merges)})
    isHeld = both(isHeld, atMost(needed, dim(which)));
  for (Value *total : {&units, &parts, &partials, &merges, &cost})
    *total = zeroUnless(isHeld, *total);
  b.doIf(both(both(equal(block, zero), isFirst), isRight), [&] {
    Value exceeded = b.i32(static_cast<int64_t>(PlanFault::CapacityExceeded));
    writeFinding({.fault = b.select(isHeld, zero, exceeded)});
  });
  sync();
}

/// Units are dealt out whole where every round over the blocks would give each of them no more than its equal
/// share, or 3 % above: so the least is merged. Else they are cut into as many shares as are long enough.
void PlanKernel::decide() {
  Value one = b.i32(1), blocks = dim(PlanDim::Blocks), fixedCost = dim(PlanDim::Fixed);
  Value all = b.mul(units, b.i32(dealt)), total = b.mul(cost, b.i32(dealt));
  Value tiles = b.div(b.sub(total, b.mul(all, fixedCost)), tileCost);
  Value most = b.max(b.min(blocks, quotient(tiles, dim(PlanDim::ShareTiles))), one);
  Value equalShare = b.add(ceilQuotient(total, most), b.add(fixedCost, b.i32(tileCost)));
  Value rounds = b.max(ceilQuotient(all, PlanDim::Blocks), one);
  Value longest = b.add(equalShare, b.div(equalShare, 32)); // of the tasks of all rounds
  Value longer =
      walk(units, {b.i32(0)}, [&](Value i, Value exists, ValueRange carried) -> SmallVector<Value> {
        Value isLonger = ifThere(exists, 1, [&]() -> SmallVector<Value> {
          Value cost = b.sub(get(costs, b.add(i, one)), get(costs, i));
          return {count(b.less(longest, b.mul(cost, rounds)))};
        })[0];
        return {b.add(carried[0], scan(isLonger).getTotals()[0])};
      })[0];
  Value isCut = both(negate(fixed), isAbove(longer, b.i32(0)));
  // Abreast every unit is listed once, for all of its heads.
  abreast = dim(PlanDim::Abreast), isAbreast = isAbove(abreast, one);
  Value listTotal = b.select(isAbreast, cost, total);
  Value together =
      b.min(quotient(blocks, PlanDim::Abreast), quotient(tiles, b.mul(dim(PlanDim::ShareTiles), abreast)));
  most = b.select(isAbreast, b.max(together, one), most);
  shares = zeroUnless(isCut, most);
  share = b.max(ceilQuotient(listTotal, most), one);
  listed = zeroUnless(isCut, units);
  parts = zeroUnless(negate(isCut), parts);
  tasks = b.mul(parts, b.i32(dealt));
}

/// By one digit after the other, the lowest first; each keeps the order of those alike.
void PlanKernel::sortParts() {
  Value zero = b.i32(0), one = b.i32(1), steps = b.i32((1 << costBits) - 1);
  Value tiles = b.div(b.sub(cost, b.mul(units, dim(PlanDim::Fixed))), tileCost);
  Value mean = b.max(quotient(tiles, b.max(parts, one)), one);
  walk(parts, {}, [&](Value i, Value exists, ValueRange) -> SmallVector<Value> {
    b.doIf(exists, [&] { // without cuts a part is a unit
      Value number = b.add(search(partStart, zeroUnless(fixed, units), i), zeroUnless(negate(fixed), i));
      PlanPiece piece = partOf(unitOf(number), b.sub(i, get(partStart, number)));
      Value size = b.min(b.sub(piece.end, piece.begin), b.i32(1 << 20));
      Value rank = b.sub(steps, b.min(quotient(b.mul(size, b.i32(meanSteps)), mean), steps));
      put(unitOfPart, i, number);
      put(order, i, b.add(b.mul(rank, b.i32(1 << partBits)), i));
    });
    return {};
  });
  sync();
  Value rounds = zeroUnless(isAbove(parts, zero), b.i32(costBits / digitBits));
  auto loop = scf::ForOp::create(b, zero, rounds, one);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value odd = equal(b.rem(loop.getInductionVar(), 2), one);
  ScratchArray from{b.select(odd, sorted.first, order.first)}, to{b.select(odd, order.first, sorted.first)};
  sortByDigit(from, to, b.add(b.mul(loop.getInductionVar(), b.i32(digitBits)), b.i32(partBits)));
}

/// How many words have each digit: of this thread, two to a sum, as no block has 2^16 threads.
SmallVector<Value> PlanKernel::countDigit(Value digit) {
  SmallVector<Value> counts;
  for (int64_t d = 0; d < digits; d += 2)
    counts.push_back(
        b.add(count(equal(digit, b.i32(d))), b.mul(count(equal(digit, b.i32(d + 1))), b.i32(1 << 16))));
  return counts;
}

SmallVector<Value> PlanKernel::unpackDigits(ValueRange counts) {
  SmallVector<Value> each;
  for (Value pair : counts)
    each.append({b.rem(pair, 1 << 16), b.div(pair, 1 << 16)});
  return each;
}

/// Where there are more words than threads, all are counted first; else one sum says it.
void PlanKernel::sortByDigit(ScratchArray from, ScratchArray to, Value shift) {
  SmallVector<Value> none(digits, b.i32(0));
  auto digitOf = [&](Value word) { return b.rem(b.createOrFold<arith::ShRUIOp>(word, shift), digits); };
  auto countAt = [&](Value i, Value exists) { // the word, and the counts of its digit
    return ifThere(exists, 1 + digits / 2, [&] {
      SmallVector<Value> found = {get(from, i)};
      llvm::append_range(found, countDigit(digitOf(found.front())));
      return found;
    });
  };
  auto addAll = [&](ValueRange x, ValueRange y) {
    return llvm::map_to_vector(llvm::zip_equal(x, y),
                               [&](auto both) { return b.add(std::get<0>(both), std::get<1>(both)); });
  };
  Value isLong = isAbove(parts, b.i32(threads));
  SmallVector<Value> counted =
      walk(zeroUnless(isLong, parts), none, [&](Value i, Value exists, ValueRange carried) {
        ScanOp sums = scan(ValueRange(countAt(i, exists)).drop_front());
        return SmallVector<Value>(addAll(carried, unpackDigits(sums.getTotals())));
      });
  walk(parts, none, [&](Value i, Value exists, ValueRange carried) {
    SmallVector<Value> values = countAt(i, exists);
    ScanOp sums = scan(ValueRange(values).drop_front());
    SmallVector<Value> here = unpackDigits(sums.getTotals());
    b.doIf(exists, [&] {
      SmallVector<Value> before = addAll(carried, unpackDigits(sums.getBefore()));
      Value digit = digitOf(values.front()), place = b.i32(0);
      for (int64_t d = 0; d < digits; ++d) {
        Value all = b.select(isLong, counted[d], here[d]);
        place = b.add(place, zeroUnless(b.less(b.i32(d), digit), all));
        place = b.add(place, zeroUnless(equal(b.i32(d), digit), before[d]));
      }
      put(to, place, values.front());
    });
    return SmallVector<Value>(addAll(carried, here));
  });
  sync();
}
