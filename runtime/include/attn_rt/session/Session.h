//===- Session.h - A kernel's buffers on a device ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   Session session = *Session::create(*device, manifest, source);
//   session.bind(tensors, batch);                       // allocates, copies
//   session.reserve(planCapacity(manifest, limits, options));
//   session.run(plan);                                  // as often as you like
//   TensorMap out = *session.outputs();
//
// After bind and reserve nothing is allocated: run copies the plan into buffers of
// fixed size and launches. Device and manifest must outlive the session.
//
// If the caller owns the data and a launch must cost next to nothing, the session owns
// only tables, and addresses are set by number:
//
//   Session session = *Session::create(*device, manifest, module);
//   int q = *session.slot("q"), keys = *session.slot("kv.k_pages"), …;
//   session.bindTables(batch);
//   session.reserve(…), session.setPlan(plan);
//   for (each layer) { session.bind(q, …), …; session.launch(); }
//
// A launch need not depend on lengths. Once the largest batch is bound, the launch can
// be fixed, recorded, and replayed over any plan that is set:
//
//   session.setPlan(plan);
//   session.fixLaunch();
//   device.beginRecording();
//   session.launch();                                   // or many layers', with bindAddress between
//   auto recording = *device.endRecording();
//   for (;;) {                                          // a decoding step: batch, queries and plan change
//     planner.update(batch, plan);
//     session.setPlan(plan);
//     device.replay(*recording);
//   }
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_SESSION_H
#define ATTN_RT_SESSION_SESSION_H

#include "attn_rt/device/Device.h"
#include "attn_rt/plan/DevicePlan.h"
#include "attn_rt/tensor/Strides.h"

namespace attn::rt {

/// Capacities of the tables of later batches; 0: as the batch has them.
struct TableRoom {
  int64_t rows = 0, sequences = 0;
  int64_t instances = 0; ///< of each operand
  int64_t pages = 0;     ///< columns of block tables
  bool operator==(const TableRoom &) const = default;
};

class Session {
public:
  /// Loads the module and finds every kernel of the manifest in it.
  static Result<Session> create(Device &device, const Manifest &manifest, const ModuleSource &source);
  /// Makes a session of a loaded module, which may serve many sessions.
  static Result<Session> create(Device &device, const Manifest &manifest, std::shared_ptr<Module> module);
  Session(Session &&) noexcept;
  Session &operator=(Session &&) noexcept;
  ~Session();

  /// Copies the inputs that some kernel reads to the device and allocates the results. The batch must have
  /// been made from these tensors. Buffers are kept if their size fits. Queries, keys, values and the output
  /// that `strides` names have these strides on the device, in exactly the memory that they need.
  Status bind(const TensorMap &tensors, const Batch &batch, const StrideMap &strides = {});
  /// Uses memory of the caller, in which the tensor lies densely, for a buffer: "kv.k_pages", "o", …. If
  /// heads have classes, "ordinal_heads" is one as well, a layer's permutation (see ordinalHeads): one plan
  /// then serves all layers that have as many heads in each class.
  Status bindAddress(const std::string &name, DeviceAddress address);
  /// Sets a dimension that kernels read ("kv.max_pages"); bind sets the dimensions of its tensors.
  void setDim(const std::string &name, int32_t value);
  /// Names of the buffers that some kernel reads or writes.
  std::vector<std::string> bufferNames() const;
  /// The number of a buffer of the caller's, for bind. From then on the session does not own its memory.
  Result<int> slot(const std::string &name);
  /// Binds an address as bindAddress does, in some 10 ns. Queries, keys, values and the output may have
  /// strides, in bytes: one for each dimension, the innermost being the size of an element
  /// (attn_rt/tensor/Strides.h). The next launch checks them; unchanged strides cost nothing. Without
  /// strides, the tensor lies densely.
  void bind(int slot, DeviceAddress address, std::span<const int64_t> strides = {});
  /// Checks the strides of bound slots, as the next launch would.
  Status checkStrides();
  /// Bytes from the first to the end of the last element of a slot's tensor, once its strides were checked; 0
  /// without strides.
  int64_t slotSpan(int slot) const;
  /// Copies the batch's tables (block tables, positions, …) that some kernel reads, if they have changed, to
  /// buffers that grow and never shrink, and sets all dimensions that a batch knows. The caller owns the
  /// data, `o` and `lse`, and binds them with bindAddress or bind. `ordinal_heads` holds the batch's own
  /// classes until it is bound.
  Status bindTables(const Batch &batch);
  /// Sets capacities that tables have from the first batch on, so that launches can be fixed over a smaller
  /// batch than later ones. Once launches are fixed, narrower block tables are widened.
  void reserveTables(const TableRoom &room);
  /// The address of a table; 0 if no kernel reads it.
  DeviceAddress tableAddress(const std::string &name) const;

  /// Allocates buffers for every plan of this capacity.
  Status reserve(const PlanCapacity &capacity);

  /// Copies a plan to the device.
  Status setPlan(const Plan &plan);
  /// Makes a step: bindTables with further dimensions, reserve if `room` is given, and setPlan. All checks
  /// and allocations come first: if it fails with `begun` false, nothing has changed, and launches, also
  /// recorded ones, still run the step before. Otherwise the device failed in a copy.
  using DimValue = std::pair<std::string, int64_t>;
  Status take(const Batch &batch, std::span<const DimValue> dims, const Plan &plan, const PlanCapacity *room,
              bool &begun);
  /// Launches the kernels of the last plan; neither allocates nor waits.
  Status launch();
  /// Fixes launches: from now on they differ only in the contents of buffers. Kernel, blocks and sizes of
  /// windows are those of the plan that was set, all launches are made even without elements (a merge), and
  /// buffers keep their addresses. Plans that do not fit are refused by setPlan, larger tensors by bind.
  Status fixLaunch();
  /// Moves planning to the device (DevicePlan.h): allocates such plans and fixes launches as fixLaunch does.
  /// Tensors and tables of the largest batch must be bound; `setPlan` is refused from now on.
  Status useDevicePlan(const DevicePlan &plan);
  /// Bytes of a plan made on the device, with its scratch memory and positions of rows.
  size_t planBytes() const;
  /// Sets the address that launchPlan writes to and launch reads from, a multiple of 16; 0: memory of the
  /// session. Several plans may be alive at once.
  Status bindPlan(DeviceAddress memory);
  /// Launches the kernel that makes the plan; neither allocates nor waits.
  Status launchPlan();
  /// The finding of the last launchPlan. Waits for the device.
  Result<PlanFinding> planFinding();
  /// The finding as a sentence (faultText).
  Result<std::string> planFault();
  /// Invalidates results and partials (NaN, and unwritten on the host device), so that no old result passes
  /// for a new one.
  Status poison();
  /// poison, setPlan, launch.
  Status run(const Plan &plan);

  /// Waits, and copies the results that the manifest lists: "o" and, if returned, "lse".
  Result<TensorMap> outputs();
  /// Bytes of device memory that it has allocated.
  size_t ownBytes() const;
  /// The address bound under this name; null if there is none.
  DeviceAddress address(const std::string &name) const;

private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

} // namespace attn::rt

#endif
