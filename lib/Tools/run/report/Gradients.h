//===- Gradients.h - Gradients against the reference ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_REPORT_GRADIENTS_H
#define ATTN_TOOLS_RUN_REPORT_GRADIENTS_H

#include "Check.h"

#include "attn_rt/artifact/Artifact.h"

namespace attn::run {

struct GradientComparison {
  Comparison worst;    ///< worst of the gradients of queries, keys and values
  std::string failure; ///< what is past its tolerance; empty: nothing
};

/// Compares results of a backward pass with the reference's gradients. Sums of rows and heads for tables are
/// added up here, and the whole table is compared. `moved`: the reference's gradients after an error of the
/// inputs (compareGradient), or null.
rt::Result<GradientComparison> compareGradients(const rt::Manifest &manifest, const rt::TensorMap &outputs,
                                                const rt::TensorMap &reference,
                                                const rt::TensorMap *moved = nullptr);

} // namespace attn::run

#endif
