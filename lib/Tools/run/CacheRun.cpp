//===- CacheRun.cpp - attn-run of an operation on a cache -----------------===//
#include "CacheRun.h"

#include "CacheInputs.h"
#include "CacheReport.h"
#include "Flush.h"

#include "attn/Reference/Reference.h"
#include "attn_rt/CacheKernel.h"
#include "attn_rt/File.h"
#include "attn_rt/Safetensors.h"

#include <algorithm>
#include <cstdio>

using namespace attn;
using namespace attn::run;

namespace {

/// The steps, in order; members are what they leave behind.
class Runner {
public:
  explicit Runner(CacheRun run) : run(std::move(run)) {}

  rt::Result<bool> execute() {
    for (auto step :
         {&Runner::makeTensors, &Runner::prepare, &Runner::launch, &Runner::check, &Runner::write})
      if (rt::Status status = (this->*step)(); !status)
        return status.error();
    return record->failure.empty();
  }

private:
  rt::Status makeTensors();
  rt::Status prepare();
  rt::Status launch();
  rt::Status check();
  rt::Status write();

  bool gathers() const { return run.manifest.rowCopy()->role == rt::KernelInfo::Role::Gather; }
  /// Memory of a tensor on the device, by name.
  rt::Result<rt::DeviceAddress> allocate(const std::string &name, const rt::Tensor &tensor);
  rt::Result<rt::DeviceRows> place(const std::string &k, const std::string &v, int64_t count);

  CacheRun run;
  rt::TensorMap tensors, outputs;
  std::map<std::string, rt::Buffer> buffers;
  std::optional<rt::CacheKernel> kernel;
  std::optional<CacheRecord> record;
};

rt::Status Runner::makeTensors() {
  for (auto [given, option] :
       {std::pair(!run.options.workload.empty(), "--workload"), std::pair(!run.options.svg.empty(), "--svg"),
        std::pair(run.options.quickest || run.options.strategy != rt::Strategy::Flatten, "--strategy"),
        std::pair(run.options.fixedSplit != 0, "--fixed-split"), std::pair(run.options.replay, "--replay")})
    if (given)
      return rt::inputError(std::string(option) + " is about attentions, and '" + run.manifest.entry +
                            "' is an operation on a cache");
  if (!run.options.inputs.empty()) {
    if (!run.options.dims.empty())
      return rt::inputError("--dim sizes generated tensors, and --inputs reads them: give one of the two");
    run.progress.stage("reading tensors");
    auto read = rt::readSafetensorsFile(run.options.inputs);
    if (!read)
      return read.error();
    tensors = std::move(*read);
  } else {
    run.progress.stage("generating tensors");
    Dims dims;
    for (const std::string &dim : run.options.dims)
      if (rt::Status status = dims.add(dim); !status)
        return status.error();
    auto signature = mlir::attn::readSignature(run.problem);
    if (mlir::failed(signature))
      return rt::inputError("");
    auto made = generateCacheInputs(*signature, run.manifest, dims, run.options.seed);
    if (!made)
      return made.error();
    tensors = std::move(*made);
  }
  auto sizes = rt::readCacheTensors(run.manifest, tensors);
  if (!sizes)
    return sizes.error();
  record.emplace(
      CacheRecord{run.manifest, *sizes, rt::rowCopyFloor(run.manifest, sizes->lists, sizes->layers)});
  return {};
}

rt::Result<rt::DeviceAddress> Runner::allocate(const std::string &name, const rt::Tensor &tensor) {
  auto made = rt::Buffer::create(run.device, tensor.bytes.size(), name);
  if (!made)
    return made.error();
  rt::DeviceAddress address = made->address();
  buffers[name] = std::move(*made);
  return address;
}

rt::Result<rt::DeviceRows> Runner::place(const std::string &k, const std::string &v, int64_t count) {
  rt::DeviceRows rows;
  rows.count = count;
  for (auto [name, address, layerBytes] :
       {std::tuple(&k, &rows.k, &rows.kLayerBytes), std::tuple(&v, &rows.v, &rows.vLayerBytes)}) {
    auto given = tensors.find(*name);
    const rt::Tensor &tensor = given != tensors.end() ? given->second : outputs.at(*name);
    auto made = allocate(*name, tensor);
    if (!made)
      return made.error();
    if (given != tensors.end())
      if (rt::Status status = run.device.copyIn(*made, tensor.bytes.data(), tensor.bytes.size()); !status)
        return status.error();
    *address = *made;
    *layerBytes = static_cast<int64_t>(tensor.bytes.size()) / record->tensors.layers;
  }
  return rows;
}

rt::Status Runner::prepare() {
  auto created = rt::CacheKernel::create(run.device, run.manifest, run.source);
  if (!created)
    return created.error();
  kernel.emplace(std::move(*created));
  std::optional<int> blocks;
  if (run.options.blocks)
    blocks = static_cast<int>(std::min<int64_t>(*run.options.blocks, 1 << 20));
  const rt::CacheTensors &sizes = record->tensors;
  if (rt::Status status = kernel->reserve(sizes.rows, sizes.layers, blocks); !status)
    return status;

  run.progress.stage("copying tensors to the device");
  const rt::Argument &cache = kernel->cache();
  std::string k = rt::cacheTensorName(cache, true), v = rt::cacheTensorName(cache, false);
  if (gathers()) {
    for (const rt::ResultInfo &result : run.manifest.results) {
      auto shape = result.shape({{"layers", sizes.layers}, {"rows", static_cast<int32_t>(sizes.rows)}});
      if (!shape)
        return shape.error();
      outputs[result.name] = rt::Tensor(result.dtype, std::move(*shape));
    }
  } else {
    outputs[k] = rt::Tensor(tensors.at(k).dtype, tensors.at(k).shape);
    outputs[v] = rt::Tensor(tensors.at(v).dtype, tensors.at(v).shape);
  }
  auto slots = place(k, v, sizes.slots);
  if (!slots)
    return slots.error();
  rt::DeviceRows rows;
  if (kernel->role() != rt::KernelInfo::Role::Move) {
    auto placed = place("k", "v", sizes.rows);
    if (!placed)
      return placed.error();
    rows = *placed;
  }
  if (rt::Status status = kernel->bind(*slots, rows); !status)
    return status;
  if (rt::Status status = kernel->setRows(sizes.lists); !status)
    return status;
  record->device = run.device.kind();
  record->deviceName = run.device.properties().name;
  record->blocks = kernel->blocks();
  record->compileMs = run.compileMs;
  record->hostCodeMs = run.hostCodeMs;
  record->repeats = run.options.repeat;
  return {};
}

rt::Status Runner::launch() {
  auto begin = run.device.createEvent(), end = run.device.createEvent();
  if (!begin || !end)
    return begin ? end.error() : begin.error();
  auto flush = Flush::create(run.device);
  if (!flush)
    return flush.error();
  run.progress.stage("running");
  std::vector<double> seconds;
  for (int64_t i = 0; i < run.options.repeat; ++i) {
    if (run.host)
      run.host->resetReport();
    for (auto &[name, tensor] : outputs)
      if (gathers() && !tensor.bytes.empty())
        if (rt::Status status = run.device.poison(buffers[name].address(), tensor.bytes.size()); !status)
          return status;
    if (rt::Status status = flush->run(); !status)
      return status;
    if (rt::Status status = run.device.record(**begin); !status)
      return status;
    if (rt::Status status = kernel->launch(); !status)
      return status;
    if (rt::Status status = run.device.record(**end); !status)
      return status;
    for (auto &[name, tensor] : outputs) {
      std::vector<uint8_t> before = i ? tensor.bytes : std::vector<uint8_t>();
      if (rt::Status status =
              run.device.copyOut(tensor.bytes.data(), buffers[name].address(), tensor.bytes.size());
          !status)
        return status;
      if (i && before != tensor.bytes)
        record->failure = "run " + std::to_string(i + 1) + " gave other bits than the first";
    }
    auto elapsed = run.device.elapsed(**begin, **end);
    if (!elapsed)
      return elapsed.error();
    seconds.push_back(*elapsed);
    if (run.host && (i == 0 || !run.host->report().clean()))
      record->host = run.host->report();
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  record->runMs = seconds[seconds.size() / 2] * 1e3;
  return {};
}

rt::Status Runner::check() {
  if (run.options.check) {
    run.progress.stage("computing the reference");
    auto reference = mlir::attn::evaluateRowCopy(run.problem, tensors);
    if (!reference)
      return reference.error();
    record->checked = true;
    for (const auto &[name, expected] : *reference)
      if (record->failure.empty())
        record->failure = firstDifference(name, outputs.at(name), expected);
  }
  run.progress.stage("");
  if (record->host && !record->host->clean()) {
    std::fputs(record->host->describe().c_str(), stderr);
    record->failure = "the detectors of the host device found faults in the kernel";
  }
  return {};
}

rt::Status Runner::write() {
  if (!run.options.saveInputs.empty())
    if (rt::Status status = rt::writeSafetensorsFile(run.options.saveInputs, tensors); !status)
      return status;
  if (!run.options.outputs.empty())
    if (rt::Status status = rt::writeSafetensorsFile(run.options.outputs, outputs); !status)
      return status;
  bool jsonOnOutput = run.options.json == "-";
  if (jsonOnOutput)
    std::fputs(cacheJson(*record).c_str(), stdout);
  else if (!run.options.json.empty())
    if (rt::Status status = rt::writeFile(run.options.json, cacheJson(*record)); !status)
      return status;
  std::fputs(cacheSummary(*record).c_str(), jsonOnOutput ? stderr : stdout);
  return {};
}

} // namespace

rt::Result<bool> run::runCacheFunction(CacheRun run) { return Runner(std::move(run)).execute(); }
