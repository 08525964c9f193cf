//===- ScalarKernels.h - The plan's meaning, in plain C++ -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attend and merge kernels that walk a plan as the generated ones do, with one lane doing
// all the work of a block. They test planner, session and host device together without a
// compiler, and define the meaning of the plan's records.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TEST_RUNTIME_SESSION_SCALARKERNELS_H
#define ATTN_TEST_RUNTIME_SESSION_SCALARKERNELS_H

#include "Samples.h"
#include "attn_rt/plan/Plan.h"
#include "attn_rt/session/Session.h"

namespace attn::rt::test {

/// The sample manifest with kernels whose parameters are those of the scalar kernels: operand 0 causal and
/// paged, all of it f32.
Manifest scalarManifest(const SampleOptions &options);
/// One kernel for each kernel of the manifest.
std::vector<host::HostKernel> scalarKernels(const Manifest &manifest);

/// Attention in double, straight from its definition.
TensorMap attendReference(const Manifest &manifest, const Batch &batch, const TensorMap &tensors);
/// Expects "o" and "lse" to agree within the rounding of f32.
void expectClose(const TensorMap &got, const TensorMap &expected);

} // namespace attn::rt::test

#endif
