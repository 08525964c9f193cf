//===- Device.cc - The C API's devices ------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"
#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/support/Chips.h"

using namespace attn::rt;
using namespace attn::rt::capi;

Result<std::unique_lock<std::mutex>> SharedDevice::hold() {
  if (!host && born != forkCount())
    return Error{ErrorKind::Device, "cuda: '" + device->properties().name +
                                        "' was opened before this process was forked, which CUDA does not "
                                        "survive: open it in the child, or start the child anew (spawn)"};
  return lock.take("the device");
}

Result<std::unique_lock<std::mutex>> SharedDevice::use(uintptr_t stream) {
  auto held = hold();
  if (!held)
    return held;
  if (Status status = device->useStream(reinterpret_cast<void *>(stream)); !status)
    return status.error();
  return held;
}

OwnedMemory::~OwnedMemory() {
  if (!buffer)
    return;
  auto held = device->use();
  if (held)
    buffer.reset();
  else
    new (std::nothrow) Buffer(std::move(buffer)); // the device may not be used: its memory is leaked
}

AttnStatus attnDeviceOpenHost(const AttnHostOptions *options, AttnDevice **device) {
  return guarded([&]() -> Status {
    if (Status status = required("device", device); !status)
      return status;
    host::LaunchOptions launch;
    const AttnHostOptions given = options ? *options : AttnHostOptions{};
    if (given.threads > 1024)
      return inputError("threads: expected at most 1024, got " + std::to_string(given.threads));
    launch.check = given.checked;
    launch.shuffle = given.shuffle;
    launch.threads = given.threads;
    launch.seed = given.seed;
    launch.nameSignals = !given.leaveSignals;
    auto shared = std::make_shared<SharedDevice>();
    auto made = makeHostDevice(launch);
    shared->host = made.get();
    shared->device = std::move(made);
    shared->target = "sm_90a";
    *device = new AttnDevice{std::move(shared)};
    return {};
  });
}

AttnStatus attnDeviceSetInterrupt(AttnDevice *device, bool (*interrupted)(void)) {
  return guarded([&]() -> Status {
    if (Status status = required("device", device); !status)
      return status;
    auto held = device->shared->use();
    if (!held)
      return held.error();
    device->shared->interrupted = interrupted;
    return {};
  });
}

AttnStatus attnDeviceOpenCuda(int32_t index, const char *library, AttnDevice **device) {
  return guarded([&]() -> Status {
    if (Status status = required("device", device); !status)
      return status;
    CudaOptions options;
    options.index = index;
    if (library)
      options.library = library;
    auto opened = openCudaDevice(options);
    if (!opened)
      return opened.error();
    auto shared = std::make_shared<SharedDevice>();
    shared->device = std::move(*opened);
    shared->index = index;
    shared->target = targetOfGpu(shared->device->properties().computeCapability);
    *device = new AttnDevice{std::move(shared)};
    return {};
  });
}

int32_t attnCudaDeviceCount(void) {
  return guardedValue(0, [] { return cudaDeviceCount(); });
}

void attnDeviceDestroy(AttnDevice *device) { delete device; }

AttnDeviceInfo attnDeviceInfo(const AttnDevice *device) {
  if (!device)
    return {};
  const SharedDevice &shared = *device->shared;
  const DeviceProperties &properties = shared.device->properties();
  AttnDeviceInfo info{};
  info.kind = shared.host ? "host" : "cuda";
  info.name = properties.name.c_str();
  info.target = shared.target.c_str();
  info.index = shared.index;
  info.multiprocessors = properties.multiprocessors;
  info.computeCapability = properties.computeCapability;
  info.driverVersion = properties.driverVersion;
  info.sharedBytes = properties.sharedBytesPerBlock;
  info.l2Bytes = properties.l2Bytes;
  info.memoryBytes = properties.memoryBytes;
  return info;
}

AttnStatus attnDeviceSynchronize(AttnDevice *device, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("device", device); !status)
      return status;
    auto held = device->shared->use(stream);
    return held ? device->shared->device->synchronize() : held.error();
  });
}

AttnStatus attnDeviceCapture(AttnDevice *device, uintptr_t stream, uint64_t *capture) {
  return guarded([&]() -> Status {
    if (Status status = required("device, capture", device, capture); !status)
      return status;
    auto held = device->shared->use(stream);
    if (!held)
      return held.error();
    *capture = device->shared->device->capture();
    return {};
  });
}

AttnStatus attnMemoryCreate(AttnDevice *device, size_t bytes, const char *label, AttnMemory **memory) {
  return guarded([&]() -> Status {
    if (Status status = required("device, memory", device, memory); !status)
      return status;
    auto owned = std::make_shared<OwnedMemory>();
    owned->device = device->shared;
    auto held = device->shared->use();
    if (!held)
      return held.error();
    auto made = Buffer::create(*device->shared->device, bytes, label ? label : "memory");
    if (!made)
      return made.error();
    owned->buffer = std::move(*made);
    *memory = new AttnMemory{std::move(owned)};
    return {};
  });
}

void attnMemoryDestroy(AttnMemory *memory) { delete memory; }
uint64_t attnMemoryAddress(const AttnMemory *memory) { return memory ? memory->owned->buffer.address() : 0; }
size_t attnMemorySize(const AttnMemory *memory) { return memory ? memory->owned->buffer.bytes() : 0; }

/// Checks the range, then calls `body` with the device locked.
template <typename Body>
static AttnStatus withMemory(const AttnMemory *memory, size_t offset, const void *data, size_t bytes,
                             Body body) {
  return guarded([&]() -> Status {
    if (Status status = required("memory", memory); !status)
      return status;
    const OwnedMemory &owned = *memory->owned;
    if (offset > owned.buffer.bytes() || bytes > owned.buffer.bytes() - offset)
      return inputError("expected bytes within the memory's " + std::to_string(owned.buffer.bytes()) +
                        ", got " + std::to_string(bytes) + " from " + std::to_string(offset) + " on");
    if (bytes && !data)
      return inputError("expected " + std::to_string(bytes) + " bytes, got null");
    auto held = owned.device->use();
    return held ? body(*owned.device->device, owned.buffer.address() + offset) : held.error();
  });
}

AttnStatus attnMemoryCopyIn(AttnMemory *memory, size_t offset, const void *from, size_t bytes) {
  return withMemory(memory, offset, from, bytes, [&](Device &device, DeviceAddress to) {
    Status copied = device.copyIn(to, from, bytes);
    return copied ? device.synchronize() : copied;
  });
}

AttnStatus attnMemoryCopyOut(const AttnMemory *memory, size_t offset, void *to, size_t bytes) {
  return withMemory(memory, offset, to, bytes,
                    [&](Device &device, DeviceAddress from) { return device.copyOut(to, from, bytes); });
}

AttnStatus attnMemoryFill(AttnMemory *memory, uint8_t byte) {
  return withMemory(memory, 0, nullptr, 0, [&](Device &device, DeviceAddress to) {
    return device.fill(to, byte, memory->owned->buffer.bytes());
  });
}

AttnStatus attnMemoryPoison(AttnMemory *memory) {
  return withMemory(memory, 0, nullptr, 0, [&](Device &device, DeviceAddress to) {
    return device.poison(to, memory->owned->buffer.bytes());
  });
}
