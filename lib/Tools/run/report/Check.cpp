//===- Check.cpp - Comparison with the reference --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Check.h"

#include <algorithm>
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

/// Returns |got - expected| for numbers; equal infinities differ by 0; NaN never passes.
double difference(double got, double expected) {
  if (std::isnan(got) || std::isnan(expected))
    return infinity;
  return got == expected ? 0 : std::abs(got - expected);
}

/// The error of vector `i` of `dim` features; its largest difference, and the expected norm.
struct VectorError {
  double error = 0, norm = 0;
  int64_t worst;
};

VectorError errorOf(const rt::Tensor &got, const rt::Tensor &expected, int64_t i, int64_t dim) {
  VectorError result{.worst = i * dim};
  double worstDifference = -1;
  for (int64_t f = i * dim; f < (i + 1) * dim; ++f) {
    const double d = difference(got.get(f), expected.get(f));
    result.error += d * d;
    if (std::isfinite(expected.get(f)))
      result.norm += expected.get(f) * expected.get(f);
    if (d > worstDifference)
      worstDifference = d, result.worst = f;
  }
  result.error = std::sqrt(result.error);
  result.norm = std::sqrt(result.norm);
  return result;
}

} // namespace

std::string run::compareScales(const rt::Tensor &scales, const rt::Tensor &reference, double tolerance) {
  if (scales.shape != reference.shape)
    return "its shape: expected " + rt::shapeText(reference.shape) + ", got " + rt::shapeText(scales.shape);
  for (int64_t i = 0; i < reference.elements(); ++i)
    if (const double got = scales.get(i), exact = reference.get(i);
        !(difference(got, exact) <= tolerance * exact))
      return place(i, reference.shape[1], got, exact);
  return {};
}

std::string run::compareSignificance(const rt::Tensor &significance, const rt::Tensor &reference) {
  constexpr double tolerance = 1e-2, least = 1e-4;
  if (significance.shape != reference.shape)
    return "its shape: expected " + rt::shapeText(reference.shape) + ", got " +
           rt::shapeText(significance.shape);
  for (int64_t i = 0; i < reference.elements(); ++i) {
    const double got = significance.get(i), exact = reference.get(i);
    if (!(difference(got, exact) <= tolerance * std::max(exact, least)))
      return "number " + std::to_string(i) + ": expected " + std::to_string(exact) + ", got " +
             std::to_string(got);
  }
  return {};
}

rt::Result<Comparison> run::compareGradient(const rt::Tensor &gradient, const rt::Tensor &reference,
                                            const rt::Tensor *moved) {
  if (gradient.shape != reference.shape || gradient.shape.size() < 3)
    return rt::Error{rt::ErrorKind::Check, "the reference's gradient has another shape than the kernel's: " +
                                               rt::shapeText(reference.shape) + " and " +
                                               rt::shapeText(gradient.shape)};
  const int64_t dim = gradient.shape.back(), heads = *(gradient.shape.end() - 2);
  const int64_t vectors = gradient.elements() / dim;
  const auto movedBy = [&](int64_t i) { return moved ? errorOf(*moved, reference, i, dim).error : 0; };
  double sum = 0, sumMoved = 0;
  for (int64_t i = 0; i < vectors; ++i) {
    sum += errorOf(gradient, reference, i, dim).norm;
    sumMoved += movedBy(i);
  }
  const double mean = vectors > 0 ? sum / static_cast<double>(vectors) : 0;
  const double meanMoved = vectors > 0 ? sumMoved / static_cast<double>(vectors) : 0;
  Comparison result;
  for (int64_t i = 0; i < vectors; ++i) {
    const VectorError vector = errorOf(gradient, reference, i, dim);
    const double against = std::max(vector.norm, mean);
    const double error = std::max(vector.error - std::max(movedBy(i), meanMoved), 0.0);
    const double relative = error == 0 ? 0 : against == 0 ? infinity : error / against;
    if (relative > result.relErr) {
      result.relErr = relative;
      result.worst = place(i, heads, gradient.get(vector.worst), reference.get(vector.worst)) +
                     " at feature " + std::to_string(vector.worst - i * dim);
    }
  }
  return result;
}

rt::Result<Comparison> run::compare(const rt::Tensor &o, const rt::Tensor *lse, const rt::Tensor &referenceO,
                                    const rt::Tensor *referenceLse) {
  if (o.shape != referenceO.shape || o.shape.size() != 3 || !lse != !referenceLse ||
      (lse && lse->shape != referenceLse->shape))
    return rt::Error{rt::ErrorKind::Check, "the reference's results have another shape than the kernel's: " +
                                               rt::shapeText(referenceO.shape) + " and " +
                                               rt::shapeText(o.shape)};
  Comparison result;
  int64_t heads = o.shape[1], dim = o.shape[2];
  const double least = o.dtype == rt::DType::F8E4M3FN ? 0x1p-6 * std::sqrt(static_cast<double>(dim)) : 0;
  for (int64_t i = 0; i < o.shape[0] * heads; ++i) {
    const VectorError vector = errorOf(o, referenceO, i, dim);
    const int64_t worstFeature = vector.worst;
    const double against = vector.norm == 0 ? 0 : std::max(vector.norm, least);
    double relative = vector.error == 0 ? 0 : against == 0 ? infinity : vector.error / against;
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
