//===- EarlyNumbers.h - When numbers of rows are read -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_EARLYNUMBERS_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_EARLYNUMBERS_H

#include "Parts.h"

namespace mlir::attn {

/// Whether numbers of rows that are walked are read while scores are made, as behind them nothing hides how
/// long reading takes: lanes cannot hold the numbers of a long tile, nor those of a short one beside the
/// ends of windows or the values of a region.
bool readsNumbersEarly(UpdateOp update, FormAttr form);
/// Whether numbers of rows come behind one barrier. Where they are read late, ptxas would keep a place too
/// many meanwhile, but for fused kernels, which add to rows (heads of 96 took 2 % longer, and beside a score
/// region spilled).
bool joinsNumbers(UpdateOp update, FormAttr form, bool addsRows);

} // namespace mlir::attn

#endif
