//===- Chips.cpp - The GPUs attn emits code for ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/support/Chips.h"

#include <algorithm>

namespace attn::rt {

static constexpr int64_t kib = 1024;
static constexpr Chip chips[] = {
    {"sm_80", 80, 70, 163 * kib, 164 * kib},
    {"sm_86", 86, 71, 99 * kib, 100 * kib},
    {"sm_89", 89, 78, 99 * kib, 100 * kib}, // it converts e4m3 from PTX 8.1 on
    {"sm_90a", 90, 80, 227 * kib, 228 * kib, /*hasWgmma=*/true, /*convertsE4M3=*/true,
     /*overlapsLaunches=*/true},
    {"sm_100a", 100, 86, 227 * kib, 228 * kib, false, true, true},
    {"sm_120a", 120, 87, 99 * kib, 100 * kib, false, true, true},
};

std::span<const Chip> allChips() { return chips; }

const Chip *findChip(std::string_view name) {
  const auto *chip = std::ranges::find(chips, name, &Chip::name);
  return chip == std::end(chips) ? nullptr : chip;
}

std::string listChips() {
  std::string text;
  for (const Chip &chip : chips)
    text += (text.empty() ? "" : ", ") + std::string(chip.name);
  return text;
}

std::string_view targetOfGpu(int computeCapability) {
  std::string_view found = chips[0].name;
  for (const Chip &chip : chips)
    if (chip.computeCapability == computeCapability ||
        (chip.computeCapability < computeCapability && !chip.name.ends_with('a')))
      found = chip.name;
  return found;
}

} // namespace attn::rt
