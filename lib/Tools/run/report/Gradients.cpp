//===- Gradients.cpp - Gradients against the reference --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Gradients.h"

#include "Report.h"

#include <cmath>

using namespace attn;
using namespace attn::run;

/// Returns the table if a result is the first sums of its gradient; otherwise an empty string.
static std::string tableOf(const std::string &result) {
  for (const char *first : {".heads0", ".rows0"})
    if (result.ends_with(first))
      return result.substr(0, result.size() - std::string(first).size());
  return {};
}

/// Describes the fault of a table's gradient; empty: no fault.
static std::string compareTable(const std::string &table, const rt::TensorMap &outputs,
                                const rt::Tensor &exact, double tolerance) {
  std::vector<double> sums(static_cast<size_t>(exact.elements()));
  for (int read = 0;; ++read) {
    const std::string number = std::to_string(read);
    auto places = outputs.find(table + ".places" + number);
    if (places == outputs.end())
      break;
    auto ofHeads = outputs.find(table + ".heads" + number);
    const rt::Tensor &terms =
        ofHeads != outputs.end() ? ofHeads->second : outputs.at(table + ".rows" + number);
    for (int64_t i = 0; i < terms.elements(); ++i) {
      const int32_t place = places->second.as<int32_t>()[static_cast<size_t>(i)];
      if (place < 0 || place >= exact.elements())
        return table + ": a gradient's index is " + std::to_string(place) + " of " +
               std::to_string(exact.elements());
      sums[static_cast<size_t>(place)] += terms.get(i);
    }
  }
  double error = 0, norm = 0;
  for (int64_t i = 0; i < exact.elements(); ++i) {
    const double difference = sums[static_cast<size_t>(i)] - exact.get(i);
    error += difference * difference, norm += exact.get(i) * exact.get(i);
  }
  if (error <= norm * tolerance * tolerance)
    return {};
  return "the gradient of '" + table + "' is past its tolerance: off by " + std::to_string(std::sqrt(error)) +
         " of " + std::to_string(std::sqrt(norm));
}

rt::Result<GradientComparison> run::compareGradients(const rt::Manifest &manifest,
                                                     const rt::TensorMap &outputs,
                                                     const rt::TensorMap &reference,
                                                     const rt::TensorMap *moved) {
  const Tolerances tolerance = Tolerances::of(manifest);
  GradientComparison found;
  const auto fail = [&](std::string what) {
    if (found.failure.empty())
      found.failure = std::move(what);
  };
  for (const rt::ResultInfo &result : manifest.results) {
    if (const std::string table = tableOf(result.name); !table.empty()) {
      fail(compareTable(table, outputs, reference.at("d" + table), tolerance.relErr));
      continue;
    }
    auto exact = reference.find(result.name);
    if (exact == reference.end()) // delta is no gradient
      continue;
    auto comparison =
        compareGradient(outputs.at(result.name), exact->second, moved ? &moved->at(result.name) : nullptr);
    if (!comparison)
      return comparison.error();
    if (!(comparison->relErr <= tolerance.relErr))
      fail(result.name + " is past its tolerance at " + comparison->worst);
    if (!(comparison->relErr <= found.worst.relErr))
      found.worst = std::move(*comparison);
  }
  return found;
}
