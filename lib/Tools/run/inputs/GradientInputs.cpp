//===- GradientInputs.cpp - Inputs of a backward pass ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GradientInputs.h"

#include "attn/Reference/Reference.h"

#include <algorithm>
#include <thread>

using namespace attn;
using namespace attn::run;

void run::addBackwardArguments(const rt::Manifest &manifest, Arguments &arguments) {
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

rt::Status run::finishForward(mlir::func::FuncOp function, rt::TensorMap &tensors) {
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  auto forward = mlir::attn::evaluateReference(function, tensors, threads);
  if (!forward)
    return forward.error();
  for (auto [name, exact] : {std::pair("o", &forward->output), std::pair("lse", &forward->lse)})
    for (int64_t i = 0; i < exact->elements(); ++i)
      tensors.at(name).set(i, exact->get(i));
  return {};
}
