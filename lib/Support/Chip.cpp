//===- Chip.cpp - The GPUs attn emits code for ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Support/Chip.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir::attn;

static constexpr Chip chips[] = {
    {"sm_80", 70, 163 * 1024, 164 * 1024, false, false, false},
    {"sm_89", 78, 99 * 1024, 100 * 1024, false, false, false}, // it has from PTX 8.1 on
    {"sm_90a", 80, 227 * 1024, 228 * 1024, true, true, true},
    {"sm_100a", 86, 227 * 1024, 228 * 1024, false, true, true},
    {"sm_120a", 87, 99 * 1024, 100 * 1024, false, true, true},
};

const Chip *mlir::attn::findChip(llvm::StringRef name) {
  const Chip *chip = llvm::find_if(chips, [&](const Chip &c) { return c.name == name; });
  return chip == std::end(chips) ? nullptr : chip;
}

llvm::ArrayRef<Chip> mlir::attn::allChips() { return chips; }

std::string mlir::attn::listChips() {
  return llvm::join(llvm::map_range(chips, [](const Chip &c) { return c.name; }), ", ");
}
