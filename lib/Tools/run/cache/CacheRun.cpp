//===- CacheRun.cpp - attn-run of an operation on a cache -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CacheRun.h"

#include "CacheInputs.h"
#include "CacheReport.h"
#include "run/program/Flush.h"

#include "attn/Reference/Reference.h"
#include "attn_rt/session/CacheKernel.h"
#include "attn_rt/support/File.h"
#include "attn_rt/tensor/Safetensors.h"

#include <algorithm>
#include <cstdio>

using namespace attn;
using namespace attn::run;

namespace {

/// The steps, in order; members are their results.
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
  /// Allocates the memory of a tensor on the device, by name.
  rt::Result<rt::DeviceAddress> allocate(const std::string &name, const rt::Tensor &tensor);
  rt::Result<rt::DeviceAddress> place(const std::string &name);
  /// Places the tensors of unified pages under this name, each `pageBytes` after the previous one.
  rt::Result<rt::DeviceAddress> placePages(const std::string &name, int64_t pageBytes);
  rt::Status copyOut(const std::string &name, rt::Tensor &tensor);
  /// Places the slots of a cache, or the rows, with consecutive layers.
  rt::Result<rt::DeviceRows> placeCache(const rt::Argument &cache, int64_t slots);
  rt::Result<rt::DeviceRows> placeRows();
  rt::Status bindPrologue();
  int64_t layerBytes(const std::string &name) const {
    return static_cast<int64_t>(tensorOf(name).bytes.size()) / record->tensors.layers;
  }
  const rt::Tensor &tensorOf(const std::string &name) const {
    auto given = tensors.find(name);
    return given != tensors.end() ? given->second : outputs.at(name);
  }

  CacheRun run;
  rt::TensorMap tensors, outputs;
  std::map<std::string, rt::Buffer> buffers;
  std::map<std::string, int64_t> apart; ///< bytes from page to page, of tensors of unified pages
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

rt::Result<rt::DeviceAddress> Runner::place(const std::string &name) {
  const rt::Tensor &tensor = tensorOf(name);
  auto made = allocate(name, tensor);
  if (made && tensors.count(name))
    if (rt::Status status = run.device.copyIn(*made, tensor.bytes.data(), tensor.bytes.size()); !status)
      return status.error();
  return made;
}

rt::Result<rt::DeviceAddress> Runner::placePages(const std::string &name, int64_t pageBytes) {
  const rt::Tensor &tensor = tensorOf(name);
  const int64_t pages = tensor.shape[0] * tensor.shape[1];
  auto made = rt::Buffer::create(run.device, static_cast<size_t>(pages * pageBytes), name);
  if (!made)
    return made.error();
  const rt::DeviceAddress address = made->address();
  buffers[name] = std::move(*made);
  apart[name] = pageBytes;
  const size_t bytes = pages ? tensor.bytes.size() / static_cast<size_t>(pages) : 0;
  for (int64_t page = 0; page < pages; ++page)
    if (rt::Status status = run.device.copyIn(address + static_cast<uint64_t>(page * pageBytes),
                                              tensor.bytes.data() + static_cast<size_t>(page) * bytes, bytes);
        !status)
      return status.error();
  return address;
}

rt::Status Runner::copyOut(const std::string &name, rt::Tensor &tensor) {
  const rt::DeviceAddress address = buffers[name].address();
  const auto pages = apart.find(name);
  if (pages == apart.end())
    return run.device.copyOut(tensor.bytes.data(), address, tensor.bytes.size());
  const int64_t count = tensor.shape[0] * tensor.shape[1];
  const size_t bytes = count ? tensor.bytes.size() / static_cast<size_t>(count) : 0;
  for (int64_t page = 0; page < count; ++page)
    if (rt::Status status = run.device.copyOut(tensor.bytes.data() + static_cast<size_t>(page) * bytes,
                                               address + static_cast<uint64_t>(page * pages->second), bytes);
        !status)
      return status;
  return {};
}

rt::Result<rt::DeviceRows> Runner::placeCache(const rt::Argument &cache, int64_t slots) {
  rt::DeviceRows placed;
  placed.count = slots;
  const rt::Store store = rt::storeOf(cache);
  if (store.isUnified())
    placed.pageBytes = store.pageParts().bytes;
  for (const rt::StoreTensor &tensor : store.data()) {
    const std::string name = cache.name + "." + tensor.name;
    const bool paged = store.isUnified() && tensor.content != rt::StoreTensor::Content::Scales;
    auto made = paged ? placePages(name, store.pageParts().bytes) : place(name);
    if (!made)
      return made.error();
    const int64_t ofLayer = paged ? tensorOf(name).shape[1] * store.pageParts().bytes : layerBytes(name);
    const bool keys = tensor.name[0] == 'k', codes = tensor.content == rt::StoreTensor::Content::Codes;
    if (codes)
      (keys ? placed.k : placed.v) = *made, (keys ? placed.kLayerBytes : placed.vLayerBytes) = ofLayer;
    else if (tensor.name == rt::Store::metaName(store.part(keys)))
      (keys ? placed.kMeta : placed.vMeta) = {*made, ofLayer};
    else
      (keys ? placed.kScale : placed.vScale) = {*made, ofLayer};
  }
  return placed;
}

rt::Result<rt::DeviceRows> Runner::placeRows() {
  auto k = place("k");
  if (!k)
    return k.error();
  rt::DeviceRows rows{*k, 0, record->tensors.rows, layerBytes("k"), 0};
  if (!tensors.count("v") && !outputs.count("v")) // values that are a part of their keys
    return rows;
  auto v = place("v");
  if (!v)
    return v.error();
  rows.v = *v, rows.vLayerBytes = layerBytes("v");
  return rows;
}

/// Places queries, weights and tables of an append that normalizes or rotates keys.
rt::Status Runner::bindPrologue() {
  rt::DevicePrologue prologue;
  for (auto [name, address] :
       {std::pair("q", &prologue.q.address), std::pair("rotated", &prologue.rotated.address),
        std::pair("k_norm", &prologue.kNorm), std::pair("q_norm", &prologue.qNorm),
        std::pair("cos", &prologue.cos), std::pair("sin", &prologue.sin)}) {
    if (!tensors.count(name) && !outputs.count(name))
      continue;
    auto made = place(name);
    if (!made)
      return made.error();
    *address = *made;
  }
  if (prologue.q.address)
    prologue.q.layerBytes = prologue.rotated.layerBytes = layerBytes("q");
  if (prologue.cos)
    prologue.tableRows = tensors.at("cos").shape[0];
  return kernel->bindPrologue(prologue);
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
  if (!run.manifest.results.empty()) {
    for (const rt::ResultInfo &result : run.manifest.results) {
      auto shape = result.shape({{"layers", sizes.layers}, {"rows", static_cast<int32_t>(sizes.rows)}});
      if (!shape)
        return shape.error();
      outputs[result.name] = rt::Tensor(result.dtype, std::move(*shape));
    }
  }
  if (!gathers()) {
    for (const rt::StoreTensor &tensor : rt::storeOf(kernel->written()).data())
      if (tensor.content != rt::StoreTensor::Content::Scales) {
        const rt::Tensor &given = tensors.at(kernel->written().name + "." + tensor.name);
        outputs[kernel->written().name + "." + tensor.name] = rt::Tensor(given.dtype, given.shape);
      }
  }
  auto slots = placeCache(kernel->cache(), sizes.slots);
  if (!slots)
    return slots.error();
  rt::Result<rt::DeviceRows> rows = rt::DeviceRows();
  if (kernel->role() == rt::KernelInfo::Role::Requantize)
    rows = placeCache(kernel->written(), sizes.written);
  else if (kernel->role() != rt::KernelInfo::Role::Move)
    rows = placeRows();
  if (!rows)
    return rows.error();
  rt::DeviceAddress status = 0;
  if (tensors.count("status")) {
    auto made = place("status");
    if (!made)
      return made.error();
    status = *made;
    outputs["status"] = tensors.at("status");
  }
  if (rt::Status bound = kernel->bind(*slots, *rows, status); !bound)
    return bound;
  if (kernel->hasStrides())
    if (rt::Status status = bindPrologue(); !status)
      return status;
  if (rt::Status status = kernel->setRows(sizes.lists); !status)
    return status;
  record->device = run.device.kind();
  record->deviceName = run.device.properties().name;
  record->blocks = kernel->blocks();
  record->compileMs = run.compileMs;
  record->hostCodeMs = run.hostCodeMs;
  record->loadMs = run.loadMs;
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
    for (auto &[name, tensor] : outputs) {
      if (run.manifest.findResult(name) && !tensor.bytes.empty())
        if (rt::Status status = run.device.poison(buffers[name].address(), tensor.bytes.size()); !status)
          return status;
      if (name == "status")
        if (rt::Status status = run.device.copyIn(buffers[name].address(), tensors.at(name).bytes.data(), 4);
            !status)
          return status;
    }
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
      if (rt::Status status = copyOut(name, tensor); !status)
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
