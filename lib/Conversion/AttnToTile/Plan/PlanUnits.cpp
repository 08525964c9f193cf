//===- PlanUnits.cpp - Tiles of rows and what they see, on the device -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// As the planner's Units.cpp has them: of each sequence the packed rows in tiles, of
// each tile the intervals of tokens that its rows may see, and those they all see.
//
//===----------------------------------------------------------------------===//
#include "PlanKernel.h"

#include "AttnToTile/Kernel/ValuePositions.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Positions, and then tokens, [begin, end); null: without end.
struct Bounds {
  Value begin, end;
};

/// Makes an interval of each intersection in a union.
struct Terms {
  KernelBuilder &b;
  Value low, high; ///< the rows that decide the lower and the upper end
  int64_t end;     ///< the number of the next end in the text

  /// A term that shows nothing to one row shows nothing to any, though its ends are of two rows.
  Bounds ofTerm(VisibilityAttr term) {
    SmallVector<Value> sizes;
    for (size_t i = 0; i < term.getSizes().size(); ++i)
      sizes.push_back(b.end(end++));
    auto ofRow = [&](Value row) {
      return ::attn::rt::intervalOf(term.getKind(), ValuePositions(b), row, sizes);
    };
    auto lower = ofRow(low), upper = ofRow(high);
    if (!lower.begin || !lower.end)
      return {lower.begin.value_or(Value()), upper.end.value_or(Value())};
    Value some = b.less(*lower.begin, *lower.end);
    return {b.select(some, *lower.begin, b.i32(0)), b.select(some, *upper.end, b.i32(0))};
  }

  Bounds intersect(Bounds x, Bounds y) {
    auto join = [&](Value u, Value v, bool larger) {
      return !u ? v : !v ? u : larger ? b.max(u, v) : b.min(u, v);
    };
    return {join(x.begin, y.begin, true), join(x.end, y.end, false)};
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
      for (Bounds left : all)
        for (Bounds right : part)
          products.push_back(intersect(left, right));
      all = products;
    }
    return all;
  }
};

/// The tokens of an instance in one or two ranges of positions: disjoint, in order, the empty ones last.
SmallVector<Bounds> tokensOf(KernelBuilder &b, ArrayRef<Bounds> positions, Value pos0, Value length) {
  SmallVector<Bounds> tokens;
  Value zero = b.i32(0);
  for (Bounds range : positions) {
    Value begin = range.begin ? b.max(b.sub(range.begin, pos0), zero) : zero;
    Value end = range.end ? b.min(b.sub(range.end, pos0), length) : length;
    Value some = b.less(begin, end);
    tokens.push_back({b.select(some, begin, zero), b.select(some, end, zero)});
  }
  if (tokens.size() < 2)
    return tokens;
  auto isEmpty = [&](Bounds x) { return b.compare(arith::CmpIPredicate::sge, x.begin, x.end); };
  Bounds x = tokens[0], y = tokens[1];
  Value swap = b.createOrFold<arith::OrIOp>(isEmpty(x), b.less(y.begin, x.begin));
  swap = b.select(isEmpty(y), arith::ConstantIntOp::create(b, 0, 1), swap);
  Bounds former{b.select(swap, y.begin, x.begin), b.select(swap, y.end, x.end)};
  Bounds latter{b.select(swap, x.begin, y.begin), b.select(swap, x.end, y.end)};
  Value touch = b.compare(arith::CmpIPredicate::sle, latter.begin, former.end);
  former.end = b.select(touch, b.max(former.end, latter.end), former.end);
  return {former, {b.select(touch, zero, latter.begin), b.select(touch, zero, latter.end)}};
}

} // namespace

int64_t PlanKernel::mostRanges(VisibilityAttr visibility) {
  int64_t most = visibility.getKind() == VisibilityKind::Or ? 0 : 1;
  for (VisibilityAttr operand : visibility.getOperands())
    most =
        visibility.getKind() == VisibilityKind::Or ? most + mostRanges(operand) : most * mostRanges(operand);
  return most;
}

int64_t PlanKernel::mostSeen() const {
  int64_t most = 0;
  for (UpdateOp update : chain.updates)
    most += mostRanges(const_cast<UpdateOp &>(update).getVisibility());
  return most;
}

bool PlanKernel::isRagged(unsigned operand) const {
  KVType type = const_cast<UpdateOp &>(chain.updates[operand]).getKv().getType();
  return type.getRagged() && type.getHeads() != 1;
}

/// The row of an operand's tables that a sequence has, or one of its heads.
Value PlanKernel::listOf(unsigned operand, Value sequence, Value head) {
  return isRagged(operand) ? b.add(b.mul(sequence, b.i32(heads)), head) : sequence;
}

Value PlanKernel::lengthOf(unsigned operand, Value sequence, Value head) {
  std::string name = (argumentName(chain.updates[operand].getKv()) + ".lengths").str();
  return b.read(b.buffer(name, b.getI32Type()), b.wide(listOf(operand, sequence, head)));
}

std::pair<Value, Value> PlanKernel::lengthsOf(unsigned operand, Value sequence) {
  Value first = lengthOf(operand, sequence, b.i32(0));
  if (!isRagged(operand))
    return {first, first};
  auto loop = scf::ForOp::create(b, b.i32(1), b.i32(heads), b.i32(1), ValueRange{first, first});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value length = lengthOf(operand, sequence, loop.getInductionVar());
  ValueRange carried = loop.getRegionIterArgs();
  scf::YieldOp::create(b, ValueRange{b.min(carried[0], length), b.max(carried[1], length)});
  return {loop.getResult(0), loop.getResult(1)};
}

Value PlanKernel::pos0Of(unsigned operand, Value sequence) {
  std::string name = (argumentName(chain.updates[operand].getKv()) + ".pos0").str();
  return b.read(b.buffer(name, b.getI32Type()), b.wide(sequence));
}

/// Tokens that an instance's tables have room for, or, of a packed region, all instances.
Value PlanKernel::roomOf(unsigned operand) {
  UpdateOp update = chain.updates[operand];
  StringRef name = argumentName(update.getKv());
  const ::attn::rt::Store store = storeOf(update.getKv().getType());
  return store.isPaged() ? b.mul(b.dimension((name + ".max_pages").str()), b.i32(store.tokensOf(1)))
                         : b.dimension((name + ".tokens").str());
}

/// Sequences' rows are neighbours in order, in q; lengths fit the tables; positions fit 32 bits with room.
Value PlanKernel::faultOf(Value sequence, Value begin, Value end) {
  Value zero = b.i32(0), isFirst = equal(sequence, zero);
  Value rows = either(b.less(begin, zero), either(b.less(end, begin), b.less(b.dimension("rows"), end)));
  rows = either(rows, both(isFirst, negate(equal(begin, zero))));
  Value several = stores ? isAbove(b.sub(end, begin), b.i32(1)) : arith::ConstantIntOp::create(b, 0, 1);
  Value tokens = arith::ConstantIntOp::create(b, 0, 1);
  for (auto [o, update] : llvm::enumerate(chain.updates)) {
    StringRef name = argumentName(update.getKv());
    const ::attn::rt::Store store = storeOf(update.getKv().getType());
    Value most = roomOf(o);
    if (store.kind == ::attn::rt::StoreKind::Packed) {
      Value start = b.read(b.buffer((name + ".start").str(), b.getI32Type()), b.wide(sequence));
      tokens = either(tokens, either(b.less(start, zero), b.less(most, start)));
      most = b.sub(most, b.max(start, zero));
    }
    auto [least, greatest] = lengthsOf(o, sequence);
    Value pos0 = pos0Of(o, sequence), limit = b.i32(1 << 29);
    tokens = either(tokens, either(b.less(least, zero), b.less(most, greatest)));
    tokens = either(tokens, either(b.less(pos0, b.i32(-(1 << 29))), b.less(limit, pos0)));
  }
  Value wrong = b.select(several, b.i32(static_cast<int64_t>(PlanFault::SeveralRows)),
                         zeroUnless(tokens, b.i32(static_cast<int64_t>(PlanFault::LengthOutside))));
  return b.select(rows, b.i32(static_cast<int64_t>(PlanFault::RowsUnsorted)), wrong);
}

void PlanKernel::writeFinding(const Finding &finding) {
  auto fields = ::attn::rt::fieldsOf(finding);
  SmallVector<Value> words;
  for (Value field : fields)
    words.push_back(field ? field : b.i32(0));
  writeWords(PlanArray::Finding, b.i32(0), words);
}

/// Where each sequence's units begin, and whether all inputs are as they should be.
void PlanKernel::findUnits() {
  Value qStart = b.buffer("q_start", b.getI32Type()), zero = b.i32(0), isFirstBlock = equal(block, zero);
  SmallVector<Value> found = walk(
      sequences, {zero, zero, zero}, [&](Value i, Value exists, ValueRange carried) -> SmallVector<Value> {
        SmallVector<Value> values = ifThere(exists, 4, [&]() -> SmallVector<Value> {
          Value begin = b.read(qStart, b.wide(i)), end = b.read(qStart, b.wide(b.add(i, b.i32(1))));
          Value fault = faultOf(i, begin, end), right = equal(fault, zero);
          Value packed = b.mul(zeroUnless(right, b.sub(end, begin)), b.i32(group));
          Value tiles = b.mul(ceilQuotient(packed, PlanDim::Rows), b.i32(lists));
          Value reads = both(right, b.less(begin, end));
          Value pieces = lists == 1 ? zeroUnless(reads, pagePiecesOf(rowsOf(i))) : zero;
          return {tiles, count(negate(right)), pieces, fault};
        });
        ScanOp sums = scan(ValueRange(values).drop_back());
        b.doIf(exists, [&] {
          put(unitStart, i, b.add(carried[0], sums.getBefore()[0]));
          if (lists == 1)
            put(piecesUpTo, i, b.add(carried[2], sums.getBefore()[2]));
        });
        Value before = b.add(carried[1], sums.getBefore()[1]);
        b.doIf(both(both(isFirstBlock, isAbove(values[1], zero)), equal(before, zero)),
               [&] { writeFinding({.fault = values[3], .sequence = i}); });
        return llvm::map_to_vector<4>(llvm::zip_equal(carried, sums.getTotals()),
                                      [&](auto both) { return b.add(std::get<0>(both), std::get<1>(both)); });
      });
  b.doIf(equal(thread, zero), [&] { put(unitStart, sequences, found[0]); });
  pieces = found[2];
  isRight = equal(found[1], zero);
  isHeld = atMost(found[0], dim(PlanDim::Units));
  units = zeroUnless(both(isRight, isHeld), found[0]);
  sync();
}

PlanUnit PlanKernel::unitOf(Value number, Value sequence) {
  PlanUnit unit;
  Value qStart = b.buffer("q_start", b.getI32Type()), groupSize = b.i32(group);
  unit.sequence = sequence;
  Value inSequence = b.sub(number, get(unitStart, unit.sequence));
  unit.head = b.rem(inSequence, lists);
  Value begin = b.read(qStart, b.wide(unit.sequence));
  Value end = b.read(qStart, b.wide(b.add(unit.sequence, b.i32(1))));
  Value tile = b.mul(b.div(inSequence, lists), dim(PlanDim::Rows));
  unit.packedBegin = b.add(b.mul(begin, groupSize), tile);
  unit.packedCount = b.min(dim(PlanDim::Rows), b.sub(b.mul(end, groupSize), unit.packedBegin));
  unit.rowBegin = b.div(unit.packedBegin, group);
  Value lastRow = b.div(b.sub(b.add(unit.packedBegin, unit.packedCount), b.i32(1)), group);
  unit.rowEnd = b.add(lastRow, b.i32(1));
  findSeen(unit, end);
  return unit;
}

PlanUnit PlanKernel::rowsOf(Value list) {
  PlanUnit rows;
  Value qStart = b.buffer("q_start", b.getI32Type()), sequence = b.div(list, lists);
  rows.sequence = sequence;
  rows.head = b.rem(list, lists);
  rows.rowBegin = b.read(qStart, b.wide(sequence));
  rows.rowEnd = b.read(qStart, b.wide(b.add(sequence, b.i32(1))));
  findSeen(rows, rows.rowEnd);
  return rows;
}

/// Finds the positions of a unit's rows and the tokens that they see. The rows are the last tokens of their
/// sequence, which ends at `end`.
void PlanKernel::findSeen(PlanUnit &unit, Value end) {
  Value last; // position of the sequence's last token
  for (unsigned o = 0; o < chain.updates.size(); ++o) {
    Value here = b.add(pos0Of(o, unit.sequence), lengthsOf(o, unit.sequence).second);
    last = last ? b.max(last, here) : here;
  }
  Value base = b.sub(last, end);
  unit.firstPosition = b.add(base, unit.rowBegin);
  unit.lastPosition = b.add(base, b.sub(unit.rowEnd, b.i32(1)));
  unit.tiles = b.i32(0);
  for (unsigned o = 0; o < chain.updates.size(); ++o)
    addSeen(o, unit);
}

void PlanKernel::addSeen(unsigned operand, PlanUnit &unit) {
  Value pos0 = pos0Of(operand, unit.sequence), length = lengthOf(operand, unit.sequence, unit.head);
  VisibilityAttr visibility = chain.updates[operand].getVisibility();
  auto tokens = [&](Value low, Value high) {
    Terms terms{b, low, high, chain.firstEnd(operand)};
    return tokensOf(b, terms.of(visibility), pos0, length);
  };
  SmallVector<Bounds> possible = tokens(unit.firstPosition, unit.lastPosition);
  SmallVector<Bounds> certain = tokens(unit.lastPosition, unit.firstPosition);
  for (Bounds &range : possible)
    range.begin = b.sub(range.begin, remainder(range.begin, PlanDim::KeyAlign));
  if (possible.size() == 2) { // the tokens in front of the latter may be those of the former
    Value joined =
        both(b.less(possible[1].begin, possible[1].end), b.less(possible[1].begin, possible[0].end));
    possible[0].end = b.select(joined, possible[1].end, possible[0].end);
    possible[1] = {zeroUnless(negate(joined), possible[1].begin),
                   zeroUnless(negate(joined), possible[1].end)};
  }
  for (Bounds range : possible) {
    Bounds full{range.begin, range.begin};
    for (Bounds sure : certain) {
      Bounds common{b.max(range.begin, sure.begin), b.min(range.end, sure.end)};
      Value larger = isAbove(b.sub(common.end, common.begin), b.sub(full.end, full.begin));
      full = {b.select(larger, common.begin, full.begin), b.select(larger, common.end, full.end)};
    }
    Value tiles = ceilQuotient(b.sub(range.end, range.begin), PlanDim::Keys);
    unit.seen.push_back({operand, range.begin, range.end, full.begin, full.end, pos0, tiles});
    unit.tiles = b.add(unit.tiles, tiles);
  }
}

/// Rows stand at the end of their sequence. Each unit writes those that begin in it.
void PlanKernel::writePositions() {
  Value positions = b.buffer("q_pos", b.getI32Type());
  spread(units, [&](Value number) {
    PlanUnit unit = unitOf(number);
    auto loop = scf::ForOp::create(b, unit.rowBegin, unit.rowEnd, b.i32(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value row = loop.getInductionVar();
    Value begins = both(atMost(unit.packedBegin, b.mul(row, b.i32(group))), equal(unit.head, b.i32(0)));
    b.doIf(begins, [&] {
      tile::WriteOp::create(b, b.add(unit.firstPosition, b.sub(row, unit.rowBegin)), positions, b.wide(row));
    });
  });
}

/// As ScoreTasks.cpp lists them: of all tokens that the tables have room for, whoever sees what. Where inputs
/// have a fault, none has a token.
void PlanKernel::writeScoreTasks() {
  constexpr int64_t most = ::attn::rt::scoreTaskTokens;
  Value zero = b.i32(0), one = b.i32(1), before = zero, isPlanned = both(isRight, isHeld);
  Value qStart = b.buffer("q_start", b.getI32Type());
  for (unsigned o = 0; o < chain.updates.size(); ++o) {
    Value room = roomOf(o), ofList = b.div(b.add(room, b.i32(most - 1)), most);
    Value ofInstance = b.mul(ofList, b.i32(heads)), all = b.mul(ofInstance, sequences);
    spread(all, [&](Value i) {
      ScoreTask task;
      Value rest = remainder(i, ofInstance);
      task.operand = b.i32(o);
      task.instance = quotient(i, ofInstance);
      task.ordinal = quotient(rest, ofList);
      task.kvBegin = b.mul(remainder(rest, ofList), b.i32(most));
      task.kvEnd = b.select(isPlanned, b.min(b.add(task.kvBegin, b.i32(most)), room), task.kvBegin);
      task.length = zeroUnless(isPlanned, lengthOf(o, task.instance, task.ordinal));
      Value begin = b.read(qStart, b.wide(task.instance));
      Value end = b.read(qStart, b.wide(b.add(task.instance, one)));
      task.row = b.select(b.less(begin, end), begin, b.i32(-1));
      auto fields = ::attn::rt::fieldsOf(task);
      writeWords(PlanArray::ScoreTasks, b.mul(b.add(before, i), b.i32(ScoreTask::words)),
                 SmallVector<Value>(fields.begin(), fields.end()));
    });
    before = b.add(before, all);
  }
}
