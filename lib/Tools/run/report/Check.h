//===- Check.h - Comparison with the reference ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_REPORT_CHECK_H
#define ATTN_TOOLS_RUN_REPORT_CHECK_H

#include "attn_rt/tensor/Tensor.h"

#include <optional>
#include <string>

namespace attn::run {

struct Comparison {
  double relErr = 0; ///< maximum over (row, head) of |O - ref| / |ref|; +inf if there is no measure
  std::optional<double> maxErrLse; ///< if the function returns an LSE
  std::string worst;               ///< location and values of relErr
  std::string worstLse;
};

/// Compares `o [rows, heads, dim]` and `lse [rows, heads]` (null: not returned) with the reference's. If the
/// reference's vector is zero the result must be exactly zero; equal infinities differ by 0; a NaN on either
/// side counts as an infinite error. Outputs in e4m3 that are subnormal have an absolute error: a vector
/// counts as if its features were 2^-6 at least.
rt::Result<Comparison> compare(const rt::Tensor &o, const rt::Tensor *lse, const rt::Tensor &referenceO,
                               const rt::Tensor *referenceLse);

/// Describes a row and head whose output scale differs from the reference's by more than `tolerance`,
/// relative to the latter; empty if there is none.
std::string compareScales(const rt::Tensor &scales, const rt::Tensor &reference, double tolerance);
/// Describes a token whose significance differs by more than 1e-2 from the reference's, relative to the
/// larger of it and 1e-4 of a row; empty if there is none.
std::string compareSignificance(const rt::Tensor &significance, const rt::Tensor &reference);
/// Compares a gradient `[..., heads, dim]` with the reference's, as `compare` does. A vector may be small
/// because its terms cancel, so errors are relative to the larger of its own norm and the mean of all norms.
/// `moved`: the reference's gradient after an error of the inputs, or null. The distance between the two, of
/// a vector or of the mean, does not count as an error.
rt::Result<Comparison> compareGradient(const rt::Tensor &gradient, const rt::Tensor &reference,
                                       const rt::Tensor *moved = nullptr);

} // namespace attn::run

#endif
