//===- TaskView.cpp - What a kernel is, and which rows it works on ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TaskView.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

Segment TaskView::segmentOf(TokensOp tokens) {
  Segment segment;
  segment.instance = tokens.getInstance();
  segment.kvEnd = tokens.getEnd();
  segment.fullBegin = tokens.getFullBegin(), segment.fullEnd = tokens.getFullEnd();
  segment.pos0 = tokens.getPos0();
  segment.firstOrdinal = tokens.getFirstOrdinal();
  return segment;
}

void TaskView::setRows(RowsOp queryRows) {
  packedBegin = queryRows.getBegin(), packedCount = queryRows.getCount();
  kvHead = queryRows.getHead(), ordinal = queryRows.getOrdinal(), warpRow = queryRows.getFirst();
  groupRow = queryRows.getGroup(), headClass = queryRows.getHeadClass(), sinkCounts = queryRows.getSink();
  scoresStay = queryRows.getScores();
}

Value TaskView::numberSlot(Value packed, Type type) {
  Value head = kvHead;
  if (walksAllRows()) {
    Value row = b.div(packed, chain.queryHeads()), queryHead = b.rem(packed, chain.queryHeads());
    head = b.div(queryHead, chain.group());
    packed = b.add(b.mul(row, b.i32(chain.group())), b.rem(queryHead, chain.group()));
  }
  Value slot = b.add(b.mul(head, b.mul(b.dimension("rows"), b.i32(chain.group()))), packed);
  return type.isInteger(64) ? b.wide(slot) : slot;
}

bool TaskView::tokensFirst() {
  if (chain.significance)
    return storeOf(chain.updates.front().getKv().getType()).keys.format.isPlain();
  return schedule.hasFewRows() || chain.holdsTokens();
}

bool TaskView::readsNumbersEarly() {
  VisibilityKind sees = chain.updates.front().getVisibility().getKind();
  return rows <= ScheduleAttr::groupRows && rawScores() &&
         (sees == VisibilityKind::All || sees == VisibilityKind::Causal);
}

bool TaskView::mayList() {
  return !readsKeyPosition() && chain.paddedKeyDim() + chain.paddedValueDim() <= 320 &&
         llvm::any_of(chain.updates,
                      [](UpdateOp update) { return storeOf(update.getKv().getType()).hasSingleTokens(); });
}
