//===- Session.cpp - A kernel's buffers on a device -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/State.h"

#include <algorithm>

namespace attn::rt {

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session &&) noexcept = default;
Session &Session::operator=(Session &&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(Device &device, const Manifest &manifest, const ModuleSource &source) {
  Result<std::unique_ptr<Module>> module = device.load(source);
  if (!module)
    return module.error();
  return create(device, manifest, std::shared_ptr<Module>(std::move(*module)));
}

Result<Session> Session::create(Device &device, const Manifest &manifest, std::shared_ptr<Module> module) {
  if (manifest.rowCopy())
    return inputError("'" + manifest.entry +
                      "' is an operation on a cache, not an attention: run it as a CacheKernel");
  if (manifest.managesPages())
    return inputError("'" + manifest.entry +
                      "' is an operation on a table of pages, not an attention: run it as a TableOperation");
  std::unique_ptr<State> state(new State{.device = device,
                                         .manifest = manifest,
                                         .module = std::move(module),
                                         .kernels = {},
                                         .wanted = {},
                                         .maps = {},
                                         .zero = {},
                                         .buffers = {},
                                         .addresses = {},
                                         .dims = {},
                                         .strided = stridedTensors(manifest),
                                         .ends = manifest.ends,
                                         .classHeads = {},
                                         .planClassHeads = {},
                                         .capacity = {},
                                         .starts = {}});
  for (const KernelInfo &info : manifest.kernels) {
    Result<Kernel *> kernel = state->module->kernel(info.name, info.sharedBytes);
    if (!kernel)
      return kernel.error();
    BoundKernel bound{&info, *kernel, std::vector<uint64_t>(info.params.size()), {}, {}};
    for (size_t i = 0; i < info.params.size(); ++i) {
      const Parameter &param = info.params[i];
      bound.args.push_back(&bound.values[i]);
      if (param.kind == Parameter::Kind::Buffer)
        state->wanted.insert(param.name);
      if (param.kind != Parameter::Kind::Map)
        continue;
      const TensorMapInfo *map = manifest.findTensorMap(param.name);
      if (!map)
        return inputError("kernel '" + info.name + "' needs tensor map '" + param.name +
                          "', which the manifest has not");
      if (Status status = state->bindMap(*map); !status)
        return status.error();
      bound.maps.push_back(&state->maps[param.name]);
      bound.args.back() = bound.maps.back()->map.bytes.data();
    }
    state->kernels.push_back(std::move(bound));
  }
  return Session(std::move(state));
}

Status Session::bind(const TensorMap &tensors, const Batch &batch, const StrideMap &strides) {
  State &s = *state_;
  for (const auto &[name, given] : strides)
    if (!s.takesStrides(name))
      return inputError("'" + s.manifest.entry + "' takes no strides of '" + name + "'");
  s.strides = strides;
  for (const auto &[name, tensor] : tensors)
    if (s.wanted.count(name) && !s.manifest.findResult(name))
      if (Status status = s.copyIn(name, tensor); !status)
        return status;
  if (s.wanted.count("ordinal_heads")) {
    const std::vector<int32_t> heads = ordinalHeads(s.manifest, batch);
    const size_t bytes = heads.size() * sizeof(int32_t);
    if (Status status = s.allocate("ordinal_heads", static_cast<int64_t>(bytes)); !status)
      return status;
    if (Status status = s.copy("ordinal_heads", heads.data(), bytes); !status)
      return status;
    s.classHeads = classHeads(s.manifest, batch);
    s.ordinalHeads = heads;
    for (const Argument &argument : s.manifest.arguments)
      if (argument.headClass >= 0)
        s.dims[argument.name + ".heads"] = s.classHeads[static_cast<size_t>(argument.headClass)];
  }
  s.dims["rows"] = static_cast<int32_t>(batch.rows);
  s.dims["sequences"] = static_cast<int32_t>(batch.sequences());
  for (const Argument &argument : s.manifest.arguments)
    s.setDimsOf(argument, tensors);
  for (const ResultInfo &result : s.manifest.results) {
    Result<std::vector<int64_t>> shape = result.shape(s.dims);
    if (!shape)
      return shape.error();
    Result<StridedShape> lies = s.placeOf(result.name, result.dtype, *shape);
    if (!lies)
      return lies.error();
    if (Status status = s.allocate(result.name, lies->span().value_or(0)); !status)
      return status;
  }
  if (Status status = s.setStrideDims(); !status)
    return status;
  return s.checkFixedDims();
}

Status Session::bindAddress(const std::string &name, DeviceAddress address) {
  State &s = *state_;
  if (!s.wanted.count(name))
    return inputError("no kernel of '" + s.manifest.entry + "' has a buffer '" + name + "'");
  if (s.fixed && s.buffers.count(name))
    return inputError("'" + name +
                      "' is the session's own in launches that were fixed: bind the caller's "
                      "memory before fixLaunch");
  s.buffers.erase(name);
  s.addresses[name] = address;
  s.strides.erase(name);
  if (name == "ordinal_heads") {
    s.classHeads.clear();
    s.ordinalHeads.clear();
  }
  s.forget();
  return {};
}

void Session::setDim(const std::string &name, int32_t value) {
  state_->dims[name] = value;
  state_->forget();
}

Status Session::launch() {
  State &s = *state_;
  if (s.planKernel < 0)
    return inputError("launch of '" + s.manifest.entry + "' before a plan was set");
  if (!s.classHeads.empty() && s.classHeads != s.planClassHeads)
    return inputError("the plan of '" + s.manifest.entry + "' was made for " +
                      classHeadsText(s.manifest, s.planClassHeads) + " heads, but 'classes' says " +
                      classHeadsText(s.manifest, s.classHeads));
  if (!s.ordinalHeads.empty() && !s.planOrdinalHeads.empty() && s.ordinalHeads != s.planOrdinalHeads)
    return inputError(
        "the plan of '" + s.manifest.entry +
        "' was made for other 'classes': where heads are ragged each has work of its own, and a "
        "layer needs a plan of its own");
  if (Status status = s.setStrideDims(); !status)
    return status;
  if (Status status = s.fillStale(); !status)
    return status;
  if (Status status = s.clearUnwritten(); !status)
    return status;
  if (Status status = s.clearSemaphores(); !status)
    return status;
  for (const LaunchInfo &launch : s.manifest.launches)
    if (&launch != s.manifest.planLaunch())
      if (Status status = s.launch(launch); !status)
        return status;
  return {};
}

Status Session::fixLaunch() {
  State &s = *state_;
  if (s.planKernel < 0)
    return inputError("fixLaunch of '" + s.manifest.entry + "' before a plan was set");
  s.fixed = FixedLaunch{s.planKernel, s.planBlocks, s.ends, s.dims};
  return {};
}

Status Session::poison() {
  State &s = *state_;
  const auto poisonBuffer = [&](const std::string &name) -> Status {
    auto found = s.buffers.find(name);
    if (found == s.buffers.end() || found->second.bytes() == 0)
      return {};
    return s.device.poison(found->second.address(), found->second.bytes());
  };
  for (const ResultInfo &result : s.manifest.results)
    if (Status status = poisonBuffer(result.name); !status)
      return status;
  for (PlanArray array : planPartials)
    if (Status status = poisonBuffer(std::string(planArrayName(array))); !status)
      return status;
  return {};
}

Status Session::run(const Plan &plan) {
  if (Status status = poison(); !status)
    return status;
  if (Status status = setPlan(plan); !status)
    return status;
  return launch();
}

Result<TensorMap> Session::outputs() {
  State &s = *state_;
  TensorMap results;
  for (const ResultInfo &result : s.manifest.results) {
    auto found = s.addresses.find(result.name);
    if (found == s.addresses.end())
      return inputError("'" + result.name + "' is not bound");
    Result<std::vector<int64_t>> shape = result.shape(s.dims);
    if (!shape)
      return shape.error();
    Tensor &tensor = results[result.name] = Tensor(result.dtype, std::move(*shape));
    if (Status status = s.copyOut(result.name, tensor); !status)
      return status.error();
  }
  return results;
}

size_t Session::ownBytes() const {
  size_t bytes = state_->zero.bytes();
  for (const auto &[name, buffer] : state_->buffers)
    bytes += buffer.bytes();
  for (const auto &[name, table] : state_->tables)
    bytes += table.buffer.bytes();
  return bytes;
}

DeviceAddress Session::address(const std::string &name) const {
  auto found = state_->addresses.find(name);
  return found == state_->addresses.end() ? 0 : found->second;
}

} // namespace attn::rt
