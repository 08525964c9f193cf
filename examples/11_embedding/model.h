//===- model.h - A stand-in for a model -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A token, its position and the layer determine the numbers of queries, keys and
// values, so that any row of any step can be checked against its definition.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_EXAMPLES_MODEL_H
#define ATTN_EXAMPLES_MODEL_H

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace model {

inline constexpr int layers = 2, queryHeads = 8, kvHeads = 2, dim = 64, pageTokens = 16;
inline constexpr int queryRow = queryHeads * dim, kvRow = kvHeads * dim; // numbers per token
inline constexpr float scale = 0.125f;

enum class What : uint32_t { Query, Key, Value };

using BFloat16 = uint16_t;
inline float widen(BFloat16 number) { return std::bit_cast<float>(static_cast<uint32_t>(number) << 16); }

/// One number, in [-1, 1).
inline BFloat16 number(What what, uint32_t token, size_t position, int layer, int index) {
  uint32_t bits = token * 2654435761u ^ static_cast<uint32_t>(position) * 40503u ^
                  static_cast<uint32_t>(layer * 1021 + index) * 2246822519u ^
                  static_cast<uint32_t>(what) * 97u;
  bits = (bits ^ bits >> 15) * 2246822519u;
  bits = (bits ^ bits >> 13) * 3266489917u;
  const float value = static_cast<float>(static_cast<int32_t>(bits ^ bits >> 16)) / 2147483648.0f;
  return static_cast<BFloat16>(std::bit_cast<uint32_t>(value) >> 16);
}

/// The relative error of a row of attention, over all heads: `row` is a kernel's result for `position`.
inline double errorOf(const BFloat16 *row, const std::vector<uint32_t> &tokens, size_t position, int layer) {
  double difference = 0, norm = 0;
  for (int head = 0; head < queryHeads; ++head) {
    const int kvHead = head / (queryHeads / kvHeads);
    std::vector<double> sum(dim);
    double weights = 0;
    for (size_t t = 0; t <= position; ++t) {
      double score = 0;
      for (int d = 0; d < dim; ++d)
        score += widen(number(What::Query, tokens[position], position, layer, head * dim + d)) *
                 widen(number(What::Key, tokens[t], t, layer, kvHead * dim + d));
      const double weight = std::exp(score * scale);
      weights += weight;
      for (int d = 0; d < dim; ++d)
        sum[static_cast<size_t>(d)] +=
            weight * widen(number(What::Value, tokens[t], t, layer, kvHead * dim + d));
    }
    for (int d = 0; d < dim; ++d) {
      const double exact = sum[static_cast<size_t>(d)] / weights, error = widen(row[head * dim + d]) - exact;
      difference += error * error;
      norm += exact * exact;
    }
  }
  return std::sqrt(difference / norm);
}

} // namespace model

#endif
