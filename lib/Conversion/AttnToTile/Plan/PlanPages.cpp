//===- PlanPages.cpp - Pages that tables name, on the device --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention reads any page that a block table names. So a plan is made only if
// every page that rows of a sequence may read is in the pool. Other entries,
// such as those before a window, may be anything.
//
// Blocks do not wait for each other, so each of them checks all pages, a piece
// of a row of a table to a thread. The wrong page and its column are found only
// if a page is wrong.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static constexpr int64_t pieceEntries = 16; ///< independent loads of a thread

/// A range of tokens as entries of its row, and the number of their pieces.
PlanKernel::PageRun PlanKernel::pageRunOf(const SeenTokens &seen) {
  const ::attn::rt::Store store = storeOf(chain.updates[seen.operand].getKv().getType());
  NumberRange entries{store.entryOf(seen.first), store.entriesOf(seen.tokens.end)};
  Number isSome = seen.first < seen.tokens.end;
  return {entries, select(isSome, ceilDiv(entries.size(), pieceEntries), 0)};
}

bool PlanKernel::isPaged(unsigned operand) const {
  UpdateOp update = chain.updates[operand];
  return storeOf(update.getKv().getType()).isPaged();
}

Number PlanKernel::pagePiecesOf(const PlanWorkTile &rows) {
  Number pieces = number(0);
  for (const SeenTokens &seen : rows.seen)
    if (isPaged(seen.operand))
      pieces = pieces + pageRunOf(seen).pieces;
  return pieces;
}

/// The first of the entries in a piece of a row whose page is not in the pool, counted from 1, and the page;
/// 0 if there is none.
std::pair<Number, Number> PlanKernel::firstWrongPage(unsigned operand, Number row,
                                                     const NumberRange &entries) {
  StringRef name = nameOf(operand);
  Value pages = b.dimension((name + ".pages").str()), columns = b.dimension((name + ".max_pages").str());
  Value first = b.mul(b.wide(row), b.wide(columns)), blockTable = table(name + ".block_table");
  Number last = entries.end - 1, wrong = number(0), which = wrong;
  Numbers looked, found;
  for (int64_t i = 0; i < pieceEntries; ++i) {
    looked.push_back(min(entries.begin + i, last));
    found.push_back(number(b.read(blockTable, b.add(first, b.wide(looked.back())))));
  }
  for (auto [entry, page] : llvm::reverse(llvm::zip_equal(looked, found))) {
    Number isOutside = number(b.compare(arith::CmpIPredicate::uge, page, pages));
    wrong = select(isOutside, entry + 1, wrong);
    which = select(isOutside, page, which);
  }
  return {wrong, which};
}

/// Finds the fault in a piece; the fault is zero if there is none.
Finding PlanKernel::wrongPageIn(Number piece) {
  Number list = search(piecesUpTo, sequences * lists, piece);
  Number rest = piece - get(piecesUpTo, list), zero = number(0);
  PlanWorkTile rows = rowsOf(list);
  Number fault = zero, ofOperand = zero, column = zero, wrongPage = zero;
  for (unsigned o = 0; o < chain.updates.size(); ++o) {
    if (!isPaged(o))
      continue;
    Number isHere = condition(false);
    NumberRange entries{zero, zero};
    for (const SeenTokens &seen : rows.seen) {
      if (seen.operand != o)
        continue;
      PageRun run = pageRunOf(seen);
      Number isOfRun = 0 <= rest && rest < run.pieces;
      isHere = isHere || isOfRun;
      entries =
          select(isOfRun, NumberRange{run.entries.begin + rest * pieceEntries, run.entries.end}, entries);
      rest = rest - run.pieces;
    }
    Numbers wrong = ifThere(isHere, 2, [&]() -> Numbers {
      auto [entry, page] = firstWrongPage(o, listOf(o, rows.sequence, rows.head), entries);
      return {entry, page};
    });
    Number isWrong = wrong[0] > 0;
    fault = select(isWrong, static_cast<int64_t>(PlanFault::PageOutside), fault);
    ofOperand = select(isWrong, o, ofOperand);
    column = select(isWrong, wrong[0] - 1, column);
    wrongPage = select(isWrong, wrong[1], wrongPage);
  }
  return {.fault = fault,
          .sequence = rows.sequence,
          .operand = ofOperand,
          .head = rows.head,
          .column = column,
          .page = wrongPage};
}

/// Counts the pieces of lists, if heads have lists of their own. Otherwise findWorkTiles counts them beside
/// work tiles.
void PlanKernel::countPieces() {
  if (lists == 1)
    return;
  Number all = select(isRight && isHeld, sequences * lists, 0);
  pieces = walk(all, number(0), [&](Number i, Number exists, ArrayRef<Number> carried) -> Numbers {
    Number here = ifThere(exists, 1, [&]() -> Numbers {
      PlanWorkTile rows = rowsOf(i);
      return {select(rows.rowBegin < rows.rowEnd, pagePiecesOf(rows), 0)};
    })[0];
    Sums sums = scan(here);
    b.doIf(exists, [&] { put(piecesUpTo, i, carried[0] + sums.before[0]); });
    return {carried[0] + sums.totals[0]};
  })[0];
  sync();
}

void PlanKernel::checkPages() {
  countPieces();
  pieces = select(isRight && isHeld, pieces, 0);
  Number wrong = walk(pieces, number(0), [&](Number i, Number exists, ArrayRef<Number> carried) -> Numbers {
    Number fault = ifThere(exists, 1, [&] { return Numbers{number(wrongPageIn(i).fault)}; })[0];
    return {max(carried[0], fault)};
  })[0];
  Number isWrong = scan(wrong).totals[0] > 0, isFirstBlock = equal(block, 0);
  walk(select(isWrong, pieces, 0), number(0),
       [&](Number i, Number exists, ArrayRef<Number> carried) -> Numbers {
         Numbers fields = ifThere(exists, Finding::usedWords, [&] {
           auto found = ::attn::rt::fieldsOf(wrongPageIn(i));
           return numbersOf(SmallVector<Value>(found.begin(), found.end()));
         });
         Finding found = ::attn::rt::recordOf<Finding>(valuesOf(fields));
         Number fault = fields.front();
         Sums sums = scan(fault);
         Number before = carried[0] + sums.before[0];
         b.doIf(isFirstBlock && fault > 0 && equal(before, 0), [&] { writeFinding(found); });
         return {carried[0] + sums.totals[0]};
       });
  isRight = isRight && !isWrong;
  workTiles = select(isRight, workTiles, 0);
}
