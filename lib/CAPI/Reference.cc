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

namespace {
using Evaluate = rt::Result<rt::TensorMap> (*)(mlir::func::FuncOp, const rt::TensorMap &, unsigned threads);

rt::Result<rt::TensorMap> evaluateResults(mlir::func::FuncOp function, const rt::TensorMap &tensors,
                                          unsigned threads) {
  auto evaluated = mlir::attn::evaluateReference(function, tensors, threads);
  if (!evaluated)
    return evaluated.error();
  rt::TensorMap results;
  results["o"] = std::move(evaluated->output);
  results["lse"] = std::move(evaluated->lse);
  if (evaluated->outputScales)
    results["output_scales"] = std::move(*evaluated->outputScales);
  results.merge(evaluated->significance);
  return results;
}

/// Evaluates a text and its tensors: an attention by `evaluateAttention`, an operation on a cache by its only
/// meaning.
rt::Result<rt::TensorMap> evaluate(const AttnSource &source, const AttnAsks *asks, rt::TensorMap tensors,
                                   uint32_t threads, Evaluate evaluateAttention) {
  Problem problem(source, asks);
  if (rt::Status status = problem.parse(); !status)
    return status.error();
  // The optional tensors follow from the manifest, so the problem is compiled, in some 10 ms.
  auto kernel = mlir::attn::compileProblem(*problem.module, problem.entry, problem.options);
  if (failed(kernel))
    return problem.error();
  auto manifest = rt::parseManifest(kernel->manifest);
  if (!manifest)
    return manifest.error();
  auto function = *kernel->problem->getOps<mlir::func::FuncOp>().begin();
  if (manifest->managesPages())
    return rt::inputError("expected an attention or an operation on a cache, got '" + manifest->entry +
                          "', which works on page tables: it has no reference");
  if (manifest->rowCopy() && evaluateAttention == evaluateResults)
    return mlir::attn::evaluateRowCopy(function, tensors);
  if (manifest->rowCopy())
    return rt::inputError("expected an attention, got an operation on a cache, which has no gradients");
  if (rt::Status status = rt::addDefaults(*manifest, tensors); !status)
    return status.error();
  if (threads == 0)
    threads = std::max(1u, std::thread::hardware_concurrency());
  return evaluateAttention(function, tensors, std::min(threads, 256u));
}

AttnStatus refer(const AttnSource *source, const AttnAsks *asks, const AttnTensor *tensors, size_t count,
                 uint32_t threads, AttnTensors **results, Evaluate evaluateAttention) {
  return rt::capi::guarded([&]() -> rt::Status {
    if (rt::Status status = rt::capi::required("results", results); !status)
      return status;
    if (rt::Status status = checkSource(source); !status)
      return status;
    if (rt::Status status = checkAsks(asks); !status)
      return status;
    rt::Result<rt::TensorMap> map = copyTensors(tensors, count);
    if (!map)
      return map.error();
    rt::Result<rt::TensorMap> made = evaluate(*source, asks, std::move(*map), threads, evaluateAttention);
    if (!made)
      return made.error();
    *results = new AttnTensors{std::move(*made)};
    return {};
  });
}
} // namespace

AttnStatus attnReference(const AttnSource *source, const AttnAsks *asks, const AttnTensor *tensors,
                         size_t count, uint32_t threads, AttnTensors **results) {
  return refer(source, asks, tensors, count, threads, results, evaluateResults);
}

AttnStatus attnReferenceGradients(const AttnSource *source, const AttnTensor *tensors, size_t count,
                                  uint32_t threads, AttnTensors **results) {
  return refer(source, nullptr, tensors, count, threads, results, mlir::attn::evaluateGradients);
}
