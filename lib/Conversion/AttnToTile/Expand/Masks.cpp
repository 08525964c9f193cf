//===- Masks.cpp - Which masks a tile of scores takes ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expansion.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Masks what the operand hides and, where heads have classes, what this head's class does not see.
Value FragmentExpansion::maskFor(unsigned operand, unsigned headClass, Value scores, const Segment &segment,
                                 Value firstKey, Value partialTile) {
  VisibilityAttr shown = chain.updates[operand].getVisibility(), seen = chain.classVisibility(headClass);
  SmallVector<Value> ends = endsOf(shown, chain.firstEnd(operand));
  if (seen)
    llvm::append_range(ends, endsOf(seen, chain.firstEndOfClass(headClass)));
  // Of two, one that says only that tokens exist is not needed: both say that.
  if (seen && shown.getKind() == VisibilityKind::All)
    shown = seen;
  else if (seen && seen.getKind() != VisibilityKind::All)
    shown = VisibilityAttr::get(VisibilityKind::And, {shown, seen});
  return mlir::attn::MaskOp::create(b, scores.getType(), scores, queryPosition, firstKey, segment.kvEnd,
                                    segment.pos0, shown, ends, partialTile);
}

SmallVector<Value> FragmentExpansion::endsOf(VisibilityAttr visibility, int64_t first) {
  SmallVector<int64_t> sizes;
  visibility.collectEnds(sizes);
  SmallVector<Value> ends;
  for (size_t i = 0; i < sizes.size(); ++i)
    ends.push_back(b.end(first + i));
  return ends;
}

Value FragmentExpansion::maskForList(Value scores, const Segment &segment, Value firstKey) {
  auto branch = scf::IfOp::create(b, scoresType(), isList(segment), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, scores);
  b.setInsertionPointToStart(branch.thenBlock());
  Value packed = b.add(packedBegin, warpRow), last = b.sub(taskEnd(), b.i32(1));
  Value mask = ListMaskOp::create(b, scores.getType(), scores, firstKey, packed, last,
                                  b.div(packedBegin, chain.group()), planArray(b, PlanArray::Bits),
                                  chain.group(), llvm::divideCeil(schedule.getRows(), chain.group()));
  scf::YieldOp::create(b, mask);
  return branch.getResult(0);
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
