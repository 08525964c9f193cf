//===- EarlyNumbers.h - When numbers of rows are read -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_EARLYNUMBERS_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_EARLYNUMBERS_H

#include "Parts.h"

namespace mlir::attn {

/// Whether the numbers of rows that are walked are read while scores are computed, because nothing after that
/// hides the latency of reading. Lanes cannot hold the numbers of a long tile, nor those of a short tile
/// beside the ends of windows or the values of a score region.
bool readsNumbersEarly(UpdateOp update, FormAttr form);
/// Whether all numbers of rows wait at one barrier. If they are read late, ptxas would keep one address too
/// many meanwhile (heads of 96 took 2 % longer, and spilled beside a score region). Fused kernels, which add
/// to rows, are the exception.
bool joinsNumbers(UpdateOp update, FormAttr form, bool addsRows);

} // namespace mlir::attn

#endif
