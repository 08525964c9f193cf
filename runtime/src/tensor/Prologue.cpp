//===- Prologue.cpp - Norm and rotation of a head of a row ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Prologue.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace attn::rt {

namespace {

constexpr size_t together = 8; ///< features of a lane
constexpr size_t lanes = 32;

/// Adds up as many sums as a power of two by pairs of neighbours, or the sums of such parts.
float sumOf(std::vector<float> sums) {
  const size_t count = sums.size();
  float total = 0;
  size_t counted = 0;
  for (size_t part = 1; part <= count; part *= 2) {
    if (count & part) {
      total = counted ? total + sums[counted] : sums[0];
      counted += part;
    }
    std::vector<float> wider(count);
    for (size_t i = 0; i < count; ++i)
      wider[i] = sums[i] + sums[(i + part) % count];
    sums = std::move(wider);
  }
  return total;
}

/// 1 / sqrt(x), by three steps of Newton's method.
float inverseRoot(float x) {
  constexpr float least = std::numeric_limits<float>::min();
  x = x < least ? least : x;
  auto root = std::bit_cast<float>(uint32_t{0x5f3759df} - (std::bit_cast<uint32_t>(x) >> 1));
  const float half = x * -0.5F;
  for (int step = 0; step < 3; ++step)
    root *= std::fma(half, root * root, 1.5F);
  return root;
}

} // namespace

void normalizeRow(std::span<float> row, std::span<const float> weight, float epsilon) {
  std::vector<float> sums(std::min(lanes, row.size() / together));
  for (size_t i = 0; i < weight.size(); ++i) {
    float &sum = sums[i / together % lanes];
    sum = std::fma(row[i], row[i], sum);
  }
  const float mean = sumOf(std::move(sums)) * (1.0F / static_cast<float>(weight.size()));
  const float root = inverseRoot(mean + epsilon);
  for (size_t i = 0; i < weight.size(); ++i)
    row[i] = row[i] * root * weight[i];
}

void rotateRow(std::span<float> row, std::span<const float> cos, std::span<const float> sin,
               bool interleaved) {
  const size_t angles = cos.size();
  for (size_t i = 0; i < angles; ++i) {
    float &first = row[interleaved ? 2 * i : i], &second = row[interleaved ? 2 * i + 1 : i + angles];
    const float x = first, y = second;
    first = std::fma(x, cos[i], y * -sin[i]);
    second = std::fma(y, cos[i], x * sin[i]);
  }
}

} // namespace attn::rt
