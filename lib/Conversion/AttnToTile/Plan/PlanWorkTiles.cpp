//===- PlanWorkTiles.cpp - Tiles of rows and what they see, on the device -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The work tiles of the planner's WorkTiles.cpp: the packed rows of each sequence
// in tiles, and for each tile the intervals of tokens that its rows may see,
// and those that they all see.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

#include "AttnToTile/Kernel/ValuePositions.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

using Bounds = ::attn::rt::PositionBounds<Number>;

/// Makes an interval of each intersection in a union.
struct Terms {
  KernelBuilder &b;
  Number low, high; ///< the rows that decide the lower and the upper end
  int64_t end;      ///< the number of the next end in the text

  Bounds ofTerm(VisibilityAttr term) {
    SmallVector<Value> sizes;
    for (size_t i = 0; i < term.getSizes().size(); ++i)
      sizes.push_back(b.end(end++));
    auto ofRow = [&](Value row) -> Bounds {
      auto shown = ::attn::rt::intervalOf(term.getKind(), ValuePositions(b), row, sizes);
      Bounds bounds;
      if (shown.begin)
        bounds.begin = Number(b, *shown.begin);
      if (shown.end)
        bounds.end = Number(b, *shown.end);
      return bounds;
    };
    Bounds lower = ofRow(low);
    return rangeOfRows(lower, ofRow(high));
  }

  SmallVector<Bounds> of(VisibilityAttr visibility) {
    if (!::attn::rt::isConnective(visibility.getKind()))
      return {ofTerm(visibility)};
    SmallVector<Bounds> all;
    for (VisibilityAttr operand : visibility.getOperands()) {
      SmallVector<Bounds> part = of(operand), products;
      if (visibility.getKind() == VisibilityKind::Or || all.empty()) {
        llvm::append_range(all, part);
        continue;
      }
      for (const Bounds &left : all)
        for (const Bounds &right : part)
          products.push_back(commonOf(left, right));
      all = products;
    }
    return all;
  }
};

/// The tokens of an instance in one or two ranges of positions: disjoint, in order, the empty ones last.
SmallVector<NumberRange> tokensOf(ArrayRef<Bounds> positions, Number pos0, Number length) {
  SmallVector<NumberRange> tokens;
  for (const Bounds &range : positions) {
    NumberRange shown = tokensOf(range, pos0, length);
    tokens.push_back(rangeWhere(shown.begin < shown.end, shown));
  }
  if (tokens.size() < 2)
    return tokens;
  NumberRange x = tokens[0], y = tokens[1];
  Number swap = (x.isEmpty() || y.begin < x.begin) && !y.isEmpty();
  NumberRange former = select(swap, y, x), latter = select(swap, x, y);
  Number touch = touches(former, latter);
  return {select(touch, joined(former, latter), former), rangeWhere(!touch, latter)};
}

} // namespace

int64_t PlanKernel::intervalBound(VisibilityAttr visibility) {
  return ::attn::rt::intervalBound(visibility.getKind(), visibility.getOperands(), intervalBound);
}

int64_t PlanKernel::mostSeen() const {
  int64_t most = 0;
  for (UpdateOp update : chain.updates)
    most += intervalBound(update.getVisibility());
  return most;
}

StringRef PlanKernel::nameOf(unsigned operand) const {
  UpdateOp update = chain.updates[operand];
  return argumentName(update.getKv());
}

bool PlanKernel::isRagged(unsigned operand) const {
  UpdateOp update = chain.updates[operand];
  KVType type = update.getKv().getType();
  return type.getRagged() && type.getHeads() != 1;
}

/// The row in an operand's tables of a sequence, or of one of its heads.
Number PlanKernel::listOf(unsigned operand, Number sequence, Number head) {
  return isRagged(operand) ? listOfHead(sequence, heads, head) : sequence;
}

Number PlanKernel::lengthOf(unsigned operand, Number sequence, Number head) {
  return read(table(nameOf(operand) + ".lengths"), listOf(operand, sequence, head));
}

std::pair<Number, Number> PlanKernel::lengthsOf(unsigned operand, Number sequence) {
  Number first = lengthOf(operand, sequence, number(0));
  if (!isRagged(operand))
    return {first, first};
  auto loop = scf::ForOp::create(b, b.i32(1), b.i32(heads), b.i32(1), ValueRange{first, first});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Number length = lengthOf(operand, sequence, number(loop.getInductionVar()));
  Numbers carried = numbersOf(loop.getRegionIterArgs());
  scf::YieldOp::create(b, ValueRange{min(carried[0], length), max(carried[1], length)});
  return {number(loop.getResult(0)), number(loop.getResult(1))};
}

Number PlanKernel::pos0Of(unsigned operand, Number sequence) {
  return read(table(nameOf(operand) + ".pos0"), sequence);
}

/// The tokens that an instance's tables can hold or, for a packed region, those of all instances.
Number PlanKernel::roomOf(unsigned operand) {
  UpdateOp update = chain.updates[operand];
  StringRef name = argumentName(update.getKv());
  const ::attn::rt::Store store = storeOf(update.getKv().getType());
  return store.isPaged() ? store.tokensOf(number(b.dimension((name + ".max_pages").str())))
                         : number(b.dimension((name + ".tokens").str()));
}

/// Checks a sequence: rows are in q, and follow those of the sequence before; lengths fit the tables;
/// positions fit 32 bits with headroom.
Number PlanKernel::faultOf(Number sequence, const NumberRange &range) {
  Number isFirst = equal(sequence, 0), all = number(b.dimension("rows"));
  Number rows = range.begin < 0 || (range.end < range.begin || all < range.end);
  rows = rows || (isFirst && !equal(range.begin, 0));
  Number several = stores ? range.size() > 1 : condition(false), tokens = condition(false);
  for (auto [o, update] : llvm::enumerate(chain.updates)) {
    Number most = roomOf(o);
    if (storeOf(update.getKv().getType()).kind == ::attn::rt::StoreKind::Packed) {
      Number start = read(table(nameOf(o) + ".start"), sequence);
      tokens = tokens || (start < 0 || most < start);
      most = most - max(start, 0);
    }
    auto [least, greatest] = lengthsOf(o, sequence);
    Number pos0 = pos0Of(o, sequence), limit = number(1 << 29);
    tokens = tokens || (least < 0 || most < greatest);
    tokens = tokens || (pos0 < -(1 << 29) || limit < pos0);
  }
  auto faultWhere = [](Number condition, PlanFault fault, auto otherwise) {
    return select(condition, static_cast<int64_t>(fault), otherwise);
  };
  Number wrong = faultWhere(several, PlanFault::SeveralRows, faultWhere(tokens, PlanFault::LengthOutside, 0));
  return faultWhere(rows, PlanFault::RowsUnsorted, wrong);
}

void PlanKernel::writeFinding(const Finding &finding) {
  SmallVector<Value> words;
  for (Value field : ::attn::rt::fieldsOf(finding))
    words.push_back(field ? field : b.i32(0));
  writeWords(PlanArray::Finding, number(0), words);
}

/// Finds the first work tile of each sequence, and checks all inputs.
void PlanKernel::findWorkTiles() {
  Number zero = number(0), isFirstBlock = equal(block, 0);
  Numbers found = walk(sequences, {zero, zero, zero}, [&](Number i, Number exists, ArrayRef<Number> carried) {
    Numbers values = ifThere(exists, 4, [&]() -> Numbers {
      NumberRange rows = rowsOfSequence(i);
      Number fault = faultOf(i, rows), isRight = equal(fault, 0);
      Number tiles = tilesOfRows(select(isRight, rows.size(), 0), group, by(PlanDim::Rows)) * lists;
      Number reads = isRight && rows.begin < rows.end;
      Number pieces = lists == 1 ? select(reads, pagePiecesOf(rowsOf(i)), 0) : zero;
      return {tiles, count(!isRight), pieces, fault};
    });
    Sums sums = scan(ArrayRef(values).drop_back());
    b.doIf(exists, [&] {
      put(workTileStart, i, carried[0] + sums.before[0]);
      if (lists == 1)
        put(piecesUpTo, i, carried[2] + sums.before[2]);
    });
    Number before = carried[1] + sums.before[1];
    b.doIf(isFirstBlock && values[1] > 0 && equal(before, 0),
           [&] { writeFinding({.fault = values[3], .sequence = i}); });
    return sumsOf(carried, sums.totals);
  });
  b.doIf(equal(thread, 0), [&] { put(workTileStart, sequences, found[0]); });
  pieces = found[2];
  isRight = equal(found[1], 0);
  isHeld = found[0] <= dim(PlanDim::WorkTiles);
  workTiles = select(isRight && isHeld, found[0], 0);
  sync();
}

PlanWorkTile PlanKernel::workTileOf(Number which, Number sequence) {
  PlanWorkTile workTile;
  workTile.sequence = sequence;
  Number inSequence = which - get(workTileStart, sequence);
  workTile.head = inSequence % lists;
  NumberRange rows = rowsOfSequence(sequence);
  workTile.packedBegin = rows.begin * group + inSequence / lists * by(PlanDim::Rows);
  workTile.packedCount = packedInTile(workTile.packedBegin, rows.end, group, by(PlanDim::Rows));
  workTile.rowBegin = rowOf(workTile.packedBegin, group);
  workTile.rowEnd = rowEndOf(workTile.packedBegin, workTile.packedCount, group);
  findSeen(workTile, rows.end);
  return workTile;
}

PlanWorkTile PlanKernel::rowsOf(Number list) {
  PlanWorkTile workTile;
  workTile.sequence = list / lists;
  workTile.head = list % lists;
  NumberRange rows = rowsOfSequence(workTile.sequence);
  workTile.rowBegin = rows.begin, workTile.rowEnd = rows.end;
  findSeen(workTile, rows.end);
  return workTile;
}

/// Finds the positions of a work tile's rows and the tokens that they see. The rows are the last tokens of
/// their sequence, whose rows end at `rowsEnd`.
void PlanKernel::findSeen(PlanWorkTile &workTile, Number rowsEnd) {
  std::optional<Number> end; // the position after the sequence's last token
  for (unsigned o = 0; o < chain.updates.size(); ++o) {
    Number here = pos0Of(o, workTile.sequence) + lengthsOf(o, workTile.sequence).second;
    end = end ? max(*end, here) : here;
  }
  workTile.firstPosition = positionOf(workTile.rowBegin, rowsEnd, *end);
  workTile.lastPosition = positionOf(workTile.rowEnd - 1, rowsEnd, *end);
  workTile.tiles = number(0);
  for (unsigned o = 0; o < chain.updates.size(); ++o)
    addSeen(o, workTile);
}

/// The range from a tile on: tiles are counted from the origin of cuts, so that parts consist of whole tiles.
NumberRange PlanKernel::alignedToParts(const NumberRange &range, Number pos0) {
  Number before = (chunkOrigin(pos0) + range.begin) % by(PlanDim::Keys);
  return rangeWhere(range.begin < range.end, NumberRange{range.begin - before, range.end});
}

void PlanKernel::addSeen(unsigned operand, PlanWorkTile &workTile) {
  Number pos0 = pos0Of(operand, workTile.sequence),
         length = lengthOf(operand, workTile.sequence, workTile.head);
  VisibilityAttr visibility = chain.updates[operand].getVisibility();
  auto tokens = [&](Number low, Number high) {
    Terms terms{b, low, high, chain.firstEnd(operand)};
    return tokensOf(terms.of(visibility), pos0, length);
  };
  SmallVector<NumberRange> possible = tokens(workTile.firstPosition, workTile.lastPosition);
  SmallVector<NumberRange> certain = tokens(workTile.lastPosition, workTile.firstPosition);
  for (NumberRange &range : possible)
    range = alignedTo(by(PlanDim::KeyAlign), range);
  if (possible.size() == 2) {
    Number joins = possible[1].begin < possible[1].end && overlaps(possible[0], possible[1]);
    possible[0].end = select(joins, possible[1].end, possible[0].end);
    possible[1] = rangeWhere(!joins, possible[1]);
  }
  for (const NumberRange &range : possible) {
    NumberRange full{range.begin, range.begin};
    for (const NumberRange &sure : certain)
      full = fullOf(range, sure, full);
    NumberRange inTiles = numericsAttr.isOn(chain.function) ? alignedToParts(range, pos0) : range;
    Number tiles = tilesOf(inTiles, by(PlanDim::Keys));
    workTile.seen.push_back({operand, inTiles, full, range.begin, pos0, tiles});
    workTile.tiles = workTile.tiles + tiles;
  }
}

/// Writes positions: rows stand at the end of their sequence. Each work tile writes those that begin in it.
void PlanKernel::writePositions() {
  Value positions = table("q_pos");
  spread(workTiles, [&](Number which) {
    PlanWorkTile workTile = workTileOf(which);
    forEach(workTile.rowBegin, workTile.rowEnd, [&](Number row) {
      b.doIf(workTile.packedBegin <= row * group && equal(workTile.head, 0), [&] {
        Number position = workTile.firstPosition + (row - workTile.rowBegin);
        tile::WriteOp::create(b, position, positions, b.wide(row));
      });
    });
  });
}

/// Writes score tasks as ScoreTasks.cpp lists them: of all tokens that the tables can hold, seen or not. If
/// inputs have a fault, the tasks have no tokens.
void PlanKernel::writeScoreTasks() {
  Number before = number(0), isPlanned = isRight && isHeld;
  for (unsigned o = 0; o < chain.updates.size(); ++o) {
    Number room = roomOf(o), ofList = scoreTasksOf(room);
    Number ofInstance = ofList * heads, all = ofInstance * sequences;
    spread(all, [&](Number i) {
      ScoreTask task;
      Number rest = i % ofInstance, instance = i / ofInstance, ordinal = rest / ofList;
      Number kvBegin = rest % ofList * ::attn::rt::scoreTaskTokens;
      task.operand = number(o);
      task.instance = instance;
      task.ordinal = ordinal;
      task.kvBegin = kvBegin;
      task.kvEnd = select(isPlanned, scoreTaskEnd(kvBegin, room), kvBegin);
      task.length = select(isPlanned, lengthOf(o, instance, ordinal), 0);
      NumberRange rows = rowsOfSequence(instance);
      task.row = select(rows.begin < rows.end, rows.begin, -1);
      writeRecord(PlanArray::ScoreTasks, (before + i) * int64_t{ScoreTask::words}, task);
    });
    before = before + all;
  }
}
