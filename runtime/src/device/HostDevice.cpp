//===- HostDevice.cpp - The executor as a device --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/host/TensorMap.h"

#include <chrono>
#include <cstring>
#include <unistd.h>
#include <variant>

namespace attn::rt {

namespace {

// The number of multiprocessors that plans are made for. It is fixed, not the number of cores at hand, so
// that plans and with them results are the same on every machine.
constexpr int multiprocessors = 16;
// The limit of sm_90. The compiler checks a kernel's shared memory against its chip when it compiles.
constexpr int64_t sharedBytesPerBlock = 232448;

struct HostKernelHandle final : Kernel {
  const host::HostKernel *kernel = nullptr;
};

/// A launch with copies of its arguments.
struct HostLaunch {
  const host::HostKernel *kernel;
  LaunchShape shape;
  std::vector<EncodedMap> args; ///< each padded to the size of the largest parameter type
};

struct HostFill {
  DeviceAddress to;
  uint8_t byte;
  size_t bytes;
};

struct HostRecording final : Recording {
  std::vector<std::variant<HostLaunch, HostFill>> work;
  Status failed; ///< the error of the first launch that was refused
};

struct HostEvent final : Event {
  std::optional<std::chrono::steady_clock::time_point> time;
};

class HostModule final : public Module {
public:
  explicit HostModule(const ModuleSource &source) : name_(source.name) {
    for (const host::HostKernel &kernel : source.hostKernels) {
      kernels_.push_back(std::make_unique<HostKernelHandle>());
      kernels_.back()->kernel = &kernel;
    }
  }
  Result<Kernel *> kernel(const std::string &name, int64_t sharedBytes) override {
    if (sharedBytes > sharedBytesPerBlock)
      return Error{ErrorKind::Device, "host: kernel '" + name + "' asks for " + std::to_string(sharedBytes) +
                                          " bytes of shared memory; at most " +
                                          std::to_string(sharedBytesPerBlock) + " are possible"};
    for (const auto &handle : kernels_)
      if (handle->kernel->name == name)
        return handle.get();
    return Error{ErrorKind::Device, "host: module '" + name_ + "' has no kernel '" + name + "'"};
  }

private:
  std::string name_;
  std::vector<std::unique_ptr<HostKernelHandle>> kernels_;
};

class HostDeviceImpl final : public HostDevice {
public:
  explicit HostDeviceImpl(const host::LaunchOptions &options) : options_(options) {
    properties_.name = "host";
    properties_.multiprocessors = multiprocessors;
    properties_.sharedBytesPerBlock = sharedBytesPerBlock;
    properties_.memoryBytes =
        static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
  }

  std::string_view kind() const override { return "host"; }
  const DeviceProperties &properties() const override { return properties_; }
  host::LaunchOptions &options() override { return options_; }
  const host::Report &report() const override { return report_; }
  void resetReport() override { report_ = {}; }
  const HostWork &work() const override { return work_; }
  void resetWork() override { work_ = {}; }

  Result<DeviceAddress> allocate(size_t bytes, const std::string &label, MemoryUse use) override {
    // The system would overcommit and kill the process later.
    if (bytes > static_cast<size_t>(properties_.memoryBytes))
      return Error{ErrorKind::Memory, "host: out of memory allocating '" + label + "': asked for " +
                                          std::to_string(bytes) + " bytes, the machine has " +
                                          std::to_string(properties_.memoryBytes)};
    ++work_.allocations;
    Result<void *> memory = memory_.alloc(bytes, label);
    if (!memory)
      return memory.error();
    if (use == MemoryUse::Partials)
      memory_.setTag(*memory, host::Tag::Partials);
    return reinterpret_cast<DeviceAddress>(*memory);
  }
  Status free(DeviceAddress address) override {
    inFlight_.settle();
    return memory_.free(pointer(address));
  }

  Status copyIn(DeviceAddress to, const void *from, size_t bytes) override {
    inFlight_.settle();
    if (Status s = check(to, bytes, "copy to"); !s)
      return s;
    ++work_.copies;
    if (bytes)
      std::memcpy(pointer(to), from, bytes);
    memory_.markWritten(pointer(to), bytes);
    return {};
  }
  Status copyOut(void *to, DeviceAddress from, size_t bytes) override {
    inFlight_.settle();
    if (Status s = check(from, bytes, "copy from"); !s)
      return s;
    if (bytes)
      std::memcpy(to, pointer(from), bytes);
    return {};
  }
  Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) override {
    inFlight_.settle();
    Status s = check(to, bytes, "copy to");
    if (s)
      s = check(from, bytes, "copy from");
    if (!s)
      return s;
    if (bytes)
      std::memcpy(pointer(to), pointer(from), bytes);
    memory_.markWritten(pointer(to), bytes);
    return {};
  }
  Status fill(DeviceAddress to, uint8_t byte, size_t bytes) override {
    if (recording_) {
      recording_->work.emplace_back(HostFill{to, byte, bytes});
      return {};
    }
    inFlight_.settle();
    if (Status s = check(to, bytes, "fill"); !s)
      return s;
    std::memset(pointer(to), byte, bytes);
    memory_.markWritten(pointer(to), bytes);
    return {};
  }
  Status poison(DeviceAddress address, size_t bytes) override {
    inFlight_.settle();
    if (Status s = check(address, bytes, "poison"); !s)
      return s;
    memory_.poison(pointer(address));
    return {};
  }

  Result<EncodedMap> encode(const BulkTensor &tensor) override {
    if (Status s = checkBulkTensor(tensor); !s)
      return s.error();
    return host::encodeTensorMap(tensor);
  }

  Result<std::unique_ptr<Module>> load(const ModuleSource &source) override {
    if (source.hostKernels.empty())
      return Error{ErrorKind::Device, "host: module '" + source.name + "' has no code for this device"};
    return std::unique_ptr<Module>(std::make_unique<HostModule>(source));
  }
  Status launch(const Kernel &kernel, const LaunchShape &shape, void **args) override {
    const host::HostKernel &code = *static_cast<const HostKernelHandle &>(kernel).kernel;
    if (!recording_)
      return run(code, shape, args);
    Status noted = note(code, shape, args);
    if (recording_->failed)
      recording_->failed = noted;
    return noted;
  }
  Status synchronize() override {
    inFlight_.settle();
    return {};
  }
  Status useStream(void *) override { return {}; }
  uint64_t streamNumber() override { return 1; }
  Status adopt(void *memory, size_t bytes, const std::string &label) override {
    return memory_.adopt(memory, bytes, label);
  }
  Status release(void *memory) override { return free(reinterpret_cast<DeviceAddress>(memory)); }
  bool holds(const void *memory, size_t bytes) const override {
    const host::Allocation *allocation = memory_.find(memory);
    return allocation && allocation->contains(memory, bytes);
  }

  Status beginRecording() override {
    if (recording_)
      return Error{ErrorKind::Device, "host: a recording has begun already"};
    recording_ = std::make_unique<HostRecording>();
    return {};
  }
  Result<std::unique_ptr<Recording>> endRecording() override {
    if (!recording_)
      return Error{ErrorKind::Device, "host: no recording has begun"};
    std::unique_ptr<HostRecording> recording = std::move(recording_);
    if (!recording->failed)
      return recording->failed.error();
    return std::unique_ptr<Recording>(std::move(recording));
  }
  bool isRecording() override { return recording_ != nullptr; }
  Status replay(const Recording &recording) override {
    for (const auto &work : static_cast<const HostRecording &>(recording).work)
      if (Status status = std::visit([&](const auto &one) { return repeat(one); }, work); !status)
        return status;
    return {};
  }

  Result<std::unique_ptr<Event>> createEvent() override {
    return std::unique_ptr<Event>(std::make_unique<HostEvent>());
  }
  Status record(Event &event) override {
    static_cast<HostEvent &>(event).time = std::chrono::steady_clock::now();
    return {};
  }
  Result<double> elapsed(Event &begin, Event &end) override {
    const auto &from = static_cast<HostEvent &>(begin).time, &to = static_cast<HostEvent &>(end).time;
    if (!from || !to)
      return Error{ErrorKind::Device, "host: measuring the time between two events: one was never recorded"};
    return std::chrono::duration<double>(*to - *from).count();
  }

private:
  DeviceProperties properties_;
  host::LaunchOptions options_;
  host::Report report_;
  HostWork work_;
  host::MemoryMap memory_;
  std::unique_ptr<HostRecording> recording_; ///< the recording in progress
  host::InFlight inFlight_;                  ///< memory written by launches that the next launch may overlap

  /// An FNV-1a hash.
  static void mix(uint64_t &hash, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const uint8_t *>(data)[i]) * 1099511628211u;
  }
  void count(const host::HostKernel &kernel, const LaunchShape &shape, void **args) {
    ++work_.launches;
    mix(work_.shapes, kernel.name.data(), kernel.name.size());
    mix(work_.shapes, shape.grid.data(), sizeof(shape.grid));
    for (size_t i = 0; i < kernel.parameterBytes.size(); ++i) {
      if (kernel.parameterBytes[i] == sizeof(int32_t))
        mix(work_.shapes, args[i], sizeof(int32_t));
      mix(work_.arguments, args[i], kernel.parameterBytes[i]);
    }
  }

  Status run(const host::HostKernel &kernel, const LaunchShape &shape, void **args) {
    count(kernel, shape, args);
    if (!shape.overlapsPrevious)
      inFlight_.settle();
    host::Report report = host::launch(kernel, {shape.grid[0], shape.grid[1], shape.grid[2]},
                                       {shape.block[0], shape.block[1], shape.block[2]}, shape.sharedBytes,
                                       args, memory_, options_, &inFlight_);
    if (!report.error.empty())
      return Error{report.outOfMemory ? ErrorKind::Memory : ErrorKind::Device,
                   "host: launching '" + kernel.name + "': " + report.error};
    report_.merge(report, options_.maxFindings);
    return {};
  }
  Status note(const host::HostKernel &kernel, const LaunchShape &shape, void **args) {
    HostLaunch launch{&kernel, shape, {}};
    for (uint32_t bytes : kernel.parameterBytes) {
      if (bytes > sizeof(EncodedMap))
        return Error{ErrorKind::Device, "host: recording '" + kernel.name + "': a parameter of " +
                                            std::to_string(bytes) + " bytes; at most " +
                                            std::to_string(sizeof(EncodedMap)) + " are possible"};
      std::memcpy(launch.args.emplace_back().bytes.data(), args[launch.args.size() - 1], bytes);
    }
    if (launch.args.empty())
      return Error{ErrorKind::Device, "host: recording '" + kernel.name +
                                          "': the kernel does not say how large its parameters are"};
    recording_->work.emplace_back(std::move(launch));
    return {};
  }
  Status repeat(const HostFill &filled) { return fill(filled.to, filled.byte, filled.bytes); }
  Status repeat(const HostLaunch &launch) {
    std::vector<void *> args;
    args.reserve(launch.args.size());
    for (const EncodedMap &value : launch.args)
      args.push_back(const_cast<uint8_t *>(value.bytes.data()));
    return run(*launch.kernel, launch.shape, args.data());
  }
  static void *pointer(DeviceAddress address) { return reinterpret_cast<void *>(address); }

  Status check(DeviceAddress address, size_t bytes, const char *action) const {
    const host::Allocation *allocation = memory_.find(pointer(address));
    if (bytes == 0 || (allocation && allocation->contains(pointer(address), bytes)))
      return {};
    std::string where = "an address that is in no allocation";
    if (allocation)
      where = "'" + allocation->label + "', which has " + std::to_string(allocation->bytes);
    return Error{ErrorKind::Device,
                 std::string("host: cannot ") + action + " " + std::to_string(bytes) + " bytes at " + where};
  }
};

} // namespace

std::unique_ptr<HostDevice> makeHostDevice(const host::LaunchOptions &options) {
  return std::make_unique<HostDeviceImpl>(options);
}

} // namespace attn::rt
