//===- EarlyNumbers.cpp - When numbers of rows are read -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EarlyNumbers.h"

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
