//===- Prologue.h - Norm and rotation of a head of a row --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arithmetic of kernels that normalize and rotate keys and queries, in f32 step
// by step, so that a kernel's bits can be checked. Kernels give a lane eight
// neighbouring features, and the order of sums follows from that.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_PROLOGUE_H
#define ATTN_RT_TENSOR_PROLOGUE_H

#include <span>

namespace attn::rt {

/// Computes x * r * weight with r = 1 / sqrt(mean(x^2) + epsilon) of the first features, as many as there are
/// weights. Sizes are multiples of 8. Squares are added up by eights of neighbours, fused; then the sums of
/// neighbours by powers of two. In rows of more than 256 features each 32nd eight continues one sum.
void normalizeRow(std::span<float> row, std::span<const float> weight, float epsilon);

/// Turns pairs of the first 2 * n features by n angles: features i and i + n or, interleaved, 2 * i and
/// 2 * i + 1.
void rotateRow(std::span<float> row, std::span<const float> cos, std::span<const float> sin,
               bool interleaved);

} // namespace attn::rt

#endif
