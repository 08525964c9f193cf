//===- HeadClasses.cpp - KV heads in the order of their classes -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Batch.h"

#include <algorithm>

namespace attn::rt {

int32_t OperandBatch::longest(size_t instance) const {
  if (heads == 0)
    return 0;
  const auto first = lengths.begin() + static_cast<int64_t>(listOf(instance, 0));
  return *std::max_element(first, first + heads);
}

std::vector<OrdinalRange> ordinalRanges(const Manifest &manifest, const Batch &batch) {
  const std::vector<int32_t> counts = classHeads(manifest, batch), heads = ordinalHeads(manifest, batch);
  std::vector<OrdinalRange> ranges;
  int32_t begin = 0; // of the class
  for (size_t c = 0; c < counts.size(); begin += counts[c++]) {
    bool ragged = false;
    for (size_t o = 0; o < manifest.operands.size(); ++o)
      ragged |= manifest.isSeenBy(o, c) && manifest.argumentOf(manifest.operands[o]).ragged;
    const int32_t end = begin + counts[c], step = ragged ? 1 : counts[c];
    for (int32_t ordinal = begin; ordinal < end; ordinal += step)
      ranges.push_back({static_cast<int32_t>(c), ordinal, ordinal + step, begin,
                        heads.empty() ? ordinal : heads[static_cast<size_t>(ordinal)]});
  }
  return ranges;
}

std::vector<int32_t> classHeads(const Manifest &manifest, const Batch &batch) {
  if (manifest.headClasses.empty())
    return {manifest.kvHeads};
  std::vector<int32_t> heads(manifest.headClasses.size());
  for (int32_t headClass : batch.classes)
    ++heads[static_cast<size_t>(headClass)];
  return heads;
}

std::string classHeadsText(const Manifest &manifest, std::span<const int32_t> heads) {
  std::string text;
  for (size_t c = 0; c < manifest.headClasses.size(); ++c)
    text += (text.empty() ? "" : ", ") + std::to_string(heads[c]) + " " + manifest.headClasses[c].name;
  return text;
}

std::vector<int32_t> ordinalHeads(const Manifest &manifest, const Batch &batch) {
  std::vector<int32_t> heads;
  for (int32_t c = 0; c < static_cast<int32_t>(manifest.headClasses.size()); ++c)
    for (size_t head = 0; head < batch.classes.size(); ++head)
      if (batch.classes[head] == c)
        heads.push_back(static_cast<int32_t>(head));
  return heads;
}

} // namespace attn::rt
