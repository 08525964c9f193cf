//===- Masks.cpp - Which scores of a tile count ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expansion.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// What decides visibility inside one tile. Every visibility is made of intervals of positions whose ends are
/// a constant, or a constant from the row's position. Measured from this lane's first column, an end is one
/// number per row (or one for all rows), and a column of the tile a compile-time constant: one compare per
/// element and end. Upper ends are no further than the tokens that exist, so that these need no compare of
/// their own.
struct FragmentExpansion::TileBounds {
  Value offsets;           ///< columns: constants
  Value last;              ///< per row: the last column that exists and is not later
  SmallVector<Value> ends; ///< for each sized term in order: per row (window, recent) or one number (sink)
  Value exists;            ///< end of the tokens that exist
};

void FragmentExpansion::addEnds(VisibilityAttr visibility, int64_t &end, Value origin, TileBounds &bounds) {
  if (visibility.getKind() == VisibilityKind::Sink) {
    bounds.ends.push_back(b.min(b.sub(b.end(end++), origin), bounds.exists));
  } else if (VisibilityAttr::isSized(visibility.getKind())) {
    // Half the range of i32 is further than any context reaches; clamping keeps the difference in range.
    Value size = b.min(b.end(end++), b.i32(1 << 30));
    bounds.ends.push_back(
        b.map(rowsOf(b.getI32Type()), ValueRange{queryPosition}, [&](ValueRange v) -> Value {
          return b.sub(b.max(b.sub(v[0], origin), b.i32(-(1 << 30))), size);
        }));
  }
  for (VisibilityAttr part : visibility.getOperands())
    addEnds(part, end, origin, bounds);
}

Value FragmentExpansion::visible(VisibilityAttr visibility, Value column, Value last, Value exists,
                                 ArrayRef<Value> &ends) {
  auto notLater = [&] { return b.compare(arith::CmpIPredicate::sle, column, last); };
  auto next = [&] {
    Value end = ends.front();
    ends = ends.drop_front();
    return end;
  };
  switch (visibility.getKind()) {
  case VisibilityKind::All:
    return b.less(column, exists);
  case VisibilityKind::Causal:
    return notLater();
  case VisibilityKind::Window:
  case VisibilityKind::Recent:
    return b.createOrFold<arith::AndIOp>(b.compare(arith::CmpIPredicate::sgt, column, next()), notLater());
  case VisibilityKind::Sink:
    return b.less(column, next());
  case VisibilityKind::Or:
  case VisibilityKind::And: {
    Value result;
    for (VisibilityAttr part : visibility.getOperands()) {
      Value seen = visible(part, column, last, exists, ends);
      if (!result)
        result = seen;
      else if (visibility.getKind() == VisibilityKind::Or)
        result = b.createOrFold<arith::OrIOp>(result, seen);
      else
        result = b.createOrFold<arith::AndIOp>(result, seen);
    }
    return result;
  }
  }
  llvm_unreachable("unknown visibility");
}

Value FragmentExpansion::maskFor(unsigned operand, unsigned headClass, Value scores, const Segment &segment,
                                 Value firstKey, Value partialTile) {
  // What the operand shows and, where heads have classes, what this one sees of it.
  VisibilityAttr shown = chain.updates[operand].getVisibility(), seen = chain.classVisibility(headClass);
  int64_t shownEnd = chain.firstEnd(operand), seenEnd = chain.firstEndOfClass(headClass);
  Type i32 = b.getI32Type();
  auto lane = LaneCoordinatesOp::create(b, i32, b.fragment({Axis::Key}, {keys}, i32));
  Value firstToken = b.add(firstKey, lane.getFirst()), origin = b.add(segment.pos0, firstToken);
  TileBounds bounds;
  bounds.offsets = lane.getOffsets();
  bounds.exists = b.sub(segment.kvEnd, firstToken);
  Value lastToken = b.sub(bounds.exists, b.i32(1));
  bounds.last = b.map(rowsOf(i32), ValueRange{queryPosition},
                      [&](ValueRange v) { return b.min(b.sub(v[0], origin), lastToken); });
  addEnds(shown, shownEnd, origin, bounds);
  if (seen)
    addEnds(seen, seenEnd, origin, bounds);
  // Of two, one that says only that tokens exist is not needed: both say that.
  if (seen && shown.getKind() == VisibilityKind::All)
    std::swap(shown, seen);
  if (seen && seen.getKind() == VisibilityKind::All)
    seen = VisibilityAttr();

  SmallVector<Value> inputs{bounds.offsets, bounds.last};
  for (Value value : bounds.ends)
    if (isa<FragmentType>(value.getType()))
      inputs.push_back(value);
  auto mask = MaskOp::create(b, scoresType(), scores, inputs, partialTile);
  b.fill(mask.getVisible(), SmallVector<Type>(inputs.size(), i32), [&](ValueRange v) -> Value {
    SmallVector<Value> ends(bounds.ends);
    size_t next = 2;
    for (Value &value : ends)
      if (isa<FragmentType>(value.getType()))
        value = v[next++];
    ArrayRef<Value> left = ends;
    Value sees = visible(shown, v[0], v[1], bounds.exists, left);
    return seen ? b.createOrFold<arith::AndIOp>(sees, visible(seen, v[0], v[1], bounds.exists, left)) : sees;
  });
  return mask;
}

/// Bits say which row sees which token of a list: a word for 32 tokens and a row of the tile.
Value FragmentExpansion::maskForList(Value scores, const Segment &segment, Value firstKey) {
  constexpr int64_t bits = 32;
  Type i32 = b.getI32Type();
  auto branch = scf::IfOp::create(b, scoresType(), isList(segment), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, scores);
  b.setInsertionPointToStart(branch.thenBlock());
  auto lane = LaneCoordinatesOp::create(b, i32, b.fragment({Axis::Key}, {keys}, i32));
  Value shift = b.add(lane.getFirst(), b.rem(firstKey, bits));
  Value rowsOfTile = b.i32(llvm::divideCeil(schedule.getRows(), chain.group()));
  Value firstRow = b.div(packedBegin, chain.group()), firstWord = b.div(firstKey, bits);
  SmallVector<Value> inputs{lane.getOffsets()};
  for (int64_t word = 0; word * bits < keys; ++word) {
    auto words = LoadVectorOp::create(b, rowsOf(i32), planArray(b, PlanArray::Bits));
    b.fill(words.getIndex(), {i32}, [&](ValueRange line) {
      Value row = b.sub(unpack(packedRow(line[0])).first, firstRow);
      return b.add(b.mul(b.add(firstWord, b.i32(word)), rowsOfTile), row);
    });
    inputs.push_back(b.map(rowsOf(i32), ValueRange{words},
                           [&](ValueRange v) -> Value { return arith::ShRUIOp::create(b, v[0], shift); }));
  }
  auto mask = MaskOp::create(b, scoresType(), scores, inputs, b.createOrFold<arith::ConstantIntOp>(1, 1));
  b.fill(mask.getVisible(), SmallVector<Type>(inputs.size(), i32), [&](ValueRange v) -> Value {
    Value word = v[1]; // offsets are constants: all of this folds
    for (int64_t i = 1; i + 1 < static_cast<int64_t>(v.size()); ++i)
      word = b.select(b.less(v[0], b.i32(i * bits)), word, v[i + 1]);
    Value bit = b.createOrFold<arith::ShRUIOp>(word, b.rem(v[0], bits));
    return b.compare(arith::CmpIPredicate::ne, b.createOrFold<arith::AndIOp>(bit, b.i32(1)), b.i32(0));
  });
  scf::YieldOp::create(b, ValueRange{mask});
  return branch.getResult(0);
}

Value FragmentExpansion::finishScores(Value scores, std::optional<unsigned> operand, const Segment &segment,
                                      Value firstKey) {
  return maskScores(applyScoreRegion(scores, segment, firstKey), operand, segment, firstKey);
}

Value FragmentExpansion::maskScores(Value scores, std::optional<unsigned> operand, const Segment &segment,
                                    Value firstKey) {
  // The plan knows which tokens every row of the task sees; a tile within them needs no mask.
  Value lastKey = b.add(firstKey, b.i32(keys));
  Value partialTile =
      b.createOrFold<arith::OrIOp>(b.less(firstKey, segment.fullBegin), b.less(segment.fullEnd, lastKey));
  if (mayList()) {
    scores = maskForList(scores, segment, firstKey);
    partialTile = b.createOrFold<arith::AndIOp>(
        partialTile, b.compare(arith::CmpIPredicate::sge, segment.instance, b.i32(0)));
  }
  return maskTile(scores, operand, segment, firstKey, partialTile);
}

Value FragmentExpansion::maskTile(Value scores, std::optional<unsigned> operand, const Segment &segment,
                                  Value firstKey, Value partialTile) {
  unsigned first = operand.value_or(0), last = operand ? *operand + 1 : chain.updates.size();
  unsigned masks = 0;
  for (unsigned i = first; i < last; ++i)
    masks += chain.updates[i].getClassOfRegion() ? 1 : chain.classCount();
  // Masks that compare the same columns with the same ends share these compares, and LLVM makes them where
  // the masks' branches meet. Several masks therefore lie in a branch of their own: whole tiles compare
  // nothing.
  scf::IfOp branch;
  OpBuilder::InsertionGuard guard(b);
  if (masks > 1) {
    branch = scf::IfOp::create(b, scoresType(), partialTile, /*withElseRegion=*/true);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, scores);
    b.setInsertionPointToStart(branch.thenBlock());
    partialTile = b.createOrFold<arith::ConstantIntOp>(1, 1);
  }
  // Of the masks for all operands and classes one applies.
  auto only = [&](Value condition, unsigned count, Value value, unsigned i) -> Value {
    if (count == 1)
      return condition;
    return b.createOrFold<arith::AndIOp>(condition, b.compare(arith::CmpIPredicate::eq, value, b.i32(i)));
  };
  for (unsigned i = first; i < last; ++i) {
    Value ofOperand = only(partialTile, last - first, segment.operand, i);
    if (std::optional<unsigned> c = chain.updates[i].getClassOfRegion()) {
      scores = maskFor(i, *c, scores, segment, firstKey, ofOperand);
      continue;
    }
    for (unsigned c = 0; c < chain.classCount(); ++c)
      scores = maskFor(i, c, scores, segment, firstKey, only(ofOperand, chain.classCount(), headClass, c));
  }
  if (!branch)
    return scores;
  scf::YieldOp::create(b, scores);
  return branch.getResult(0);
}
