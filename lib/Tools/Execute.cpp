//===- Execute.cpp - Plans and launches of attn-run -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Run.h"

#include "run/inputs/Layouts.h"
#include "run/program/Flush.h"

#include <algorithm>

using namespace attn;
using namespace attn::run;

static bool sameBytes(const rt::TensorMap &a, const rt::TensorMap &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto &x, const auto &y) {
    return x.first == y.first && x.second.bytes == y.second.bytes;
  });
}

rt::Status Run::execute() {
  auto batch = rt::batchFromTensors(manifest, tensors);
  if (!batch)
    return batch.error();
  auto session = rt::Session::create(*device, manifest, moduleSource());
  if (!session)
    return session.error();

  progress.stage("planning");
  rt::PlanOptions planOptions;
  planOptions.strategy = options.strategy;
  planOptions.quickest = options.quickest;
  planOptions.fixedSplit = static_cast<int>(std::min<int64_t>(options.fixedSplit, 1 << 30));
  if (options.blocks)
    planOptions.blocks = static_cast<int>(std::min<int64_t>(*options.blocks, 1 << 20));
  const rt::GpuModel *gpu = host ? &rt::defaultGpu() : rt::findGpuOfDevice(device->properties().name);
  if (gpu)
    planOptions.gpu = gpu;
  if (!host)
    planOptions.multiprocessors = device->properties().multiprocessors;
  auto plan = rt::makePlan(manifest, *batch, planOptions);
  if (!plan)
    return plan.error();

  progress.stage("copying tensors to the device");
  const rt::StrideMap strides = stridesOf(options.strides, manifest, tensors, batch->rows);
  if (rt::Status status = session->bind(tensors, *batch, strides); !status)
    return status;
  auto capacity = rt::planCapacity(manifest, rt::PlanLimits::of(manifest, *batch), planOptions);
  if (rt::Status status = session->reserve(capacity); !status)
    return status;
  if (rt::Status status = session->setPlan(*plan); !status)
    return status;

  record.emplace(RunRecord{manifest, std::move(*batch), std::move(*plan)});
  record->device = device->kind();
  record->deviceName = device->properties().name;
  record->gpu = gpu;
  record->compileMs = compileMs;
  record->hostCodeMs = hostCodeMs;
  record->loadMs = loadMs;
  record->strategy = record->plan.strategy;
  record->repeats = options.repeat;
  return launch(*session);
}

rt::Result<std::unique_ptr<rt::Recording>> Run::recordLaunch(rt::Session &session) {
  if (rt::Status status = session.fixLaunch(); !status)
    return status.error();
  if (rt::Status status = device->beginRecording(); !status)
    return status.error();
  rt::Status launched = session.launch();
  auto recording = device->endRecording();
  return launched ? std::move(recording) : launched.error();
}

rt::Status Run::launch(rt::Session &session) {
  auto begin = device->createEvent(), end = device->createEvent();
  if (!begin || !end)
    return begin ? end.error() : begin.error();
  auto flush = Flush::create(*device);
  if (!flush)
    return flush.error();
  std::unique_ptr<rt::Recording> recording;
  if (options.replay) {
    auto recorded = recordLaunch(session);
    if (!recorded)
      return recorded.error();
    recording = std::move(*recorded);
  }
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.repeat; ++i) {
    progress.stage(options.repeat == 1 ? "running" : "running, " + std::to_string(i) + " done");
    if (host)
      host->resetReport();
    if (rt::Status status = session.poison(); !status)
      return status;
    if (rt::Status status = flush->run(); !status)
      return status;
    if (rt::Status status = device->record(**begin); !status)
      return status;
    if (rt::Status status = recording ? device->replay(*recording) : session.launch(); !status)
      return status;
    if (rt::Status status = device->record(**end); !status)
      return status;
    auto results = session.outputs();
    if (!results)
      return results.error();
    auto elapsed = device->elapsed(**begin, **end);
    if (!elapsed)
      return elapsed.error();
    seconds.push_back(*elapsed);
    // The counters are those of one run; a fault in any of them is a fault.
    if (host && isChecked && (i == 0 || !host->report().clean()))
      record->host = host->report();
    if (i == 0)
      outputs = std::move(*results);
    else if (!sameBytes(outputs, *results) && record->failure.empty())
      record->failure = "run " + std::to_string(i + 1) + " gave other bits than the first";
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  record->runMs = seconds[seconds.size() / 2] * 1e3;
  return {};
}
