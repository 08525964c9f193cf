//===- GradientManifest.h - Manifests of gradients and significance -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TARGET_GRADIENTMANIFEST_H
#define ATTN_TARGET_GRADIENTMANIFEST_H

#include "attn/Conversion/Chain.h"

#include "attn_rt/artifact/Artifact.h"

namespace mlir::attn {

/// Adds the arguments of a backward pass after the function's own: `o`, `lse`, `do` and, if the LSE is a
/// result, `dlse`. Sets its results: `dq`, `delta`, `lse.log2` and each region's `dk` and `dv`.
void describeGradients(Chain &chain, ::attn::rt::Manifest &manifest);
/// Adds the sums of rows' gradients to the results, once: memory that kernels share and the caller provides.
void describeRowSums(::attn::rt::Manifest &manifest);
/// Adds each region's `significance` to the results, and the number of rows that count.
void describeSignificance(Chain &chain, ::attn::rt::Manifest &manifest);

} // namespace mlir::attn

#endif
