//===- HeadGates.h - Which KV heads need the whole context ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// DuoAttention (arXiv 2410.10819) finds a gate per layer and KV head: near 1 for
// heads that retrieve from anywhere, near 0 for those that look at the sink and at
// recent tokens only. The published files are a line per layer and a column per
// KV head.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_WORKLOAD_HEADGATES_H
#define ATTN_RT_WORKLOAD_HEADGATES_H

#include "attn_rt/support/Status.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace attn::rt {

struct HeadGates {
  int32_t layers = 0, kvHeads = 0;
  std::vector<double> gates; ///< [layers][kvHeads]

  double at(int32_t layer, int32_t head) const {
    return gates[static_cast<size_t>(layer) * static_cast<size_t>(kvHeads) + static_cast<size_t>(head)];
  }
};

/// Numbers separated by tabs or spaces. Where layers or kvHeads are given (not 0), the file must have as
/// many. Errors name the line, which is the layer counted from 1, and the head counted from 0.
Result<HeadGates> readHeadGates(std::string_view text, std::string_view name, int32_t layers = 0,
                                int32_t kvHeads = 0);

/// The sizes for which the gates were found, from the file beside them.
struct StreamingSizes {
  int32_t sink = 0, recent = 0;
};
Result<StreamingSizes> readStreamingSizes(std::string_view text, std::string_view name);

/// Classes of a model's heads: 0 retrieval, 1 streaming, as the tensor `classes` of each layer has them.
using LayerClasses = std::vector<std::vector<int32_t>>;

/// Gates retrieve from the threshold on. They count clipped to 0 to 1, as DuoAttention selects: what training
/// left a little below 0 is 0.
LayerClasses classesAtLeast(const HeadGates &gates, double threshold);
/// This share of all heads retrieves (rounded to the nearest number of heads): those with the largest gates,
/// of equal ones those of earlier layers, then of lower heads.
LayerClasses classesByShare(const HeadGates &gates, double retrievalShare);

/// Gates like the published ones, about `retrievalShare` of them above 0.5; the same for a seed everywhere.
HeadGates generateHeadGates(uint64_t seed, int32_t layers, int32_t kvHeads, double retrievalShare);

} // namespace attn::rt

#endif
