//===- Backward.cpp - Gradients in attn-run -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Run.h"

#include "attn/Reference/Reference.h"

#include <algorithm>
#include <cmath>
#include <thread>

using namespace attn;
using namespace attn::run;

static unsigned threads() { return std::max(1U, std::thread::hardware_concurrency()); }

void Run::addBackwardArguments(Arguments &arguments) const {
  for (const char *name : {"o", "lse", "do", "dlse"})
    for (const rt::Argument &argument : manifest.arguments) {
      if (argument.name != name)
        continue;
      TensorArgument &added = arguments.others.emplace_back();
      added.name = name;
      added.dtype = argument.dtype;
      for (const rt::DimInfo &dim : argument.dims)
        added.shape.push_back(dim.name.empty() ? dim.value : -1);
      added.dims = arguments.query.dims;
    }
}

rt::Status Run::finishForward() {
  progress.stage("computing the forward's results");
  auto forward = mlir::attn::evaluateReference(*kernel.problem->getOps<mlir::func::FuncOp>().begin(), tensors,
                                               threads());
  if (!forward)
    return forward.error();
  for (auto [name, exact] : {std::pair("o", &forward->output), std::pair("lse", &forward->lse)})
    for (int64_t i = 0; i < exact->elements(); ++i)
      tensors.at(name).set(i, exact->get(i));
  return {};
}

/// The table whose gradient's first sums a result is; empty: it is another result.
static std::string tableOf(const std::string &result) {
  for (const char *first : {".heads0", ".rows0"})
    if (result.ends_with(first))
      return result.substr(0, result.size() - std::string(first).size());
  return {};
}

rt::Status Run::compareTable(const std::string &table, const rt::Tensor &exact) {
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
        return rt::Error{rt::ErrorKind::Check, table + ": a gradient's place is " + std::to_string(place) +
                                                   " of " + std::to_string(exact.elements())};
      sums[static_cast<size_t>(place)] += terms.get(i);
    }
  }
  double error = 0, norm = 0;
  for (int64_t i = 0; i < exact.elements(); ++i) {
    const double difference = sums[static_cast<size_t>(i)] - exact.get(i);
    error += difference * difference, norm += exact.get(i) * exact.get(i);
  }
  if (!(error <= norm * std::pow(Tolerances::of(manifest).relErr, 2)) && record->failure.empty())
    record->failure = "the gradient of '" + table + "' is past its tolerance: off by " +
                      std::to_string(std::sqrt(error)) + " of " + std::to_string(std::sqrt(norm));
  return {};
}

rt::Status Run::compareGradients() {
  progress.stage("computing the float64 reference");
  auto reference = mlir::attn::evaluateGradients(*kernel.problem->getOps<mlir::func::FuncOp>().begin(),
                                                 tensors, threads());
  if (!reference)
    return reference.error();
  Tolerances tolerance = Tolerances::of(manifest);
  Comparison worst;
  for (const rt::ResultInfo &result : manifest.results) {
    auto exact = reference->find(result.name);
    if (const std::string table = tableOf(result.name); !table.empty()) {
      if (rt::Status status = compareTable(table, reference->at("d" + table)); !status)
        return status;
      continue;
    }
    if (exact == reference->end()) // delta is no gradient
      continue;
    auto comparison = compareGradient(outputs.at(result.name), exact->second);
    if (!comparison)
      return comparison.error();
    if (!(comparison->relErr <= tolerance.relErr) && record->failure.empty())
      record->failure = result.name + " is past its tolerance at " + comparison->worst;
    if (!(comparison->relErr <= worst.relErr))
      worst = std::move(*comparison);
  }
  record->comparison = std::move(worst);
  return {};
}
