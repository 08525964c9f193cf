//===- Check.cpp - How far a result is from the reference -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Check.h"

#include <cmath>
#include <cstdio>
#include <limits>

using namespace attn;
using namespace attn::run;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::string place(int64_t index, int64_t heads, double got, double expected) {
  char text[160];
  std::snprintf(text, sizeof text, "row %lld, head %lld: expected %.9g, got %.9g",
                static_cast<long long>(index / heads), static_cast<long long>(index % heads), expected, got);
  return text;
}

/// |got - expected| where both are numbers; equal infinities differ by 0; NaN never passes.
double difference(double got, double expected) {
  if (std::isnan(got) || std::isnan(expected))
    return infinity;
  return got == expected ? 0 : std::abs(got - expected);
}

} // namespace

rt::Result<Comparison> run::compare(const rt::Tensor &o, const rt::Tensor *lse, const rt::Tensor &referenceO,
                                    const rt::Tensor *referenceLse) {
  if (o.shape != referenceO.shape || o.shape.size() != 3 || !lse != !referenceLse ||
      (lse && lse->shape != referenceLse->shape))
    return rt::Error{rt::ErrorKind::Check, "the reference's results have another shape than the kernel's: " +
                                               rt::shapeText(referenceO.shape) + " and " +
                                               rt::shapeText(o.shape)};
  Comparison result;
  int64_t heads = o.shape[1], dim = o.shape[2];
  for (int64_t i = 0; i < o.shape[0] * heads; ++i) {
    double error = 0, norm = 0;
    int64_t worstFeature = i * dim;
    double worstDifference = -1;
    for (int64_t f = i * dim; f < (i + 1) * dim; ++f) {
      double d = difference(o.get(f), referenceO.get(f));
      error += d * d;
      if (std::isfinite(referenceO.get(f)))
        norm += referenceO.get(f) * referenceO.get(f);
      if (d > worstDifference)
        worstDifference = d, worstFeature = f;
    }
    double relative = error == 0 ? 0 : norm == 0 ? infinity : std::sqrt(error / norm);
    if (relative > result.relErr) {
      result.relErr = relative;
      result.worst = place(i, heads, o.get(worstFeature), referenceO.get(worstFeature)) + " at feature " +
                     std::to_string(worstFeature - i * dim);
    }
  }
  if (!lse)
    return result;
  result.maxErrLse = 0;
  for (int64_t i = 0; i < lse->elements(); ++i) {
    double d = difference(lse->get(i), referenceLse->get(i));
    if (d > *result.maxErrLse) {
      result.maxErrLse = d;
      result.worstLse = place(i, heads, lse->get(i), referenceLse->get(i));
    }
  }
  return result;
}
