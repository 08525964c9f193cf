//===- Masks.cpp - Which masks a tile of scores takes ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expansion.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

SmallVector<Value> FragmentExpansion::endsOf(VisibilityAttr visibility, int64_t first) {
  SmallVector<int64_t> sizes;
  visibility.collectEnds(sizes);
  SmallVector<Value> ends;
  for (size_t i = 0; i < sizes.size(); ++i)
    ends.push_back(b.end(first + i));
  return ends;
}

/// Masks the tokens that the update hides and, with head classes, those that this head's class does not see.
Value FragmentExpansion::maskFor(UpdateOp update, unsigned headClass, Value scores, Value position,
                                 Value firstKey, Value partialTile) {
  VisibilityAttr shown = update.getVisibility(), seen;
  SmallVector<Value> ends = endsOf(shown, firstEndAttr.get(update).getInt());
  if (HeadClassesAttr classes = update.getHeadClassesAttr()) {
    int64_t first = firstClassEndAttr.get(update).getInt();
    for (VisibilityAttr before : classes.getVisibility().take_front(headClass)) {
      SmallVector<int64_t> sizes;
      before.collectEnds(sizes);
      first += sizes.size();
    }
    seen = classes.getVisibility()[headClass];
    llvm::append_range(ends, endsOf(seen, first));
  }
  // Both visibilities require that tokens exist, so one that says nothing else is dropped.
  if (seen && shown.getKind() == VisibilityKind::All)
    shown = seen;
  else if (seen && seen.getKind() != VisibilityKind::All)
    shown = VisibilityAttr::get(VisibilityKind::And, {shown, seen});
  TokensOp tokens = tokensOf(update.getKv());
  auto mask = [&](Value of, Value condition, bool front, bool behind) -> Value {
    return mlir::attn::MaskOp::create(b, of.getType(), of, position, firstKey, tokens.getEnd(),
                                      tokens.getPos0(), shown, ends, condition, tokens.getBegin(), front,
                                      behind);
  };
  if (!tokens.getBegin() || isConnective(shown.getKind()))
    return mask(scores, partialTile, false, false);
  // A segment's first tiles may begin before the tokens that rows see, and its last ones end behind these.
  // Few tiles have both sides to hide, and each side is a compare for every score.
  Value lastKey = b.add(firstKey, b.i32(form.getKeys()));
  Value inFront = b.less(firstKey, tokens.getBegin());
  if (::attn::rt::beginsWithRow(shown.getKind())) {
    Value none = b.compare(arith::CmpIPredicate::sge, tokens.getFullBegin(), tokens.getFullEnd());
    inFront = b.createOrFold<arith::OrIOp>(b.less(firstKey, tokens.getFullBegin()), none);
  }
  auto also = [&](Value side) { return b.createOrFold<arith::AndIOp>(partialTile, side); };
  scores = mask(scores, also(inFront), true, false);
  return mask(scores, also(b.less(tokens.getFullEnd(), lastKey)), false, true);
}

Value FragmentExpansion::maskForList(UpdateOp update, Value scores, Value firstKey) {
  RowsPart rows(b, form, update.getQuery());
  int64_t group = form.getGroup();
  auto branch = scf::IfOp::create(b, scores.getType(), isList(b, tokensOf(update.getKv())),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, scores);
  b.setInsertionPointToStart(branch.thenBlock());
  Value packed = b.add(rows.begin(), rows.first()), last = b.sub(rows.end(), b.i32(1));
  Value mask =
      ListMaskOp::create(b, scores.getType(), scores, firstKey, packed, last, b.div(rows.begin(), group),
                         planArray(b, PlanArray::Bits), group, llvm::divideCeil(schedule.getRows(), group));
  scf::YieldOp::create(b, mask);
  return branch.getResult(0);
}

Value FragmentExpansion::maskScores(const OneUpdate &update, Value scores, Value position, Value firstKey) {
  TokensOp tokens = update.tokens();
  // The plan knows which tokens every row of the task sees; a tile within them needs no mask.
  Value lastKey = b.add(firstKey, b.i32(form.getKeys()));
  Value partialTile = b.createOrFold<arith::OrIOp>(b.less(firstKey, tokens.getFullBegin()),
                                                   b.less(tokens.getFullEnd(), lastKey));
  if (form.has(FormTraits::Lists)) {
    scores = maskForList(update.front(), scores, firstKey);
    partialTile = b.createOrFold<arith::AndIOp>(
        partialTile, b.compare(arith::CmpIPredicate::sge, tokens.getInstance(), b.i32(0)));
  }
  HeadClassesAttr classes = update.front().getHeadClassesAttr();
  unsigned classCount = classes ? classes.size() : 1, masks = 0;
  for (UpdateOp each : update.all)
    masks += each.getClassOfRegion() ? 1 : classCount;
  // Masks that compare the same columns with the same ends share these compares, and LLVM hoists them to
  // where the masks' branches meet. Several masks therefore lie in a branch of their own: whole tiles compare
  // nothing.
  scf::IfOp branch;
  OpBuilder::InsertionGuard guard(b);
  if (masks > 1 || tokens.getBegin()) {
    branch = scf::IfOp::create(b, scores.getType(), partialTile, /*withElseRegion=*/true);
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(b, scores);
    b.setInsertionPointToStart(branch.thenBlock());
    partialTile = b.createOrFold<arith::ConstantIntOp>(1, 1);
  }
  // Exactly one of the masks for all operands and classes applies.
  auto only = [&](Value condition, unsigned count, Value value, unsigned i) -> Value {
    if (count == 1)
      return condition;
    return b.createOrFold<arith::AndIOp>(condition, b.compare(arith::CmpIPredicate::eq, value, b.i32(i)));
  };
  Value headClass = update.rows(b, form).op.getHeadClass();
  for (auto [i, updated] : llvm::enumerate(update.all)) {
    UpdateOp each = updated;
    Value ofOperand = only(partialTile, update.all.size(), update.which, i);
    if (std::optional<unsigned> c = each.getClassOfRegion()) {
      scores = maskFor(each, *c, scores, position, firstKey, ofOperand);
      continue;
    }
    for (unsigned c = 0; c < classCount; ++c)
      scores = maskFor(each, c, scores, position, firstKey, only(ofOperand, classCount, headClass, c));
  }
  if (!branch)
    return scores;
  scf::YieldOp::create(b, scores);
  return branch.getResult(0);
}
