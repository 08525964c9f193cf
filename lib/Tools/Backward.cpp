//===- Backward.cpp - Gradients in attn-run -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Run.h"

#include "attn/Reference/Reference.h"

#include <algorithm>
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
