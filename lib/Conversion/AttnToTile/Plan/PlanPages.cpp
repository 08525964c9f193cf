//===- PlanPages.cpp - Pages that tables name, on the device --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention reads wherever a block table points. So a plan is made only where every page
// that rows of a sequence may read is one of the pool; the others, as those in front of a
// window, may be anything.
//
// Blocks do not wait for each other, so each of them looks at all pages, a piece of a row
// of a table to a thread. Which page is wrong, and where it stands, is asked for only where
// one is.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static constexpr int64_t pieceEntries = 16; ///< loads of a thread that do not wait for each other

/// A range of tokens in entries of its row, and the pieces that they make.
PlanKernel::PageRun PlanKernel::pageRunOf(const SeenTokens &seen) {
  const int64_t page = storeOf(chain.updates[seen.operand].getKv().getType()).tokensOf(1);
  Value begin = b.div(seen.begin, page), end = b.div(b.add(seen.end, b.i32(page - 1)), page);
  Value some = b.less(seen.begin, seen.end);
  return {begin, end,
          zeroUnless(some, b.div(b.add(b.sub(end, begin), b.i32(pieceEntries - 1)), pieceEntries))};
}

bool PlanKernel::isPaged(unsigned operand) const {
  return storeOf(const_cast<UpdateOp &>(chain.updates[operand]).getKv().getType()).isPaged();
}

Value PlanKernel::pagePiecesOf(const PlanUnit &rows) {
  Value pieces = b.i32(0);
  for (const SeenTokens &seen : rows.seen)
    if (isPaged(seen.operand))
      pieces = b.add(pieces, pageRunOf(seen).pieces);
  return pieces;
}

/// The first entry from `begin` on, in a piece of a row, whose page is not in the pool, counted from 1, and
/// the page; 0 where there is none.
std::pair<Value, Value> PlanKernel::firstWrongPage(unsigned operand, Value row, Value begin, Value end) {
  StringRef name = argumentName(chain.updates[operand].getKv());
  Value table = b.buffer((name + ".block_table").str(), b.getI32Type());
  Value pages = b.dimension((name + ".pages").str()), columns = b.dimension((name + ".max_pages").str());
  Value first = b.mul(b.wide(row), b.wide(columns)), last = b.sub(end, b.i32(1)), wrong = b.i32(0),
        which = wrong;
  SmallVector<Value> entries, found;
  for (int64_t i = 0; i < pieceEntries; ++i) {
    entries.push_back(b.min(b.add(begin, b.i32(i)), last));
    found.push_back(b.read(table, b.add(first, b.wide(entries.back()))));
  }
  for (auto [entry, page] : llvm::reverse(llvm::zip_equal(entries, found))) {
    Value isOutside = b.compare(arith::CmpIPredicate::uge, page, pages);
    wrong = b.select(isOutside, b.add(entry, b.i32(1)), wrong);
    which = b.select(isOutside, page, which);
  }
  return {wrong, which};
}

/// Finds what is wrong in a piece. The fault is zero where nothing is.
Finding PlanKernel::wrongPageIn(Value piece) {
  Value zero = b.i32(0), list = search(piecesUpTo, b.mul(sequences, b.i32(lists)), piece);
  Value rest = b.sub(piece, get(piecesUpTo, list));
  PlanUnit rows = rowsOf(list);
  Finding found{.fault = zero,
                .sequence = rows.sequence,
                .operand = zero,
                .head = rows.head,
                .column = zero,
                .page = zero};
  for (unsigned o = 0; o < chain.updates.size(); ++o) {
    if (!isPaged(o))
      continue;
    Value isHere = b.less(zero, zero), begin = zero, end = zero;
    for (const SeenTokens &seen : rows.seen) {
      if (seen.operand != o)
        continue;
      PageRun run = pageRunOf(seen);
      Value isOfRun = both(atMost(zero, rest), b.less(rest, run.pieces));
      isHere = either(isHere, isOfRun);
      begin = b.select(isOfRun, b.add(run.begin, b.mul(rest, b.i32(pieceEntries))), begin);
      end = b.select(isOfRun, run.end, end);
      rest = b.sub(rest, run.pieces);
    }
    SmallVector<Value> wrong = ifThere(isHere, 2, [&]() -> SmallVector<Value> {
      auto [entry, page] = firstWrongPage(o, listOf(o, rows.sequence, rows.head), begin, end);
      return {entry, page};
    });
    Value isWrong = isAbove(wrong[0], zero);
    found.fault = b.select(isWrong, b.i32(static_cast<int64_t>(PlanFault::PageOutside)), found.fault);
    found.operand = b.select(isWrong, b.i32(o), found.operand);
    found.column = b.select(isWrong, b.sub(wrong[0], b.i32(1)), found.column);
    found.page = b.select(isWrong, wrong[1], found.page);
  }
  return found;
}

/// The pieces of lists, where heads have their own. Else findUnits counts them beside units.
void PlanKernel::countPieces() {
  if (lists == 1)
    return;
  Value all = zeroUnless(both(isRight, isHeld), b.mul(sequences, b.i32(lists)));
  pieces = walk(all, {b.i32(0)}, [&](Value i, Value exists, ValueRange carried) -> SmallVector<Value> {
    Value here = ifThere(exists, 1, [&]() -> SmallVector<Value> {
      PlanUnit rows = rowsOf(i);
      return {zeroUnless(b.less(rows.rowBegin, rows.rowEnd), pagePiecesOf(rows))};
    })[0];
    ScanOp sums = scan(here);
    b.doIf(exists, [&] { put(piecesUpTo, i, b.add(carried[0], sums.getBefore()[0])); });
    return {b.add(carried[0], sums.getTotals()[0])};
  })[0];
  sync();
}

void PlanKernel::checkPages() {
  Value zero = b.i32(0);
  countPieces();
  pieces = zeroUnless(both(isRight, isHeld), pieces);
  Value wrong = walk(pieces, {zero}, [&](Value i, Value exists, ValueRange carried) -> SmallVector<Value> {
    Value fault = ifThere(exists, 1, [&] { return SmallVector<Value>{wrongPageIn(i).fault}; })[0];
    return {b.max(carried[0], fault)};
  })[0];
  Value isWrong = isAbove(scan(wrong).getTotals()[0], zero), isFirstBlock = equal(block, zero);
  walk(zeroUnless(isWrong, pieces), {zero},
       [&](Value i, Value exists, ValueRange carried) -> SmallVector<Value> {
         SmallVector<Value> fields = ifThere(exists, Finding::usedWords, [&] {
           auto found = ::attn::rt::fieldsOf(wrongPageIn(i));
           return SmallVector<Value>(found.begin(), found.end());
         });
         Finding found = ::attn::rt::recordOf<Finding>(fields);
         ScanOp sums = scan(found.fault);
         Value before = b.add(carried[0], sums.getBefore()[0]);
         b.doIf(both(both(isFirstBlock, isAbove(found.fault, zero)), equal(before, zero)),
                [&] { writeFinding(found); });
         return {b.add(carried[0], sums.getTotals()[0])};
       });
  isRight = both(isRight, negate(isWrong));
  units = zeroUnless(isRight, units);
}
