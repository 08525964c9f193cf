//===- Device.h - Where kernels run -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One interface, two devices: `cuda` (a GPU through its driver) and `host` (the
// executor that runs the machine level of the same kernel on a CPU). One suite,
// test/runtime/device/ConformanceTest.cpp, says what both must do.
//
// Work goes to one stream in the order of the calls; which one may be changed between
// calls. Copies out and synchronize wait for it, nothing else does, and an error of a
// launch may appear only there. Objects are used by one thread at a time: who shares a
// device locks it.
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
  int computeCapability = 0; ///< 90 for sm_90; 0 where that means nothing
  int driverVersion = 0;     ///< as CUDA counts: 12040 is 12.4
};

/// What the traffic of an allocation counts as in the host device's counters.
enum class MemoryUse : uint8_t { Plain, Partials };

/// Kernels in every form that is at hand; each device takes the one it understands.
struct ModuleSource {
  std::string name; ///< for messages
  std::string_view ptx;
  std::span<const std::vector<uint8_t>> cubins; ///< which together have the kernels that the PTX has
  std::span<const host::HostKernel> hostKernels;
};

/// A part of what is copied to one allocation.
struct CopyPiece {
  size_t offset; ///< in bytes, from where the copy goes
  const void *from;
  size_t bytes;
};

struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  uint32_t sharedBytes = 0;
  /// May begin before the launch in front has ended, where the device can: the kernel itself waits for what
  /// that one writes.
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
  /// A kernel by name, made ready to be launched with this much dynamic shared memory. Errors name the
  /// kernel, and the limit where the device has less.
  virtual Result<Kernel *> kernel(const std::string &name, int64_t sharedBytes) = 0;
};

class Event {
public:
  virtual ~Event();
};

/// Launches to be done again, with the arguments that they were recorded with. Kernels, and the memory that
/// arguments point to, must outlive it.
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

  /// At least 256-byte aligned, contents unspecified. `label` is for messages and reports. A size of 0 gives
  /// an address that may be freed and not accessed.
  virtual Result<DeviceAddress> allocate(size_t bytes, const std::string &label,
                                         MemoryUse use = MemoryUse::Plain) = 0;
  virtual Status free(DeviceAddress address) = 0;
  virtual Status copyIn(DeviceAddress to, const void *from, size_t bytes) = 0;
  /// Pieces in the order of their offsets, as one copy where that is cheaper. What lay between them is lost.
  virtual Status copyPieces(DeviceAddress to, std::span<const CopyPiece> pieces);
  virtual Status copyOut(void *to, DeviceAddress from, size_t bytes) = 0;
  /// Between two places of the device's memory that do not overlap.
  virtual Status copy(DeviceAddress to, DeviceAddress from, size_t bytes) = 0;
  /// Recorded as launches are.
  virtual Status fill(DeviceAddress to, uint8_t byte, size_t bytes) = 0;
  /// Makes a whole allocation useless: NaN in every float format, and unwritten where the device keeps track.
  virtual Status poison(DeviceAddress address, size_t bytes) = 0;

  /// The 128 bytes through which bulk copies of a kernel see a tensor. Errors name its map.
  virtual Result<EncodedMap> encode(const BulkTensor &tensor) = 0;

  virtual Result<std::unique_ptr<Module>> load(const ModuleSource &source) = 0;
  /// `args` points to each parameter's value; they are read before the call returns.
  virtual Status launch(const Kernel &kernel, const LaunchShape &shape, void **args) = 0;
  virtual Status synchronize() = 0;
  /// The stream of all work to come: a CUstream of the device's context; null is the legacy default stream.
  /// Costs next to nothing where nothing was copied in. The host device, whose work has ended when a call
  /// returns, takes any.
  virtual Status useStream(void *stream) = 0;
  /// The number of that stream, which no other has, before or after; 0 where the driver tells none,
  /// and while the stream is captured.
  virtual uint64_t streamNumber() = 0;

  /// From here to endRecording launches and fills are noted and not done. Nothing else may go to the stream.
  virtual Status beginRecording() = 0;
  /// Ends it also where it fails: a launch in between was refused, or the device cannot record.
  virtual Result<std::unique_ptr<Recording>> endRecording() = 0;
  /// Whether launches are noted instead of done: between these two, or as the caller captures the stream.
  virtual bool isRecording() = 0;
  /// Does the recorded launches in their order, at the cost of about one.
  virtual Status replay(const Recording &recording) = 0;

  virtual Result<std::unique_ptr<Event>> createEvent() = 0;
  virtual Status record(Event &event) = 0;
  /// Seconds between two recorded events; waits for the second.
  virtual Result<double> elapsed(Event &begin, Event &end) = 0;
};

/// Memory that frees itself. Its device must outlive it.
class Buffer {
public:
  Buffer() = default;
  static Result<Buffer> create(Device &device, size_t bytes, const std::string &label,
                               MemoryUse use = MemoryUse::Plain);
  Buffer(Buffer &&other) noexcept { *this = std::move(other); }
  Buffer &operator=(Buffer &&other) noexcept;
  ~Buffer() { reset(); }

  DeviceAddress address() const { return address_; }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return device_ != nullptr; }
  void reset();

private:
  Device *device_ = nullptr;
  DeviceAddress address_ = 0;
  size_t bytes_ = 0;
};

} // namespace attn::rt

#endif
