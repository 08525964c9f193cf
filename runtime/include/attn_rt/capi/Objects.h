//===- Objects.h - What is behind the handles of the C API ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A handle holds a shared pointer, and an object holds the objects it was made from:
// handles may be destroyed in any order. Locks are taken in the order plan, cache,
// batch, device.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CAPI_OBJECTS_H
#define ATTN_RT_CAPI_OBJECTS_H

#include "attn-c/Runtime.h"
#include "attn_rt/cache/CacheBatch.h"
#include "attn_rt/capi/Guard.h"
#include "attn_rt/capi/Lock.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/host/CodeObject.h"
#include "attn_rt/session/Session.h"

#include <atomic>
#include <functional>

namespace attn::rt::capi {

class Adopted;

/// A device that threads share.
struct SharedDevice {
  std::unique_ptr<Device> device;
  HostDevice *host = nullptr; ///< the device, if it is the host device
  int index = 0;
  std::string target;
  Lock lock;
  bool (*interrupted)() = nullptr; ///< attnDeviceSetInterrupt
  unsigned born = forkCount();

  /// Locks the device. Refused for a GPU in a process that was forked since: the driver does not follow.
  Result<std::unique_lock<std::mutex>> hold();
  /// Locks the device, and sends its work to this stream.
  Result<std::unique_lock<std::mutex>> use(uintptr_t stream = 0);
  /// Planning allocates and copies, which no graph can repeat: refused while the stream is captured.
  Status checkPlanning(uintptr_t stream);
};

/// Memory of the device that is freed with the device locked.
struct OwnedMemory {
  std::shared_ptr<SharedDevice> device;
  Buffer buffer;
  ~OwnedMemory();
};

/// The workspace of a plan. A destroyed plan leaves its workspace to the next plan with the same options on
/// the same stream: memory takes longer to make than a plan, and freeing it waits for all work of the device.
/// The session stays as it is: batch and plan replace what it holds of the plan before, and each run binds
/// all slots.
struct PlanRoom {
  PlanOptions options;
  PlanLimits limits;
  PlanCapacity capacity;
  std::optional<Planner> planner;
  std::optional<Session> session;
  std::vector<int> slots; ///< of the session, by the kernel's slot
  Plan plan, next;        ///< what was planned last; memory for the next plan
  uint64_t stream = 0;    ///< Device::streamNumber of all its work
  bool oneStream = true;  ///< whether all work went to one stream
};

struct LoadedKernel {
  std::shared_ptr<SharedDevice> device;
  Manifest manifest;
  std::string manifestText;
  std::unique_ptr<host::LoadedCode> code; ///< of the host device
  std::shared_ptr<Module> module;
  std::vector<std::string> slots;
  std::vector<size_t> ranks;   ///< by slot: rank of the strides that it accepts
  std::vector<size_t> written; ///< the slots that hold results
  /// How a batch reads a tensor: its sizes alone, its contents, or contents that stay in the caller's memory
  /// until the batch has them, as those of block tables do, which are large.
  enum class Reads : uint8_t { Sizes, Contents, LargeContents };
  std::map<std::string, Reads> tensors; ///< of batches, by name
  bool checked = false;
  /// Workspaces of destroyed plans, the oldest first; used with the device locked.
  std::vector<PlanRoom> rooms;
  ~LoadedKernel();
  /// The workspace for a plan with these options, if there is one.
  std::optional<PlanRoom> takeRoom(const PlanOptions &options);
  /// Keeps the workspace of a destroyed plan, or frees it if it is too large or too many are kept.
  void leaveRoom(PlanRoom &&room);
};

/// The demands on a caller's buffer.
struct SlotNeed {
  size_t bytes = 0;
  size_t alignment = 1;
};

struct SharedBatch {
  std::string contentHash, entry; ///< of the kernel that it was made for
  CacheBatch content;
  std::map<std::string, std::vector<int64_t>> shapes; ///< of tensors that scores read
  std::atomic<uint64_t> version = 0;                  ///< changes with the content
  bool built = false;                                 ///< whether it was built from a cache
  Lock lock;

  /// Checks that the batch was made for this kernel.
  Status fits(const Manifest &manifest) const;
  /// The demands of a batch on the buffer of a slot.
  Result<SlotNeed> need(const Manifest &manifest, const std::string &slot) const;
};

/// Copies a tensor: its contents if `needsData` says so, else only dtype and shape.
Result<Tensor> tensorFrom(const AttnTensor &given, size_t index,
                          const std::function<bool(const std::string &)> &needsData);

/// Replaces the sizes of windows and sinks of a batch; none: they stay as compiled.
Status setEnds(const Manifest &manifest, const int32_t *ends, size_t count, Batch &batch);

/// A number that was never returned before, for SharedBatch::version.
uint64_t newVersion();

struct PlannedBatch : PlanRoom {
  PlannedBatch(std::shared_ptr<LoadedKernel> kernel, PlanRoom room)
      : PlanRoom(std::move(room)), kernel(std::move(kernel)) {}
  ~PlannedBatch();

  std::shared_ptr<LoadedKernel> kernel;
  std::vector<SlotNeed> needs;
  std::shared_ptr<SharedBatch> batch; ///< of the last update, as of this version
  uint64_t version = 0;
  Batch beforeGrowth; ///< memory for the batch before its growth, until it has grown
  LogCounts counts;   ///< see attn::rt::checkCurrent
  int64_t rows = 0;
  int extended = 0;
  /// A buffer of a plan that is made on the device: the plan's memory first, then the tables that it is made
  /// from.
  struct DeviceTable {
    std::string name;
    size_t bytes;
    int slot = -1; ///< of the session
    uint64_t address = 0;
    bool own = true;
  };
  std::vector<DeviceTable> deviceTables;
  bool ready = false; ///< whether the device has what was planned last, or the kernel that plans
  bool fixed = false, onDevice = false;
  Lock lock;

  /// Plans a batch. An error leaves the plan unchanged, as in `grow`.
  Status update(std::shared_ptr<SharedBatch> given, uintptr_t stream, bool &wasExtended);
  /// Plans the batch that growBatch makes of the last update's.
  Status grow(int32_t tokens, int64_t apart, uintptr_t stream, bool &wasExtended);
  Status run(const uint64_t *addresses, const size_t *bytes, const int64_t *const *strides, size_t count,
             uintptr_t stream);
  /// Makes plans on the device from now on; the last batch was the largest.
  Status moveToDevice(int64_t tokens, uintptr_t stream);
  Status bind(const uint64_t *addresses, const size_t *bytes, size_t count);
  Status make(uintptr_t stream);
  /// Registers the caller's tables on the host device while `adopted` lives.
  Status adoptTables(std::optional<Adopted> &adopted) const;
  /// Locks the batch; an error if it is no longer what was planned.
  Result<std::unique_lock<std::mutex>> hold() const;

private:
  /// Notes that work goes to the locked device's stream.
  void noteStream();
  /// The workspace for a batch that has outgrown the plan's workspace.
  struct NextRoom {
    PlanLimits limits;
    PlanCapacity capacity;
    std::optional<Planner> planner = {};
  };
  Status planAnew(const Batch &content, NextRoom &room);
  Status upload(const SharedBatch &given, const Plan &made, const PlanCapacity *room, uintptr_t stream,
                bool &begun);
  Status checkAddress(size_t slot, uint64_t address, size_t bytes, bool isDense) const;
  /// Checks that kernels accept the strides, and that tensors lie within their bytes.
  Status checkStrides(const size_t *bytes, const int64_t *const *strides);
  /// Checks that results overwrite neither each other nor what blocks may still read.
  Status checkOverlaps(const uint64_t *addresses, const size_t *bytes) const;
  /// Checks that what the plan reads still exists, and that a recording of it may be replayed.
  Status checkCurrent();
};

/// Writes the text that `make` makes of what was planned last.
Status describePlan(
    const AttnPlan *plan, AttnBytes **text,
    const std::function<std::string(const Manifest &, const Batch &, const Plan &, const GpuModel &)> &make);

} // namespace attn::rt::capi

struct AttnDevice {
  std::shared_ptr<attn::rt::capi::SharedDevice> shared;
};
struct AttnMemory {
  std::shared_ptr<attn::rt::capi::OwnedMemory> owned;
};
struct AttnKernel {
  std::shared_ptr<attn::rt::capi::LoadedKernel> loaded;
};
struct AttnBatch {
  std::shared_ptr<attn::rt::capi::SharedBatch> shared;
};
struct AttnPlan {
  std::shared_ptr<attn::rt::capi::PlannedBatch> planned;
};
struct AttnBytes {
  std::string text;
};
struct AttnTensors {
  attn::rt::TensorMap map;
};

#endif
