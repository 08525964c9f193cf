//===- Reference.cc - The float64 reference of a text ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Problem.h"

#include "attn-c/Unstable.h"
#include "attn/Reference/Reference.h"
#include "attn/Target/Manifest.h"
#include "attn_rt/batch/Batch.h"
#include "attn_rt/capi/Objects.h"

#include <thread>

using namespace attn;
using namespace attn::capi;

static rt::Result<rt::TensorMap> copyTensors(const AttnTensor *tensors, size_t count) {
  if (count && !tensors)
    return rt::inputError("expected " + std::to_string(count) + " tensors, got null");
  rt::TensorMap map;
  for (size_t i = 0; i < count; ++i) {
    rt::Result<rt::Tensor> tensor =
        rt::capi::tensorFrom(tensors[i], i, [](const std::string &) { return true; });
    if (!tensor)
      return tensor.error();
    if (!map.emplace(tensors[i].name, std::move(*tensor)).second)
      return rt::inputError("tensor '" + std::string(tensors[i].name) + "' is given twice");
  }
  return map;
}

AttnStatus attnReference(const AttnSource *source, const AttnTensor *tensors, size_t count, uint32_t threads,
                         AttnTensors **results) {
  return rt::capi::guarded([&]() -> rt::Status {
    if (rt::Status status = rt::capi::required("results", results); !status)
      return status;
    if (rt::Status status = checkSource(source); !status)
      return status;
    rt::Result<rt::TensorMap> map = copyTensors(tensors, count);
    if (!map)
      return map.error();
    Problem problem(*source);
    if (rt::Status status = problem.parse(); !status)
      return status;
    // What may be left out follows from the manifest, so the problem is compiled, in some 10 ms.
    auto kernel = mlir::attn::compileProblem(*problem.module, problem.entry, problem.options);
    if (failed(kernel))
      return problem.error();
    auto manifest = rt::parseManifest(kernel->manifest);
    if (!manifest)
      return manifest.error();
    auto function = *kernel->problem->getOps<mlir::func::FuncOp>().begin();
    if (manifest->rowCopy()) {
      auto left = mlir::attn::evaluateRowCopy(function, *map);
      if (!left)
        return left.error();
      *results = new AttnTensors{std::move(*left)};
      return {};
    }
    if (rt::Status status = rt::addDefaults(*manifest, *map); !status)
      return status;
    if (threads == 0)
      threads = std::max(1u, std::thread::hardware_concurrency());
    auto evaluated = mlir::attn::evaluateReference(function, *map, std::min(threads, 256u));
    if (!evaluated)
      return evaluated.error();
    auto made = std::make_unique<AttnTensors>();
    made->map["o"] = std::move(evaluated->output);
    made->map["lse"] = std::move(evaluated->lse);
    *results = made.release();
    return {};
  });
}
