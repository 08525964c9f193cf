//===- GradientInputs.cpp - Inputs of a backward pass ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GradientInputs.h"

#include "attn/Reference/Reference.h"

#include <algorithm>
#include <cmath>
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

rt::Result<rt::TensorMap> run::withDeltaErrors(mlir::func::FuncOp function, const rt::TensorMap &tensors) {
  // An MMA of f32 truncates its sum after every 16 features: 16 times for 256.
  constexpr double ofSum = 0x1p-20;
  auto forward =
      mlir::attn::evaluateReference(function, tensors, std::max(1U, std::thread::hardware_concurrency()));
  if (!forward)
    return forward.error();
  const rt::Tensor &output = tensors.at("o"), &gradient = tensors.at("do");
  const auto given = tensors.find("dlse");
  rt::Tensor moved(rt::DType::F64, forward->lse.shape);
  const int64_t rows = moved.elements(), dim = rows > 0 ? output.elements() / rows : 0;
  for (int64_t row = 0; row < rows; ++row) {
    double error = 0, ofOutput = 0, ofGradient = 0;
    for (int64_t i = row * dim; i < (row + 1) * dim; ++i) {
      const double exact = forward->output.get(i), back = gradient.get(i);
      error += back * (output.get(i) - exact);
      ofOutput += exact * exact, ofGradient += back * back;
    }
    const double size = std::sqrt(ofOutput * ofGradient);
    const double most = rt::elementType(output.dtype).tolerance * size;
    error = std::clamp(error, -most, most);
    error += std::copysign(ofSum * size, error);
    moved.set(row, (given == tensors.end() ? 0 : given->second.get(row)) - error);
  }
  rt::TensorMap all = tensors;
  all["dlse"] = std::move(moved);
  return all;
}
