//===- Chip.h - The GPUs attn emits code for --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_SUPPORT_CHIP_H
#define ATTN_SUPPORT_CHIP_H

#include "attn_rt/support/Chips.h"

namespace mlir::attn {
using ::attn::rt::allChips;
using ::attn::rt::Chip;
using ::attn::rt::findChip;
using ::attn::rt::listChips;
} // namespace mlir::attn

#endif
