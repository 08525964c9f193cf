//===- ScalarKernels.h - The plan's meaning, in plain C++ -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attend and merge kernels that walk a plan as the generated ones do, one lane
// doing all the work of a block. With them planner, session and host device are
// tested together without a compiler; and they say what the plan's records mean.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TEST_RUNTIME_SESSION_SCALARKERNELS_H
#define ATTN_TEST_RUNTIME_SESSION_SCALARKERNELS_H

#include "Samples.h"
#include "attn_rt/plan/Plan.h"
#include "attn_rt/session/Session.h"

namespace attn::rt::test {

/// The sample manifest with kernels whose parameters are those that the scalar kernels expect: operand 0
/// causal and paged, f32 throughout.
Manifest scalarManifest(const SampleOptions &options);
/// One kernel for each of the manifest's.
std::vector<host::HostKernel> scalarKernels(const Manifest &manifest);

/// Attention in double, straight from its definition.
TensorMap attendReference(const Manifest &manifest, const Batch &batch, const TensorMap &tensors);
/// "o" and "lse", within what f32 rounds.
void expectClose(const TensorMap &got, const TensorMap &expected);

} // namespace attn::rt::test

#endif
