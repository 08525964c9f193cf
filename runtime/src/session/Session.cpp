#include "attn_rt/Session.h"

#include "session/TensorMaps.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace attn::rt {

namespace {

/// A kernel with its parameters' values, in the form that a launch wants them.
struct BoundKernel {
  const KernelInfo *info = nullptr;
  Kernel *kernel = nullptr;
  std::vector<uint64_t> values; ///< a slot for each parameter: an address, an i32 or an f32
  std::vector<void *> args;     ///< pointers to the slots, or to tensor maps
};

struct BoundMap {
  const TensorMapInfo *info = nullptr;
  EncodedMap map;
};

} // namespace

struct Session::State {
  Device &device;
  const Manifest &manifest;
  std::unique_ptr<Module> module;
  std::vector<BoundKernel> kernels;     ///< as in the manifest
  std::set<std::string> wanted;         ///< buffers that some kernel reads or writes
  std::map<std::string, BoundMap> maps; ///< that some kernel reads through
  Buffer zero;                          ///< stands for tensors without elements
  std::map<std::string, Buffer> buffers;
  std::map<std::string, DeviceAddress> addresses; ///< of buffers and of the caller's memory
  std::map<std::string, int32_t> dims;
  std::vector<int32_t> ends;
  PlanCapacity capacity;
  int64_t rows = 0;
  int planKernel = -1, planBlocks = 0;
  int64_t mergeRows = 0;
  bool stale = true;     ///< addresses, dimensions or the plan changed since values were filled
  bool mapsStale = true; ///< addresses or dimensions changed since maps were

  Status allocate(const std::string &name, int64_t bytes, MemoryUse use = MemoryUse::Plain);
  Status copy(const std::string &name, const void *from, size_t bytes);
  void setDimsOf(const Argument &argument, const TensorMap &tensors);
  Result<uint64_t> valueOf(const Parameter &param, const KernelInfo &kernel) const;
  Status fillValues(BoundKernel &kernel);
  Status bindMap(const TensorMapInfo &info);
  Status fillMaps();
  Status launch(BoundKernel &kernel, int64_t blocks);
};

Status Session::State::allocate(const std::string &name, int64_t bytes, MemoryUse use) {
  Buffer &buffer = buffers[name];
  if (!buffer || buffer.bytes() != static_cast<size_t>(bytes)) {
    buffer.reset(); // before the new one is asked for: both might not fit
    addresses.erase(name);
    Result<Buffer> made = Buffer::create(device, static_cast<size_t>(bytes), name, use);
    if (!made)
      return made.error();
    buffer = std::move(*made);
  }
  addresses[name] = buffer.address();
  stale = mapsStale = true;
  return {};
}

Status Session::State::copy(const std::string &name, const void *from, size_t bytes) {
  return device.copyIn(addresses[name], from, bytes);
}

void Session::State::setDimsOf(const Argument &argument, const TensorMap &tensors) {
  const auto set = [&](const char *dim, const char *tensor, size_t axis) {
    auto found = tensors.find(argument.name + "." + tensor);
    if (found != tensors.end() && found->second.shape.size() > axis)
      dims[argument.name + "." + dim] = static_cast<int32_t>(found->second.shape[axis]);
  };
  if (auto found = tensors.find(argument.name); found != tensors.end())
    for (size_t axis = 0; axis < found->second.shape.size(); ++axis)
      dims[argument.name + ".dim" + std::to_string(axis)] = static_cast<int32_t>(found->second.shape[axis]);
  set("instances", "lengths", 0);
  set("pages", "k_pages", 0);
  set("max_pages", "block_table", 1);
  set("tokens", "k", argument.store == Argument::Store::Dense ? 1 : 0);
}

Result<uint64_t> Session::State::valueOf(const Parameter &param, const KernelInfo &kernel) const {
  const auto word = [](auto value) {
    uint64_t slot = 0;
    std::memcpy(&slot, &value, sizeof(value));
    return slot;
  };
  switch (param.kind) {
  case Parameter::Kind::Buffer:
    if (auto found = addresses.find(param.name); found != addresses.end())
      return found->second;
    return inputError("kernel '" + kernel.name + "' needs buffer '" + param.name + "', which is not bound");
  case Parameter::Kind::Dim:
    if (param.name == "merge_rows")
      return word(static_cast<int32_t>(mergeRows));
    if (auto found = dims.find(param.name); found != dims.end())
      return word(found->second);
    return inputError("kernel '" + kernel.name + "' needs dimension '" + param.name + "', which is not set");
  case Parameter::Kind::End:
    return word(ends[static_cast<size_t>(param.index)]);
  case Parameter::Kind::Scale:
    return word(static_cast<float>(manifest.scale));
  case Parameter::Kind::Map:
    break; // its argument points to the map itself
  }
  return uint64_t{0};
}

Status Session::State::fillValues(BoundKernel &kernel) {
  for (size_t i = 0; i < kernel.info->params.size(); ++i) {
    Result<uint64_t> value = valueOf(kernel.info->params[i], *kernel.info);
    if (!value)
      return value.error();
    kernel.values[i] = *value;
  }
  return {};
}

Status Session::State::bindMap(const TensorMapInfo &info) {
  wanted.insert(info.buffer);
  maps[info.name].info = &info;
  if (zero)
    return {};
  Result<Buffer> made = Buffer::create(device, 16, "tensors without elements");
  if (!made)
    return made.error();
  zero = std::move(*made);
  return device.fill(zero.address(), 0, zero.bytes());
}

Status Session::State::fillMaps() {
  for (auto &[name, bound] : maps) {
    auto address = addresses.find(bound.info->buffer);
    if (address == addresses.end())
      return inputError("tensor map '" + name + "' needs buffer '" + bound.info->buffer +
                        "', which is not bound");
    MapMemory memory{address->second, {}};
    if (auto own = buffers.find(bound.info->buffer); own != buffers.end())
      memory.bytes = own->second.bytes();
    Result<BulkTensor> tensor = resolveTensorMap(*bound.info, dims, memory, zero.address());
    if (!tensor)
      return tensor.error();
    Result<EncodedMap> map = device.encode(*tensor);
    if (!map)
      return map.error();
    bound.map = *map;
  }
  return {};
}

Status Session::State::launch(BoundKernel &kernel, int64_t blocks) {
  const LaunchShape shape{{static_cast<uint32_t>(blocks), 1, 1},
                          {static_cast<uint32_t>(kernel.info->threads), 1, 1},
                          static_cast<uint32_t>(kernel.info->sharedBytes)};
  return device.launch(*kernel.kernel, shape, kernel.args.data());
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session &&) noexcept = default;
Session &Session::operator=(Session &&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(Device &device, const Manifest &manifest, const ModuleSource &source) {
  Result<std::unique_ptr<Module>> module = device.load(source);
  if (!module)
    return module.error();
  std::unique_ptr<State> state(
      new State{device, manifest, std::move(*module), {}, {}, {}, {}, {}, {}, {}, manifest.ends, {}});
  for (const KernelInfo &info : manifest.kernels) {
    Result<Kernel *> kernel = state->module->kernel(info.name, info.sharedBytes);
    if (!kernel)
      return kernel.error();
    BoundKernel bound{&info, *kernel, std::vector<uint64_t>(info.params.size()), {}};
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
      bound.args.back() = state->maps[param.name].map.bytes.data();
    }
    state->kernels.push_back(std::move(bound));
  }
  return Session(std::move(state));
}

Status Session::bind(const TensorMap &tensors, const Batch &batch) {
  State &s = *state_;
  for (const auto &[name, tensor] : tensors) {
    if (!s.wanted.count(name) || name == "o" || name == "lse")
      continue;
    if (Status status = s.allocate(name, static_cast<int64_t>(tensor.bytes.size())); !status)
      return status;
    if (Status status = s.copy(name, tensor.bytes.data(), tensor.bytes.size()); !status)
      return status;
  }
  s.rows = batch.rows;
  s.dims["rows"] = static_cast<int32_t>(batch.rows);
  s.dims["sequences"] = static_cast<int32_t>(batch.sequences());
  for (const Argument &argument : s.manifest.arguments)
    s.setDimsOf(argument, tensors);
  const int64_t results = batch.rows * s.manifest.qHeads;
  const auto element = static_cast<int64_t>(dtypeSize(s.manifest.dtype));
  if (Status status = s.allocate("o", results * s.manifest.valueDim * element); !status)
    return status;
  if (s.manifest.returnsLse || s.wanted.count("lse"))
    return s.allocate("lse", results * 4);
  return {};
}

Status Session::bindAddress(const std::string &name, DeviceAddress address) {
  State &s = *state_;
  if (!s.wanted.count(name))
    return inputError("no kernel of '" + s.manifest.entry + "' has a buffer '" + name + "'");
  s.buffers.erase(name);
  s.addresses[name] = address;
  s.stale = s.mapsStale = true;
  return {};
}

void Session::setDim(const std::string &name, int32_t value) {
  state_->dims[name] = value;
  state_->stale = state_->mapsStale = true;
}

Status Session::reserve(const PlanCapacity &capacity) {
  State &s = *state_;
  const struct {
    const char *name;
    int64_t bytes;
    MemoryUse use = MemoryUse::Plain;
  } sizes[] = {{"plan.block_tasks", (capacity.blocks + 1) * 4},
               {"plan.tasks", capacity.tasks * static_cast<int64_t>(sizeof(PlanTask))},
               {"plan.segments", capacity.segments * static_cast<int64_t>(sizeof(PlanSegment))},
               {"plan.merge_start", (capacity.mergeRows + 1) * 4},
               {"plan.merge_rows", capacity.mergeRows * 4},
               {"plan.merge_partials", capacity.mergePartials * 4},
               {"partial.o", capacity.partialRows * s.manifest.valueDim * 4, MemoryUse::Partials},
               {"partial.lse", capacity.partialRows * 4, MemoryUse::Partials}};
  for (const auto &size : sizes)
    if (Status status = s.allocate(size.name, size.bytes, size.use); !status)
      return status;
  s.capacity = capacity;
  return {};
}

Status Session::setPlan(const Plan &plan) {
  State &s = *state_;
  if (plan.kernel < 0 || plan.kernel >= static_cast<int>(s.kernels.size()) ||
      s.kernels[static_cast<size_t>(plan.kernel)].info->role != KernelInfo::Role::Attend ||
      plan.ends.size() != s.manifest.ends.size())
    return inputError("the plan was made for another kernel than '" + s.manifest.entry + "'");
  const struct {
    const char *name;
    const void *data;
    size_t count, size;
    int64_t room;
  } arrays[] = {
      {"plan.block_tasks", plan.blockTasks.data(), plan.blockTasks.size(), 4, s.capacity.blocks + 1},
      {"plan.tasks", plan.tasks.data(), plan.tasks.size(), sizeof(PlanTask), s.capacity.tasks},
      {"plan.segments", plan.segments.data(), plan.segments.size(), sizeof(PlanSegment), s.capacity.segments},
      {"plan.merge_start", plan.mergeStart.data(), plan.mergeStart.size(), 4, s.capacity.mergeRows + 1},
      {"plan.merge_rows", plan.mergeRows.data(), plan.mergeRows.size(), 4, s.capacity.mergeRows},
      {"plan.merge_partials", plan.mergePartials.data(), plan.mergePartials.size(), 4,
       s.capacity.mergePartials},
      {"partial.o", nullptr, static_cast<size_t>(plan.partialRows), 0, s.capacity.partialRows}};
  for (const auto &array : arrays)
    if (!s.addresses.count(array.name) || static_cast<int64_t>(array.count) > array.room)
      return inputError("the plan fills " + std::to_string(array.count) + " elements of '" + array.name +
                        "', but the session has reserved " + std::to_string(array.room));
  for (const auto &array : arrays)
    if (array.data)
      if (Status status = s.copy(array.name, array.data, array.count * array.size); !status)
        return status;
  s.planKernel = plan.kernel;
  s.planBlocks = plan.blocks;
  s.mergeRows = static_cast<int64_t>(plan.mergeRows.size());
  s.ends.assign(plan.ends.begin(), plan.ends.end());
  s.stale = true;
  return {};
}

Status Session::launch() {
  State &s = *state_;
  if (s.planKernel < 0)
    return inputError("launch of '" + s.manifest.entry + "' before a plan was set");
  if (s.stale)
    for (BoundKernel &kernel : s.kernels)
      if (Status status = s.fillValues(kernel); !status)
        return status;
  s.stale = false;
  if (s.mapsStale)
    if (Status status = s.fillMaps(); !status)
      return status;
  s.mapsStale = false;
  if (Status status = s.launch(s.kernels[static_cast<size_t>(s.planKernel)], s.planBlocks); !status)
    return status;
  if (s.mergeRows == 0)
    return {};
  for (BoundKernel &kernel : s.kernels)
    if (kernel.info->role == KernelInfo::Role::Merge) {
      const int64_t perBlock = kernel.info->rowsPerBlock;
      return s.launch(kernel, std::min<int64_t>((s.mergeRows + perBlock - 1) / perBlock, 65535));
    }
  return {};
}

Status Session::poison() {
  State &s = *state_;
  for (const char *name : {"o", "lse", "partial.o", "partial.lse"})
    if (auto found = s.buffers.find(name); found != s.buffers.end() && found->second.bytes() > 0)
      if (Status status = s.device.poison(found->second.address(), found->second.bytes()); !status)
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
  results["o"] = Tensor(s.manifest.dtype, {s.rows, s.manifest.qHeads, s.manifest.valueDim});
  if (s.manifest.returnsLse)
    results["lse"] = Tensor(DType::F32, {s.rows, s.manifest.qHeads});
  for (auto &[name, tensor] : results) {
    auto found = s.addresses.find(name);
    if (found == s.addresses.end())
      return inputError("'" + name + "' is not bound");
    if (Status status = s.device.copyOut(tensor.bytes.data(), found->second, tensor.bytes.size()); !status)
      return status.error();
  }
  return results;
}

DeviceAddress Session::address(const std::string &name) const {
  auto found = state_->addresses.find(name);
  return found == state_->addresses.end() ? 0 : found->second;
}

} // namespace attn::rt
