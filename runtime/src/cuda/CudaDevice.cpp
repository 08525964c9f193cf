//===- CudaDevice.cpp - A GPU through NVIDIA's driver ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cuda/CudaDevice.h"
#include "cuda/CudaModule.h"
#include "cuda/CudaRecorder.h"
#include "cuda/CudaStaging.h"
#include "cuda/CudaTensorMap.h"

namespace attn::rt {

using namespace cuda;

namespace {

struct CudaEvent final : Event {
  CudaEvent(const Api &api, CUcontext context) : api(api), context(context) {}
  ~CudaEvent() override {
    Current current(api, context);
    if (event)
      (void)api.cuEventDestroy_v2(event);
  }
  const Api &api;
  CUcontext context;
  CUevent event = nullptr;
};

class CudaDevice final : public Device {
public:
  CudaDevice(const Api &api, CUdevice device, CUcontext context, CUstream stream, DeviceProperties properties)
      : api_(api), device_(device), context_(context), stream_(stream), properties_(std::move(properties)),
        recorder_(std::in_place, api, context), staging_(std::in_place, api) {}
  ~CudaDevice() override {
    {
      Current current(api_, context_);
      (void)api_.cuStreamSynchronize(stream_);
      recorder_.reset();
      staging_.reset();
    }
    (void)api_.cuDevicePrimaryCtxRelease_v2(device_);
  }

  std::string_view kind() const override { return "cuda"; }
  const DeviceProperties &properties() const override { return properties_; }

  Result<DeviceAddress> allocate(size_t bytes, const std::string &label, MemoryUse) override {
    Current current(api_, context_);
    CUdeviceptr address = 0;
    // The driver refuses sizes of 0.
    const CUresult result = api_.cuMemAlloc_v2(&address, bytes ? bytes : 1);
    if (result == outOfMemory) {
      size_t available = 0, total = 0;
      (void)api_.cuMemGetInfo_v2(&available, &total);
      return Error{ErrorKind::Memory, "cuda: out of memory allocating '" + label + "': asked for " +
                                          std::to_string(bytes) + " bytes, free are " +
                                          std::to_string(available) + " of " + std::to_string(total)};
    }
    if (result != success)
      return api_.error(result, "allocating " + std::to_string(bytes) + " bytes for '" + label + "'");
    return address;
  }
  Status free(DeviceAddress address) override {
    Current current(api_, context_);
    return check(api_.cuMemFree_v2(address), "freeing memory");
  }
  Status copyIn(DeviceAddress to, const void *from, size_t bytes) override {
    Current current(api_, context_);
    if (bytes == 0)
      return {};
    // A graph would read the source when it is replayed, and by then that memory holds something else.
    if (isCaptured())
      return inputError("cuda: the stream is being captured, and a copy to the device cannot be: plan, "
                        "update plans and write keys before the capture, or between replays");
    return staging_->copyIn(to, from, bytes, stream_);
  }
  Status copyPieces(DeviceAddress to, std::span<const CopyPiece> pieces) override {
    Current current(api_, context_);
    const size_t begin = pieces.empty() ? 0 : pieces.front().offset;
    const size_t bytes = pieces.empty() ? 0 : pieces.back().offset + pieces.back().bytes - begin;
    if (isCaptured() || pieces.size() < 2 || bytes > Staging::mostGathered)
      return Device::copyPieces(to, pieces);
    return staging_->copyIn(to + begin, pieces, bytes, stream_);
  }
  Status copyOut(void *to, DeviceAddress from, size_t bytes) override {
    Current current(api_, context_);
    if (bytes == 0)
      return {};
    if (Status s = check(api_.cuMemcpyDtoHAsync_v2(to, from, bytes, stream_), "copying from the device"); !s)
      return s;
    return wait();
  }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    Current current(api_, context_);
    if (bytes == 0)
      return {};
    return check(api_.cuMemcpyDtoDAsync_v2(to, from, bytes, stream_), "copying within the device");
  }
  Status fill(DeviceAddress to, uint8_t byte, size_t bytes) override {
    Current current(api_, context_);
    if (bytes == 0)
      return {};
    CUstream stream = recorder_->stream() ? recorder_->stream() : stream_;
    return check(api_.cuMemsetD8Async(to, byte, bytes, stream), "filling memory");
  }
  Status poison(DeviceAddress address, size_t bytes) override { return fill(address, 0xff, bytes); }

  Result<EncodedMap> encode(const BulkTensor &tensor) override {
    Current current(api_, context_);
    return encodeTensorMap(api_, tensor);
  }

  Result<std::unique_ptr<Module>> load(const ModuleSource &source) override {
    return loadModule(api_, context_, properties_, source);
  }
  Status launch(const Kernel &kernel, const LaunchShape &shape, void **args) override {
    Current current(api_, context_);
    const auto &handle = static_cast<const CudaKernel &>(kernel);
    lastKernel_ = handle.name;
    const bool recording = recorder_->stream();
    CUstream stream = recording ? recorder_->stream() : stream_;
    if (shape.overlapsPrevious && api_.cuLaunchKernelEx && properties_.computeCapability >= 90 &&
        (!recording || recorder_->takesOverlap())) {
      LaunchAttribute overlap{programmaticStreamSerialization, {}, {}};
      overlap.value.flag = 1;
      LaunchConfig config{{shape.grid[0], shape.grid[1], shape.grid[2]},
                          {shape.block[0], shape.block[1], shape.block[2]},
                          shape.sharedBytes,
                          stream,
                          &overlap,
                          1};
      return check(api_.cuLaunchKernelEx(&config, handle.function, args, nullptr),
                   "launching kernel '" + handle.name + "'");
    }
    return check(api_.cuLaunchKernel(handle.function, shape.grid[0], shape.grid[1], shape.grid[2],
                                     shape.block[0], shape.block[1], shape.block[2], shape.sharedBytes,
                                     stream, args, nullptr),
                 "launching kernel '" + handle.name + "'");
  }
  Status synchronize() override {
    Current current(api_, context_);
    return wait();
  }

  Status useStream(void *stream) override {
    if (stream_ == stream)
      return {};
    Current current(api_, context_);
    Status left = staging_->leave(stream_);
    stream_ = static_cast<CUstream>(stream);
    return left;
  }
  uint64_t streamNumber() override {
    Current current(api_, context_);
    unsigned long long number = 0;
    if (isCaptured()) // the query would invalidate the capture
      return 0;
    return api_.cuStreamGetId && api_.cuStreamGetId(stream_, &number) == success ? number + 1 : 0;
  }

  Status beginRecording() override {
    Current current(api_, context_);
    return recorder_->begin();
  }
  Result<std::unique_ptr<Recording>> endRecording() override {
    Current current(api_, context_);
    return recorder_->end();
  }
  bool isRecording() override { return recorder_->stream() || isCaptured(); }
  uint64_t capture() override {
    int status = 0;
    unsigned long long number = 0;
    if (!isCaptured())
      return 0;
    const bool known =
        api_.cuStreamGetCaptureInfo_v2 &&
        api_.cuStreamGetCaptureInfo_v2(stream_, &status, &number, nullptr, nullptr, nullptr) == success;
    if (!known)
      number = captures_++; // of an older driver: another number in each call
    return 2 * number + (known ? 1 : 2);
  }
  Status replay(const Recording &recording) override {
    Current current(api_, context_);
    return recorder_->replay(recording, stream_);
  }

  Result<std::unique_ptr<Event>> createEvent() override {
    Current current(api_, context_);
    auto event = std::make_unique<CudaEvent>(api_, context_);
    if (CUresult result = api_.cuEventCreate(&event->event, 0); result != success)
      return api_.error(result, "creating an event");
    return std::unique_ptr<Event>(std::move(event));
  }
  Status record(Event &event) override {
    Current current(api_, context_);
    return check(api_.cuEventRecord(static_cast<CudaEvent &>(event).event, stream_), "recording an event");
  }
  Result<double> elapsed(Event &begin, Event &end) override {
    Current current(api_, context_);
    CUevent from = static_cast<CudaEvent &>(begin).event, to = static_cast<CudaEvent &>(end).event;
    CUresult result = api_.cuEventSynchronize(to);
    float milliseconds = 0;
    if (result == success)
      result = api_.cuEventElapsedTime(&milliseconds, from, to);
    if (result != success)
      return api_.error(result, "measuring the time between two events");
    return milliseconds * 1e-3;
  }

private:
  /// Whether the caller is capturing the stream into a graph. The legacy default stream cannot be captured.
  bool isCaptured() const {
    int status = 0; // CUstreamCaptureStatus: 0 is none
    return stream_ && api_.cuStreamIsCapturing && api_.cuStreamIsCapturing(stream_, &status) == success &&
           status != 0;
  }

  const Api &api_;
  CUdevice device_;
  CUcontext context_;
  CUstream stream_;
  DeviceProperties properties_;
  std::string lastKernel_;
  unsigned long long captures_ = 0;
  std::optional<Recorder> recorder_; ///< both are destroyed before the context
  std::optional<Staging> staging_;

  Status check(CUresult result, const std::string &action) const {
    if (result == success)
      return {};
    return api_.error(result, action);
  }
  /// A kernel's fault is reported here, long after its launch.
  Status wait() const {
    return check(api_.cuStreamSynchronize(stream_),
                 lastKernel_.empty() ? "waiting for the device"
                                     : "running kernel '" + lastKernel_ + "' or work before it");
  }
};

/// Reads all properties, or returns the driver's error: a device with zeros for unknown properties would plan
/// and launch wrongly.
Result<DeviceProperties> readProperties(const Api &api, CUdevice device, int index) {
  DeviceProperties properties;
  char name[256] = "";
  size_t memory = 0;
  CUresult result = api.cuDeviceGetName(name, sizeof(name), device);
  if (result == success)
    result = api.cuDeviceTotalMem_v2(&memory, device);
  const auto attribute = [&](Attribute which) {
    int value = 0;
    if (result == success)
      result = api.cuDeviceGetAttribute(&value, which, device);
    return value;
  };
  properties.name = name;
  properties.memoryBytes = static_cast<int64_t>(memory);
  properties.multiprocessors = attribute(multiprocessorCount);
  properties.sharedBytesPerBlock = attribute(sharedBytesPerBlockOptin);
  properties.threadsPerBlock = attribute(threadsPerBlock);
  properties.l2Bytes = attribute(l2CacheSize);
  properties.computeCapability = attribute(computeCapabilityMajor) * 10 + attribute(computeCapabilityMinor);
  properties.driverVersion = api.driverVersion;
  if (result != success)
    return api.error(result, "asking for the properties of device " + std::to_string(index));
  return properties;
}

} // namespace

Result<std::unique_ptr<Device>> openCudaDevice(const CudaOptions &options) {
  Result<const Api *> loaded = loadApi(options.library);
  if (!loaded)
    return loaded.error();
  const Api &api = **loaded;
  int count = 0;
  if (CUresult result = api.cuDeviceGetCount(&count); result != success)
    return api.error(result, "counting devices");
  if (count == 0)
    return Error{ErrorKind::Device, "cuda: the NVIDIA driver finds no device"};
  if (options.index < 0 || options.index >= count)
    return inputError("cuda: there is no device " + std::to_string(options.index) + "; there are " +
                      std::to_string(count) + ", counted from 0");
  CUdevice device = 0;
  if (CUresult result = api.cuDeviceGet(&device, options.index); result != success)
    return api.error(result, "opening device " + std::to_string(options.index));

  Result<DeviceProperties> properties = readProperties(api, device, options.index);
  if (!properties)
    return properties.error();
  CUcontext context = nullptr;
  if (CUresult result = api.cuDevicePrimaryCtxRetain(&context, device); result != success)
    return api.error(result, "making a context on '" + properties->name + "'");
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(
      api, device, context, static_cast<CUstream>(options.stream), std::move(*properties)));
}

int cudaDeviceCount() {
  Result<const Api *> api = loadApi(CudaOptions().library);
  int count = 0;
  return api && (*api)->cuDeviceGetCount(&count) == success ? count : 0;
}

} // namespace attn::rt
