//===- Kernel.cc - The C API's kernels ------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"
#include "attn_rt/session/LoadArtifact.h"

#include <algorithm>

using namespace attn::rt;
using namespace attn::rt::capi;

LoadedKernel::~LoadedKernel() {
  if (!module)
    return;
  auto held = device->use();
  if (held) {
    rooms.clear();
    module.reset();
    return;
  }
  // The device is lost, so these objects are leaked.
  new (std::nothrow) std::vector<PlanRoom>(std::move(rooms));
  new (std::nothrow) std::shared_ptr<Module>(std::move(module));
}

/// Limits of the workspaces kept for later plans. Every plan that replaces another one leaves a workspace,
/// and a few layers may have plans of their own. Larger workspaces are freed: their memory is worth more than
/// the time.
static constexpr size_t mostRooms = 4, mostRoomBytes = 32 << 20;

std::optional<PlanRoom> LoadedKernel::takeRoom(const PlanOptions &options) {
  rooms.reserve(mostRooms); // leaving a workspace may not fail
  const uint64_t stream = device->device->streamNumber();
  for (auto it = rooms.rbegin(); it != rooms.rend(); ++it)
    if (it->stream == stream && it->options == options) {
      PlanRoom found = std::move(*it);
      rooms.erase(std::next(it).base());
      found.plan.structure = 0; // prevents that an update extends it
      return found;
    }
  return std::nullopt;
}

/// Keeps a workspace. A checked host device tracks unwritten bytes, which needs new memory: it keeps none.
void LoadedKernel::leaveRoom(PlanRoom &&room) {
  const bool isChecked = device->host && device->host->options().check;
  if (!room.oneStream || isChecked || room.session->ownBytes() > mostRoomBytes) {
    room.session.reset();
    return;
  }
  if (rooms.size() == mostRooms)
    rooms.erase(rooms.begin());
  rooms.push_back(std::move(room));
}

namespace {

/// The caller's buffers in the order of the manifest, results last.
std::vector<std::string> slotsOf(const Manifest &manifest) {
  std::vector<std::string> slots;
  const auto isRead = [&](const std::string &name) {
    const auto reads = [&](const Parameter &param) {
      if (param.kind == Parameter::Kind::Buffer)
        return param.name == name;
      const TensorMapInfo *map =
          param.kind == Parameter::Kind::Map ? manifest.findTensorMap(param.name) : nullptr;
      return map && map->buffer == name;
    };
    return std::any_of(manifest.kernels.begin(), manifest.kernels.end(), [&](const KernelInfo &kernel) {
      return std::any_of(kernel.params.begin(), kernel.params.end(), reads);
    });
  };
  const auto add = [&](const std::string &name) {
    if (isRead(name))
      slots.push_back(name);
  };
  for (const Argument &argument : manifest.arguments) {
    if (argument.role != Argument::Role::KV) {
      add(argument.name);
      continue;
    }
    for (const StoreTensor &tensor : storeOf(argument).data())
      add(argument.name + "." + tensor.name);
  }
  add("ordinal_heads");
  for (const ResultInfo &result : manifest.results)
    add(result.name);
  return slots;
}

/// Finds the slots of a kernel, and what a run checks of each.
void findSlots(LoadedKernel &kernel) {
  kernel.slots = slotsOf(kernel.manifest);
  const std::vector<StridedTensor> strided = stridedTensors(kernel.manifest);
  for (size_t i = 0; i < kernel.slots.size(); ++i) {
    const auto found = std::find_if(strided.begin(), strided.end(), [&](const StridedTensor &tensor) {
      return tensor.name == kernel.slots[i];
    });
    // The session refuses strides of buffers that have none.
    kernel.ranks.push_back(found == strided.end() ? 1 : found->dims.size());
    if (kernel.manifest.findResult(kernel.slots[i]))
      kernel.written.push_back(i);
  }
}

/// Finds the tensors that a batch may give.
void findTensors(LoadedKernel &kernel) {
  using Reads = LoadedKernel::Reads;
  kernel.tensors = {{"q_start", Reads::Contents}, {"q_pos", Reads::Contents}};
  for (const Argument &argument : kernel.manifest.arguments) {
    if (argument.role != Argument::Role::KV) {
      kernel.tensors[argument.name] =
          argument.role == Argument::Role::Classes ? Reads::Contents : Reads::Sizes;
      continue;
    }
    const Store store = storeOf(argument);
    for (const StoreTensor &tensor : store.tables())
      kernel.tensors[argument.name + "." + tensor.name] =
          tensor.name == tableName(StoreTable::BlockTable) ? Reads::LargeContents : Reads::Contents;
    for (const StoreTensor &tensor : store.data())
      kernel.tensors[argument.name + "." + tensor.name] = Reads::Sizes;
  }
}

Result<AttnKernel *> load(const std::shared_ptr<SharedDevice> &device, std::span<const Artifact> artifacts,
                          const std::string &name, const std::string &entry) {
  auto held = device->use();
  if (!held)
    return held.error();
  auto loaded = loadArtifact(*device->device, artifacts, name, entry);
  if (!loaded)
    return loaded.error();
  auto kernel = std::make_shared<LoadedKernel>();
  kernel->device = device;
  kernel->manifest = std::move(loaded->manifest);
  kernel->manifestText = writeManifest(kernel->manifest);
  kernel->checked = loaded->checked;
  kernel->code = std::move(loaded->code);
  kernel->module = std::move(loaded->module);
  held->unlock();
  if (kernel->manifest.hasPlan()) {
    findSlots(*kernel);
    findTensors(*kernel);
  }
  return new AttnKernel{std::move(kernel)};
}

} // namespace

AttnStatus attnKernelLoad(AttnDevice *device, const void *artifact, size_t size, const char *name,
                          const char *entry, AttnKernel **kernel) {
  return guarded([&]() -> Status {
    if (Status status =
            required("device, artifact, kernel", device, static_cast<const char *>(artifact), kernel);
        !status)
      return status;
    const std::string file = name ? name : "kernel";
    auto artifacts = readArtifacts({static_cast<const char *>(artifact), size}, file);
    if (!artifacts)
      return artifacts.error();
    auto loaded = load(device->shared, *artifacts, file, entry ? entry : "");
    if (!loaded)
      return loaded.error();
    *kernel = *loaded;
    return {};
  });
}

void attnKernelDestroy(AttnKernel *kernel) { delete kernel; }
const char *attnKernelEntry(const AttnKernel *kernel) {
  return kernel ? kernel->loaded->manifest.entry.c_str() : nullptr;
}
const char *attnKernelManifest(const AttnKernel *kernel) {
  return kernel ? kernel->loaded->manifestText.c_str() : nullptr;
}
bool attnKernelIsChecked(const AttnKernel *kernel) { return kernel && kernel->loaded->checked; }
bool attnKernelIsCacheOperation(const AttnKernel *kernel) {
  return kernel && kernel->loaded->manifest.rowCopy() != nullptr;
}
size_t attnKernelSlotCount(const AttnKernel *kernel) { return kernel ? kernel->loaded->slots.size() : 0; }
const char *attnKernelSlot(const AttnKernel *kernel, size_t index) {
  return index < attnKernelSlotCount(kernel) ? kernel->loaded->slots[index].c_str() : nullptr;
}

AttnStatus attnKernelOrdinalHeads(const AttnKernel *kernel, const int32_t *classes, size_t count,
                                  int32_t *heads) {
  return guarded([&]() -> Status {
    if (Status status = required("kernel, classes, heads", kernel, classes, heads); !status)
      return status;
    const Manifest &manifest = kernel->loaded->manifest;
    if (manifest.headClasses.empty())
      return inputError("classes: '" + manifest.entry + "' has no head classes");
    if (count != static_cast<size_t>(manifest.kvHeads))
      return inputError("classes: expected one for each of the " + std::to_string(manifest.kvHeads) +
                        " KV heads, got " + std::to_string(count));
    Batch batch;
    batch.classes.assign(classes, classes + count);
    if (Status status = checkClasses(manifest, batch.classes); !status)
      return status;
    const std::vector<int32_t> order = ordinalHeads(manifest, batch);
    std::copy(order.begin(), order.end(), heads);
    return {};
  });
}
