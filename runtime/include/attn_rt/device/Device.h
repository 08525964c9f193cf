//===- Device.h - Where kernels run -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One interface, two devices: `cuda` (a GPU through its driver) and `host` (the
// executor that runs the machine level of the same kernel on a CPU). One suite,
// test/runtime/device/ConformanceTest.cpp, tests what both must do.
//
// Work goes to one stream in the order of the calls; the stream may be changed between
// calls. Only copies out and synchronize wait for it, and an error of a launch may
// appear only there. Use a device from one thread at a time: threads that share a
// device lock it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_DEVICE_DEVICE_H
#define ATTN_RT_DEVICE_DEVICE_H

#include "attn_rt/host/Launch.h"
#include "attn_rt/tensor/BulkTensor.h"

#include <memory>
#include <span>

namespace attn::rt {

/// An address in the device's memory.
using DeviceAddress = uint64_t;

struct DeviceProperties {
  std::string name;
  int multiprocessors = 1;
  int64_t sharedBytesPerBlock = 0; ///< the most a kernel may ask for
  int threadsPerBlock = 1024;
  int64_t l2Bytes = 0;
  int64_t memoryBytes = 0;
  int computeCapability = 0; ///< 90 for sm_90; 0 on the host device
  int driverVersion = 0;     ///< as CUDA counts: 12040 is 12.4
};

/// The counters of the host device that count the traffic of an allocation.
enum class MemoryUse : uint8_t { Plain, Partials };

/// Kernels in every form at hand; each device loads the form that it runs.
struct ModuleSource {
  std::string name; ///< for messages
  std::string_view ptx;
  std::span<const std::vector<uint8_t>> cubins; ///< together they hold the kernels of the PTX
  std::span<const host::HostKernel> hostKernels;
};

/// A part of the bytes that one copy writes to an allocation.
struct CopyPiece {
  size_t offset; ///< in bytes, from the copy's destination
  const void *from;
  size_t bytes;
};

struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  uint32_t sharedBytes = 0;
  /// May begin before the launch in front has ended, if the device can overlap them: the kernel itself waits
  /// for the data that the launch in front writes.
  bool overlapsPrevious = false;
};

class Kernel {
public:
  virtual ~Kernel();
};

/// Loaded code. Kernels belong to it.
class Module {
public:
  virtual ~Module();
  /// Finds a kernel by name and prepares its launch with this much dynamic shared memory. Errors name the
  /// kernel and, if the device has less shared memory, the limit.
  virtual Result<Kernel *> kernel(const std::string &name, int64_t sharedBytes) = 0;
};

class Event {
public:
  virtual ~Event();
};

/// Launches that can be replayed with the arguments that they were recorded with. Kernels, and the memory
/// that arguments point to, must outlive the recording.
class Recording {
public:
  virtual ~Recording();
};

class Device {
public:
  virtual ~Device();
  /// "cuda" or "host".
  virtual std::string_view kind() const = 0;
  virtual const DeviceProperties &properties() const = 0;

  /// Allocates memory, at least 256-byte aligned, with unspecified contents. `label` is for messages and
  /// reports. A size of 0 gives an address that may be freed but not accessed.
  virtual Result<DeviceAddress> allocate(size_t bytes, const std::string &label,
                                         MemoryUse use = MemoryUse::Plain) = 0;
  /// Frees an allocation, given its address. Fails for any other address.
  virtual Status free(DeviceAddress address) = 0;
  /// Copies from the host; the source may change when the call returns. Refused while the stream is captured.
  virtual Status copyIn(DeviceAddress to, const void *from, size_t bytes) = 0;
  /// Copies pieces, sorted by offset, as one copy if that is cheaper. Bytes between the pieces become
  /// unspecified.
  virtual Status copyPieces(DeviceAddress to, std::span<const CopyPiece> pieces);
  /// Copies to the host. Waits for all work of the stream.
  virtual Status copyOut(void *to, DeviceAddress from, size_t bytes) = 0;
  /// Copies between two ranges of the device's memory that do not overlap.
  virtual Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) = 0;
  /// Fills memory with a byte. Recorded as launches are.
  virtual Status fill(DeviceAddress to, uint8_t byte, size_t bytes) = 0;
  /// Invalidates a whole allocation: NaN in every float format, and unwritten if the device tracks writes.
  virtual Status poison(DeviceAddress address, size_t bytes) = 0;

  /// Encodes a tensor map, the 128 bytes through which TMA copies of a kernel see a tensor. Errors name the
  /// map.
  virtual Result<EncodedMap> encode(const BulkTensor &tensor) = 0;

  /// Loads code. Errors name the module and contain the compiler's log.
  virtual Result<std::unique_ptr<Module>> load(const ModuleSource &source) = 0;
  /// `args` points to each parameter's value; they are read before the call returns.
  virtual Status launch(const Kernel &kernel, const LaunchShape &shape, void **args) = 0;
  /// Waits for all work of the stream. Reports errors of earlier launches.
  virtual Status synchronize() = 0;
  /// Sends all later work to a stream: a CUstream of the device's context; null is the legacy default stream.
  /// Costs next to nothing if no copy to the device is pending. The host device, whose work has ended when a
  /// call returns, accepts any stream.
  virtual Status useStream(void *stream) = 0;
  /// The number of that stream, unique over time; 0 if the driver gives none, and while the stream is
  /// captured.
  virtual uint64_t streamNumber() = 0;

  /// Starts a recording: until endRecording, launches and fills are recorded and not run. No other work may
  /// go to the stream.
  virtual Status beginRecording() = 0;
  /// Ends the recording, even if it fails: because a launch in between was refused, or because the device
  /// cannot record.
  virtual Result<std::unique_ptr<Recording>> endRecording() = 0;
  /// Whether launches are recorded instead of run: between these two calls, or while the caller captures the
  /// stream.
  virtual bool isRecording() = 0;
  /// The number of the caller's capture of the stream into a graph, another one for each capture; 0 if there
  /// is none.
  virtual uint64_t capture() { return 0; }
  /// Runs the recorded launches in their order, at about the cost of one launch.
  virtual Status replay(const Recording &recording) = 0;

  virtual Result<std::unique_ptr<Event>> createEvent() = 0;
  /// Records an event after all work of the stream so far.
  virtual Status record(Event &event) = 0;
  /// Seconds between two recorded events; waits for the second.
  virtual Result<double> elapsed(Event &begin, Event &end) = 0;
};

/// Device memory that frees itself. Its device must outlive it.
class Buffer {
public:
  Buffer() = default;
  /// Allocates memory. `label` is for messages and reports.
  static Result<Buffer> create(Device &device, size_t bytes, const std::string &label,
                               MemoryUse use = MemoryUse::Plain);
  Buffer(Buffer &&other) noexcept { *this = std::move(other); }
  Buffer &operator=(Buffer &&other) noexcept;
  ~Buffer() { reset(); }

  DeviceAddress address() const { return address_; }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return device_ != nullptr; }
  /// Frees the memory now.
  void reset();

private:
  Device *device_ = nullptr;
  DeviceAddress address_ = 0;
  size_t bytes_ = 0;
};

} // namespace attn::rt

#endif
