//===- EarlyNumbers.cpp - When numbers of rows are read -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EarlyNumbers.h"

#include "Log2.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

bool mlir::attn::readsNumbersEarly(UpdateOp update, FormAttr form) {
  VisibilityKind sees = update.getVisibility().getKind();
  return form.getRows() <= ScheduleAttr::groupRows && update.getScore().empty() &&
         (sees == VisibilityKind::All || sees == VisibilityKind::Causal);
}

bool mlir::attn::joinsNumbers(UpdateOp update, FormAttr form, bool addsRows) {
  return update.getScore().empty() && (addsRows || readsNumbersEarly(update, form));
}

Value mlir::attn::lseOfRows(KernelBuilder &b, RowsPart &rows, Value lse) {
  auto type = cast<FragmentType>(lse.getType());
  Value count = rows.left(), lines = CoordinatesOp::create(b, type.withElement(b.getI32Type()), b.i32(0));
  return b.map(type, ValueRange{lse, lines},
               [&](ValueRange v) { return b.select(b.less(v[1], count), v[0], b.f32(infinity)); });
}
