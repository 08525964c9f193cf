//===- CudaRecorder.cpp - Launches as a CUDA graph ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda/CudaRecorder.h"

#include "cuda/CudaModule.h"

namespace attn::rt::cuda {

namespace {

struct CudaRecording final : Recording {
  CudaRecording(const Api &api, CUcontext context) : api(api), context(context) {}
  ~CudaRecording() override {
    Current current(api, context);
    if (graph)
      (void)api.cuGraphExecDestroy(graph);
  }
  const Api &api;
  CUcontext context;
  CUgraphExec graph = nullptr;
};

Error deviceError(std::string message) { return {ErrorKind::Device, "cuda: " + std::move(message)}; }

} // namespace

Recorder::~Recorder() {
  if (stream_)
    (void)api_.cuStreamDestroy_v2(stream_);
}

Status Recorder::begin() {
  if (recording_)
    return deviceError("a recording has begun already");
  const std::pair<const char *, bool> needed[] = {
      {"cuStreamBeginCapture_v2", api_.cuStreamBeginCapture_v2},
      {"cuStreamEndCapture", api_.cuStreamEndCapture},
      {"cuGraphInstantiateWithFlags", api_.cuGraphInstantiateWithFlags},
      {"cuGraphLaunch", api_.cuGraphLaunch},
      {"cuGraphExecDestroy", api_.cuGraphExecDestroy},
      {"cuGraphDestroy", api_.cuGraphDestroy},
      {"cuStreamCreate", api_.cuStreamCreate},
      {"cuStreamDestroy_v2", api_.cuStreamDestroy_v2}};
  for (const auto &[name, there] : needed)
    if (!there)
      return deviceError("the NVIDIA driver is too old to record launches: it supports CUDA " +
                         versionText(api_.driverVersion) + " and lacks '" + name +
                         "'; CUDA 11.4 (driver 470) or later is needed");
  if (!stream_)
    if (CUresult result = api_.cuStreamCreate(&stream_, streamNonBlocking); result != success)
      return api_.error(result, "making a stream for recordings");
  if (CUresult result = api_.cuStreamBeginCapture_v2(stream_, captureThreadLocal); result != success)
    return api_.error(result, "beginning a recording");
  recording_ = true;
  return {};
}

Result<std::unique_ptr<Recording>> Recorder::end() {
  if (!recording_)
    return deviceError("no recording has begun");
  recording_ = false;
  CUgraph graph = nullptr;
  if (CUresult result = api_.cuStreamEndCapture(stream_, &graph); result != success)
    return api_.error(result, "ending a recording");
  auto recording = std::make_unique<CudaRecording>(api_, context_);
  const CUresult result = api_.cuGraphInstantiateWithFlags(&recording->graph, graph, 0);
  (void)api_.cuGraphDestroy(graph);
  if (result != success)
    return api_.error(result, "making a recording ready to replay");
  return std::unique_ptr<Recording>(std::move(recording));
}

Status Recorder::replay(const Recording &recording, CUstream stream) const {
  if (CUresult result = api_.cuGraphLaunch(static_cast<const CudaRecording &>(recording).graph, stream);
      result != success)
    return api_.error(result, "replaying recorded launches");
  return {};
}

} // namespace attn::rt::cuda
