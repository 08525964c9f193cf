//===- State.cpp - What a session holds -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/State.h"

#include "session/Grid.h"
#include "session/TensorMaps.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace attn::rt {

Status Session::State::allocate(const std::string &name, int64_t bytes, MemoryUse use) {
  Buffer &buffer = buffers[name];
  if (!buffer || buffer.bytes() != static_cast<size_t>(bytes)) {
    if (fixed)
      return inputError("'" + name + "' has " + std::to_string(buffer.bytes()) +
                        " bytes, at an address that launches were fixed with, and is asked to have " +
                        std::to_string(bytes) + ": bind and reserve the most before fixLaunch");
    buffer.reset(); // freed before the new one is allocated: both might not fit
    addresses.erase(name);
    Result<Buffer> made = Buffer::create(device, static_cast<size_t>(bytes), name, use);
    if (!made)
      return made.error();
    buffer = std::move(*made);
  }
  addresses[name] = buffer.address();
  forget();
  return {};
}

Status Session::State::copy(const std::string &name, const void *from, size_t bytes) {
  return device.copyIn(addresses[name], from, bytes);
}

void Session::State::setDimsOf(const Argument &argument, const TensorMap &tensors) {
  if (auto found = tensors.find(argument.name); found != tensors.end())
    for (size_t axis = 0; axis < found->second.shape.size(); ++axis)
      dims[argument.name + ".dim" + std::to_string(axis)] = static_cast<int32_t>(found->second.shape[axis]);
  if (argument.role != Argument::Role::KV)
    return;
  const Store store = storeOf(argument);
  for (const auto &owned : {store.data(), store.tables()})
    for (const StoreTensor &tensor : owned) {
      auto found = tensors.find(argument.name + "." + tensor.name);
      for (size_t axis = 0; found != tensors.end() && axis < tensor.dims.size(); ++axis)
        if (const StoreDim &dim = tensor.dims[axis];
            dim.size && dim.value == 0 && found->second.shape.size() > axis)
          dims[argument.name + "." + std::string(sizeName(*dim.size))] =
              static_cast<int32_t>(found->second.shape[axis]);
    }
}

bool Session::State::isOfTable(const std::string &dim) const {
  return std::any_of(manifest.arguments.begin(), manifest.arguments.end(), [&](const Argument &argument) {
    return argument.role == Argument::Role::Tensor && dim.starts_with(argument.name + ".dim");
  });
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
    if (auto found = dims.find(param.name); found != dims.end()) {
      if (found->second < 1 && isOfTable(param.name))
        return inputError("dimension '" + param.name +
                          "': expected at least 1, as score functions read elements of its tensor, got " +
                          std::to_string(found->second));
      return word(found->second);
    }
    if (param.name.ends_with("." + std::string(sizeName(StoreSize::PageBytes))))
      return inputError(param.name.substr(0, param.name.find('.')) +
                        ": expected views into one memory of unified pages, got tensors that lie densely");
    return inputError("kernel '" + kernel.name + "' needs dimension '" + param.name + "', which is not set");
  case Parameter::Kind::End:
    return word(ends[static_cast<size_t>(param.index)]);
  case Parameter::Kind::Scale:
    return word(static_cast<float>(manifest.scale));
  case Parameter::Kind::Map:
    break; // the argument points to the map itself
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

/// Fills stale values. A kernel that makes plans needs values that only useDevicePlan sets.
Status Session::State::fillStale() {
  for (BoundKernel &kernel : kernels)
    if (stale && (kernel.info->role != KernelInfo::Role::Plan || plansOnDevice))
      if (Status status = fillValues(kernel); !status)
        return status;
  stale = false;
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

void Session::State::forget() {
  stale = strideDimsStale = true;
  for (auto &[name, bound] : maps) {
    bound.tensor.reset();
    bound.stale = true;
  }
}

Status Session::State::fillMaps(BoundKernel &kernel) {
  for (BoundMap *bound : kernel.maps) {
    if (!bound->stale)
      continue;
    const std::string &buffer = bound->info->buffer;
    auto address = addresses.find(buffer);
    if (address == addresses.end())
      return inputError("tensor map '" + bound->info->name + "' needs buffer '" + buffer +
                        "', which is not bound");
    if (bound->tensor) {
      if (bound->tensor->base != zero.address())
        bound->tensor->base = address->second;
    } else {
      MapMemory memory{address->second, {}};
      if (auto own = buffers.find(buffer); own != buffers.end())
        memory.bytes = own->second.bytes();
      Result<BulkTensor> tensor = resolveTensorMap(*bound->info, dims, memory, zero.address());
      if (!tensor)
        return tensor.error();
      bound->tensor = std::move(*tensor);
    }
    Result<EncodedMap> map = device.encode(*bound->tensor);
    if (!map)
      return map.error();
    bound->map = *map;
    bound->stale = false;
  }
  return {};
}

Status Session::State::clearUnwritten() {
  for (int32_t operand : unwritten)
    for (const ResultInfo &result : manifest.results) {
      const std::string &argument = manifest.operands[static_cast<size_t>(operand)].argument;
      if (!result.name.starts_with(argument + "."))
        continue;
      Result<std::vector<int64_t>> shape = result.shape(dims);
      if (!shape)
        return shape.error();
      const int64_t bytes = elementCount(*shape).value_or(0) * static_cast<int64_t>(dtypeSize(result.dtype));
      if (Status status = device.fill(addresses[result.name], 0, static_cast<size_t>(bytes)); !status)
        return status;
    }
  return {};
}

Status Session::State::clearSemaphores() {
  const auto array = static_cast<size_t>(PlanArray::Semaphores);
  const int64_t elements = fixed ? planBuffers(capacity, manifest)[array].elements : planElements[array];
  if (elements == 0)
    return {};
  const uint64_t address = addresses[std::string(planArrayName(PlanArray::Semaphores))];
  return device.fill(address, 0, static_cast<size_t>(elements) * sizeof(int32_t));
}

/// Launches a kernel. Walking kernels of a fixed launch have as many blocks as are resident at once, for as
/// many elements as a plan may have.
Status Session::State::launch(const LaunchInfo &launch) {
  const std::span<const int> planned = manifest.plannedKernels();
  const auto choice =
      static_cast<size_t>(std::find(planned.begin(), planned.end(), planKernel) - planned.begin());
  BoundKernel &kernel = kernels[static_cast<size_t>(launch.kernelFor(choice))];
  const KernelInfo &info = *kernel.info;
  const auto grid = static_cast<size_t>(*launch.grid);
  int64_t elements = planElements[grid], most = 65535;
  const bool walksFixed = fixed && info.rowsPerWarp > 0;
  if (elements == 0 && launch.onlyIfFilled && !walksFixed)
    return {};
  if (walksFixed) {
    elements = planBuffers(capacity, manifest)[grid].elements;
    most = int64_t{device.properties().multiprocessors} * info.blocksPerSM;
    if (info.role == KernelInfo::Role::Plan)
      most = std::min(most, mostPlanBlocks);
  }
  if (Status status = fillMaps(kernel); !status)
    return status;
  const LaunchShape shape{{static_cast<uint32_t>(gridBlocks(info, elements, 1, most)), 1, 1},
                          {static_cast<uint32_t>(info.threads), 1, 1},
                          static_cast<uint32_t>(info.sharedBytes),
                          launch.overlapsPrevious};
  return device.launch(*kernel.kernel, shape, kernel.args.data());
}

Status Session::State::checkFixed(const Plan &plan) const {
  const auto sizes = [](const std::vector<int32_t> &ends) {
    std::string text;
    for (int32_t end : ends)
      text += (text.empty() ? "" : ", ") + std::to_string(end);
    return text;
  };
  if (!fixed)
    return {};
  if (plan.kernel != fixed->kernel || plan.blocks != fixed->blocks)
    return inputError(
        "launches of '" + manifest.entry + "' were fixed for kernel '" + kernelName(fixed->kernel) + "' on " +
        std::to_string(fixed->blocks) + " blocks, and the plan is for '" + kernelName(plan.kernel) + "' on " +
        std::to_string(plan.blocks) + ": plan with PlanOptions::kernel = " + std::to_string(fixed->kernel) +
        " and blocks = " + std::to_string(fixed->blocks));
  const auto tasks = std::ssize(plan.tokenTasks), scoreTasks = std::ssize(plan.scoreTasks);
  const int64_t fixedTasks = planElements[static_cast<size_t>(PlanArray::TokenTasks)];
  const int64_t fixedScoreTasks = planElements[static_cast<size_t>(PlanArray::ScoreTasks)];
  if ((scoreTasks > 0) != (fixedScoreTasks > 0)) {
    const char *const kinds[] = {"other steps", "steps of one row that sees its whole sequence"};
    return inputError("launches of '" + manifest.entry + "' were fixed for " + kinds[fixedScoreTasks > 0] +
                      ", and the plan is of " + kinds[scoreTasks > 0] +
                      ": their significance needs a launch of its own");
  }
  const auto sums = std::ssize(plan.tokenSums);
  const int64_t fixedSums = planElements[static_cast<size_t>(PlanArray::TokenSums)];
  if (scoreTasks != fixedScoreTasks || tasks > fixedTasks || sums > fixedSums) {
    const bool more = scoreTasks == fixedScoreTasks && tasks <= fixedTasks;
    return inputError("launches of '" + manifest.entry + "' were fixed for " +
                      std::to_string(more ? fixedSums : fixedTasks + fixedScoreTasks) +
                      (more ? " pieces of cut tasks" : " tasks") + " of tokens, and the plan has " +
                      std::to_string(more ? sums : tasks + scoreTasks) +
                      ": tokens of other numbers need a launch of their own");
  }
  if (plan.ends != fixed->ends)
    return inputError("launches of '" + manifest.entry + "' were fixed with windows and sinks of " +
                      sizes(fixed->ends) + ", and the plan has " + sizes(plan.ends));
  return {};
}

/// Checks the dimensions that a kernel reads, or through which it sees a tensor.
Status Session::State::checkFixedDims() const {
  if (!fixed)
    return {};
  std::set<std::string> taken;
  for (const BoundKernel &kernel : kernels)
    for (const Parameter &param : kernel.info->params)
      if (param.kind == Parameter::Kind::Dim &&
          (kernel.info->role != KernelInfo::Role::Plan || plansOnDevice))
        taken.insert(param.name);
  for (const auto &[name, bound] : maps)
    for (const auto &dim : bound.info->dims)
      taken.insert(dim.of.begin(), dim.of.end());
  // Strides belong to a launch, as addresses do; sizes of dense tensors do not.
  for (const std::string &name : std::exchange(taken, {}))
    if (!strideDims.count(name))
      taken.insert(name);
    else if (name.ends_with(sizeName(StoreSize::OuterSlots)) || name.ends_with(sizeName(StoreSize::Slots)))
      for (StoreSize size : {StoreSize::Tokens, StoreSize::Pages})
        taken.insert(name.substr(0, name.rfind('.') + 1) + std::string(sizeName(size)));
  for (const std::string &name : taken)
    if (const auto now = dims.find(name), then = fixed->dims.find(name);
        now != dims.end() && then != fixed->dims.end() && now->second != then->second)
      return inputError("dimension '" + name + "' is " + std::to_string(now->second) +
                        ", and launches were fixed with " + std::to_string(then->second) +
                        ": launches hold it, so that batches of a fixed plan have to agree in it");
  return {};
}

} // namespace attn::rt
