//===- Objects.h - What is behind the handles of the C API ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A handle holds a shared pointer, and what an object was made from is held by the
// object: destruction is possible in any order. Locks are taken in the order plan,
// cache, batch, device.
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
  HostDevice *host = nullptr; ///< the device, where it is one
  int index = 0;
  std::string target;
  Lock lock;
  bool (*interrupted)() = nullptr; ///< attnDeviceSetInterrupt
  unsigned born = forkCount();

  /// To oneself. Refused in a process that was forked since, where it is a GPU's: the driver does not follow.
  Result<std::unique_lock<std::mutex>> hold();
  /// The same, with work going to this stream.
  Result<std::unique_lock<std::mutex>> use(uintptr_t stream = 0);
  /// Planning allocates and copies, which no graph can do again: refused while the stream is captured.
  Status checkPlanning(uintptr_t stream);
};

/// Memory of the device that is freed with the device held.
struct OwnedMemory {
  std::shared_ptr<SharedDevice> device;
  Buffer buffer;
  ~OwnedMemory();
};

/// Where a plan is made and lies. What a plan leaves is the room of the next one with the same options on the
/// same stream: memory is longer in the making than a plan, and freeing it waits for all work of the device.
struct PlanRoom {
  PlanOptions options;
  PlanLimits limits;
  PlanCapacity capacity;
  std::optional<Planner> planner;
  std::optional<Session> session;
  Plan plan, next;       ///< what was planned last; memory for the next one
  uint64_t stream = 0;   ///< Device::streamNumber of all its work,
  bool oneStream = true; ///< while that goes to one
};

struct LoadedKernel {
  std::shared_ptr<SharedDevice> device;
  Manifest manifest;
  std::string manifestText;
  std::unique_ptr<host::LoadedCode> code; ///< of the host device
  std::shared_ptr<Module> module;
  std::vector<std::string> slots;
  bool checked = false;
  /// Of plans that nobody has any more, the oldest first; used with the device held.
  std::vector<PlanRoom> rooms;
  ~LoadedKernel();
  /// The room that a plan with these options finds, or none.
  std::optional<PlanRoom> takeRoom(const PlanOptions &options);
  void leaveRoom(PlanRoom &&room);
};

/// What a caller's buffer must be.
struct SlotNeed {
  size_t bytes = 0;
  size_t alignment = 1;
};

struct SharedBatch {
  std::string contentHash, entry; ///< of the kernel that it was made for
  CacheBatch content;
  std::map<std::string, std::vector<int64_t>> shapes; ///< of tensors that scores read
  std::atomic<uint64_t> version = 0;                  ///< changes with the content
  bool built = false;                                 ///< from a cache
  Lock lock;

  Status fits(const Manifest &manifest) const;
  Result<SlotNeed> need(const Manifest &manifest, const std::string &slot) const;
};

/// Copies the contents, or only what describes them.
Result<Tensor> tensorFrom(const AttnTensor &given, size_t index,
                          const std::function<bool(const std::string &)> &needsData);

Status setEnds(const Manifest &manifest, const int32_t *ends, size_t count, Batch &batch);

/// A number that was never given before, for SharedBatch::version.
uint64_t newVersion();

struct PlannedBatch : PlanRoom {
  PlannedBatch(std::shared_ptr<LoadedKernel> kernel, PlanRoom room)
      : PlanRoom(std::move(room)), kernel(std::move(kernel)) {}
  ~PlannedBatch();

  std::shared_ptr<LoadedKernel> kernel;
  std::vector<int> slots;      ///< of the session, by the kernel's
  std::vector<size_t> ranks;   ///< of the kernel's slots: strides that each may be given
  std::vector<size_t> written; ///< of the kernel's slots: results
  std::vector<SlotNeed> needs;
  std::shared_ptr<SharedBatch> batch; ///< of the last update, as of this version
  uint64_t version = 0;
  Batch beforeGrowth; ///< memory for what the batch was, until it has grown
  LogCounts counts;   ///< see attn::rt::checkCurrent
  int64_t rows = 0;
  int extended = 0;
  /// Memory of a plan that is made on the device, first of all, and what it is made of.
  struct DeviceTable {
    std::string name;
    size_t bytes;
    int slot = -1; ///< of the session
    uint64_t address = 0;
    bool own = true;
  };
  std::vector<DeviceTable> deviceTables;
  bool ready = false; ///< the device has what was planned last, or the kernel that plans
  bool fixed = false, onDevice = false;
  Lock lock;

  /// Refused, it leaves the plan as it was, as `grow` does.
  Status update(std::shared_ptr<SharedBatch> given, uintptr_t stream, bool &wasExtended);
  /// With what growBatch makes of the batch of the last update.
  Status grow(int32_t tokens, int64_t apart, uintptr_t stream, bool &wasExtended);
  Status run(const uint64_t *addresses, const size_t *bytes, const int64_t *const *strides, size_t count,
             uintptr_t stream);
  /// Its batch was the largest: from now on plans are made on the device.
  Status moveToDevice(int64_t tokens, uintptr_t stream);
  Status bind(const uint64_t *addresses, const size_t *bytes, size_t count);
  Status make(uintptr_t stream);
  /// The host device knows the caller's tables for as long as `adopted` lives.
  Status adoptTables(std::optional<Adopted> &adopted) const;
  /// The batch, held, where it still is what was planned.
  Result<std::unique_lock<std::mutex>> hold() const;

private:
  /// Work goes to the device's stream, which is held.
  void noteStream();
  /// A batch that has outgrown the plan's room needs this much.
  struct NextRoom {
    PlanLimits limits;
    PlanCapacity capacity;
    std::optional<Planner> planner = {};
  };
  Status planAnew(const Batch &content, NextRoom &room);
  Status upload(const SharedBatch &given, const Plan &made, const PlanCapacity *room, uintptr_t stream,
                bool &begun);
  Status checkAddress(size_t slot, uint64_t address, size_t bytes, bool isDense) const;
  /// That kernels can take them, and that tensors lie in their bytes.
  Status checkStrides(const size_t *bytes, const int64_t *const *strides);
  /// That results overwrite nothing that blocks may still have to read, nor each other.
  Status checkOverlaps(const uint64_t *addresses, const size_t *bytes) const;
  /// That what the plan reads is there, and that a recording of it may be replayed.
  Status checkCurrent();
};

/// What `make` writes about what was planned last.
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
