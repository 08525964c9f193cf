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
// Where the data is the caller's and a launch must cost next to nothing, only tables are
// the session's, and addresses go in by number:
//
//   Session session = *Session::create(*device, manifest, module);
//   int q = *session.slot("q"), keys = *session.slot("kv.k_pages"), …;
//   session.bindTables(batch);
//   session.reserve(…), session.setPlan(plan);
//   for (each layer) { session.bind(q, …), …; session.launch(); }
//
// Nothing about a launch need depend on lengths. Bound for the largest batch, its
// launch can be fixed, recorded, and replayed over whatever plan is set:
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

/// Of the tables of batches to come; 0: as the batch has them.
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
  /// Of a module that was loaded before, and may serve many sessions. `before` is one of the same module
  /// whose work goes to the same stream: its memory for plans and tables is taken over, with what the tables
  /// hold.
  static Result<Session> create(Device &device, const Manifest &manifest, std::shared_ptr<Module> module,
                                std::optional<Session> before = {});
  Session(Session &&) noexcept;
  Session &operator=(Session &&) noexcept;
  ~Session();

  /// Copies the inputs that some kernel reads to the device and makes room for the results. The batch must
  /// have been made from these tensors. Buffers are kept where their size fits. Queries, keys, values and the
  /// output that `strides` names lie so on the device, in exactly the memory that this takes.
  Status bind(const TensorMap &tensors, const Batch &batch, const StrideMap &strides = {});
  /// Uses memory of the caller instead, in which the tensor lies densely, under a name of design's table:
  /// "kv.k_pages", "o", …; where heads have classes also "ordinal_heads", a layer's permutation (see
  /// ordinalHeads), under one plan for all layers that have as many heads in each class.
  Status bindAddress(const std::string &name, DeviceAddress address);
  /// A dimension that kernels ask for ("kv.max_pages"); bind sets those of its tensors.
  void setDim(const std::string &name, int32_t value);
  /// Names of the buffers that some kernel reads or writes.
  std::vector<std::string> bufferNames() const;
  /// The number of a buffer of the caller's, for bind. Its memory is from then on not the session's.
  Result<int> slot(const std::string &name);
  /// bindAddress, in some 10 ns. Strides, in bytes, may be given for queries, keys, values and the output:
  /// each dimension's, the innermost the size of an element (attn_rt/tensor/Strides.h). The next launch
  /// checks them; none: the tensor lies densely. While they stay the same they cost nothing.
  void bind(int slot, DeviceAddress address, std::span<const int64_t> strides = {});
  /// Checks the strides that slots were bound with, as the next launch would.
  Status checkStrides();
  /// Bytes from the first to behind the last of a slot's tensor as it lies, once they were checked; 0 without
  /// strides.
  int64_t slotSpan(int slot) const;
  /// Copies the batch's tables (block tables, positions, …) that some kernel reads, where they have changed,
  /// to buffers that grow and never shrink, and sets all dimensions that a batch knows. The data, `o` and
  /// `lse` are the caller's: bindAddress or bind. `ordinal_heads` holds the batch's own classes until it
  /// is bound.
  Status bindTables(const Batch &batch);
  /// Room that tables have from the first batch on, so that launches can be fixed over a smaller one than
  /// those to come. Once they are fixed, narrower block tables are widened.
  void reserveTables(const TableRoom &room);
  /// Of a table, 0 where no kernel reads it.
  DeviceAddress tableAddress(const std::string &name) const;

  /// Makes room for every plan of this capacity.
  Status reserve(const PlanCapacity &capacity);

  /// Copies a plan to the device.
  Status setPlan(const Plan &plan);
  /// A step: bindTables with dimensions beside, reserve where there is `room`, and setPlan. All that may be
  /// refused and all memory come first: where `begun` is false after a failure, nothing has changed, and
  /// launches, also those that were recorded, go on with the step before. Else the device failed in a copy.
  using DimValue = std::pair<std::string, int64_t>;
  Status take(const Batch &batch, std::span<const DimValue> dims, const Plan &plan, const PlanCapacity *room,
              bool &begun);
  /// Launches the kernels of the last plan; neither allocates nor waits.
  Status launch();
  /// From now on launches differ in nothing but what buffers hold: kernel, blocks and sizes of windows are
  /// those of the plan that was set, all launches are made whether they have elements or not (a merge), and
  /// buffers stay where they are. What does not fit is refused: plans by setPlan, larger tensors by bind.
  Status fixLaunch();
  /// From now on plans are made on the device (DevicePlan.h): makes room for them and fixes launches as
  /// fixLaunch does. Tensors and tables of the largest batch are bound; `setPlan` is refused.
  Status useDevicePlan(const DevicePlan &plan);
  /// Bytes of such a plan, with the scratch memory that it is made in, and positions of rows.
  size_t planBytes() const;
  /// Where launchPlan writes it and launch reads it, at a multiple of 16; 0: memory of the session's. Several
  /// may be alive at once.
  Status bindPlan(DeviceAddress memory);
  /// Launches the kernel that makes the plan; neither allocates nor waits.
  Status launchPlan();
  /// What the last of those launches has found. Waits.
  Result<PlanFinding> planFinding();
  /// Says the finding in a sentence (faultText).
  Result<std::string> planFault();
  /// Makes results and partials useless (NaN, and unwritten on the host device), so that nothing old passes
  /// for new.
  Status poison();
  /// poison, setPlan, launch.
  Status run(const Plan &plan);

  /// Waits, and copies the results that the manifest lists: "o" and, where it is returned, "lse".
  Result<TensorMap> outputs();
  /// Bytes of the device that it has allocated.
  size_t ownBytes() const;
  /// Null where nothing is bound under this name.
  DeviceAddress address(const std::string &name) const;

private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

} // namespace attn::rt

#endif
