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
  if (s.wanted.count("slot_heads")) {
    const std::vector<int32_t> heads = slotHeads(s.manifest, batch);
    const size_t bytes = heads.size() * sizeof(int32_t);
    if (Status status = s.allocate("slot_heads", static_cast<int64_t>(bytes)); !status)
      return status;
    if (Status status = s.copy("slot_heads", heads.data(), bytes); !status)
      return status;
    s.classHeads = classHeads(s.manifest, batch);
    s.slotHeads = heads;
    for (const Argument &argument : s.manifest.arguments)
      if (argument.headClass >= 0)
        s.dims[argument.name + ".heads"] = s.classHeads[static_cast<size_t>(argument.headClass)];
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
    if (Status status = s.allocate("lse", results * 4); !status)
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
  if (name == "slot_heads") {
    s.classHeads.clear();
    s.slotHeads.clear();
  }
  s.forget();
  return {};
}

void Session::setDim(const std::string &name, int32_t value) {
  state_->dims[name] = value;
  state_->forget();
}

Status Session::reserve(const PlanCapacity &capacity) {
  State &s = *state_;
  const struct {
    const char *name;
    int64_t bytes;
    MemoryUse use = MemoryUse::Plain;
  } sizes[] = {{"plan.block_tasks", (capacity.blocks + 1) * 4},
               {"plan.starts", capacity.blocks * static_cast<int64_t>(sizeof(PlanStart))},
               {"plan.slots", capacity.slots * 4},
               {"plan.bits", capacity.bits * 4},
               {"plan.tasks", capacity.tasks * static_cast<int64_t>(sizeof(PlanTask))},
               {"plan.segments", capacity.segments * static_cast<int64_t>(sizeof(PlanSegment))},
               {"plan.merge_start", (capacity.mergeRows + 2) * 4},
               {"plan.merge_rows", capacity.mergeRows * 4},
               {"plan.merge_partials", capacity.mergePartials * 4},
               {"partial.o", capacity.partialRows * s.manifest.valueDim * 4, MemoryUse::Partials},
               {"partial.lse", capacity.partialRows * 4, MemoryUse::Partials}};
  for (const auto &size : sizes)
    if (Status status = s.allocate(size.name, size.bytes, size.use); !status)
      return status;
  s.capacity = capacity;
  s.planStructure = 0;
  return {};
}

static void fillStarts(const Plan &plan, std::vector<PlanStart> &starts) {
  starts.assign(static_cast<size_t>(plan.blocks), PlanStart{});
  for (size_t block = 0; block < starts.size(); ++block) {
    const int32_t first = plan.blockTasks[block];
    if (first == plan.blockTasks[block + 1])
      continue;
    starts[block].tasksBegin = first;
    starts[block].tasksEnd = plan.blockTasks[block + 1];
    const PlanTask &task = starts[block].task = plan.tasks[static_cast<size_t>(first)];
    if (task.segmentBegin < task.segmentEnd)
      starts[block].segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
  }
}

Status Session::setPlan(const Plan &plan) {
  State &s = *state_;
  if (plan.kernel < 0 || plan.kernel >= static_cast<int>(s.kernels.size()) ||
      s.kernels[static_cast<size_t>(plan.kernel)].info->role != KernelInfo::Role::Attend ||
      plan.ends.size() != s.manifest.ends.size())
    return inputError("the plan was made for another kernel than '" + s.manifest.entry + "'");
  if (Status status = s.checkFixed(plan); !status)
    return status;
  // A plan that was only extended differs in what tasks read, of which blocks start with a copy.
  const bool extended = plan.structure != 0 && plan.structure == s.planStructure;
  if (!extended) { // how many lists there are stands before where they start
    s.mergeStart.assign({static_cast<int32_t>(plan.mergeRows.size())});
    s.mergeStart.insert(s.mergeStart.end(), plan.mergeStart.begin(), plan.mergeStart.end());
  }
  fillStarts(plan, s.starts);
  const struct {
    const char *name;
    const void *data;
    size_t count, size;
    int64_t room;
  } arrays[] = {
      {"plan.block_tasks", plan.blockTasks.data(), plan.blockTasks.size(), 4, s.capacity.blocks + 1},
      {"plan.starts", s.starts.data(), s.starts.size(), sizeof(PlanStart), s.capacity.blocks},
      {"plan.slots", plan.slots.data(), plan.slots.size(), 4, s.capacity.slots},
      {"plan.bits", plan.bits.data(), plan.bits.size(), 4, s.capacity.bits},
      {"plan.tasks", plan.tasks.data(), plan.tasks.size(), sizeof(PlanTask), s.capacity.tasks},
      {"plan.segments", plan.segments.data(), plan.segments.size(), sizeof(PlanSegment), s.capacity.segments},
      {"plan.merge_start", s.mergeStart.data(), plan.mergeStart.size() + 1, 4, s.capacity.mergeRows + 2},
      {"plan.merge_rows", plan.mergeRows.data(), plan.mergeRows.size(), 4, s.capacity.mergeRows},
      {"plan.merge_partials", plan.mergePartials.data(), plan.mergePartials.size(), 4,
       s.capacity.mergePartials},
      {"partial.o", nullptr, static_cast<size_t>(plan.partialRows), 0, s.capacity.partialRows}};
  for (const auto &array : arrays)
    if (!s.addresses.count(array.name) || static_cast<int64_t>(array.count) > array.room)
      return inputError("the plan fills " + std::to_string(array.count) + " elements of '" + array.name +
                        "', but the session has reserved " + std::to_string(array.room));
  s.planStructure = 0;
  for (const auto &array : arrays)
    if (array.data)
      if (!extended || array.data == plan.segments.data() || array.data == s.starts.data())
        if (Status status = s.copy(array.name, array.data, array.count * array.size); !status)
          return status;
  s.planStructure = plan.structure;
  s.planKernel = plan.kernel;
  s.planBlocks = plan.blocks;
  s.mergeRows = static_cast<int64_t>(plan.mergeRows.size());
  s.ends.assign(plan.ends.begin(), plan.ends.end());
  s.planClassHeads = plan.classHeads;
  s.planSlotHeads = plan.slotHeads;
  s.stale |= !extended;
  return {};
}

Status Session::launch() {
  State &s = *state_;
  if (s.planKernel < 0)
    return inputError("launch of '" + s.manifest.entry + "' before a plan was set");
  if (!s.classHeads.empty() && s.classHeads != s.planClassHeads)
    return inputError("the plan of '" + s.manifest.entry + "' was made for " +
                      classHeadsText(s.manifest, s.planClassHeads) + " heads, but 'classes' says " +
                      classHeadsText(s.manifest, s.classHeads));
  if (!s.slotHeads.empty() && !s.planSlotHeads.empty() && s.slotHeads != s.planSlotHeads)
    return inputError(
        "the plan of '" + s.manifest.entry +
        "' was made for other 'classes': where heads are ragged each has work of its own, and a "
        "layer needs a plan of its own");
  if (s.stale)
    for (BoundKernel &kernel : s.kernels)
      if (Status status = s.fillValues(kernel); !status)
        return status;
  s.stale = false;
  if (Status status = s.launch(s.kernels[static_cast<size_t>(s.planKernel)], s.planBlocks); !status)
    return status;
  return s.mergeRows == 0 && !s.fixed ? Status() : s.launchMerge();
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
