//===- State.h - What a session holds ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SESSION_STATE_H
#define ATTN_RT_SESSION_STATE_H

#include "attn_rt/session/Session.h"
#include "session/PlanBuffers.h"

#include <set>

namespace attn::rt {

struct BoundMap {
  const TensorMapInfo *info = nullptr;
  EncodedMap map = {};
  std::optional<BulkTensor> tensor = {}; ///< the tensor that it was made of, until a dimension changes
  bool stale = true;                     ///< whether the address has changed since
};

/// A kernel with its parameters' values, in the form that a launch needs.
struct BoundKernel {
  const KernelInfo *info = nullptr;
  Kernel *kernel = nullptr;
  std::vector<uint64_t> values; ///< a slot for each parameter: an address, an i32 or an f32
  std::vector<void *> args;     ///< pointers to the slots, or to tensor maps
  std::vector<BoundMap *> maps; ///< the maps that it reads through
};

/// A buffer of the caller's, and the places that its address is written to.
struct Slot {
  std::string name;
  DeviceAddress address = 0;
  std::vector<int64_t> strides = {};
  int64_t span = 0; ///< bytes from the first to the end of the last element, with strides
  std::vector<uint64_t *> values;
  std::vector<BoundMap *> maps;
};

/// A batch's table on the device, and its contents there.
struct Table {
  Buffer buffer;
  std::vector<uint8_t> bytes;
};

/// The advice of messages when a batch does not fit fixed launches.
inline std::string fixedAdvice(const std::string &limit, int64_t needed) {
  return "plan with limits={'" + limit + "': " + std::to_string(needed) +
         "} or more (Kernel.plan) before plan.fix()";
}

/// The parameters that all launches share once they are fixed.
struct FixedLaunch {
  int kernel, blocks;
  std::vector<int32_t> ends;
  std::map<std::string, int32_t> dims;
};

struct Session::State {
  Device &device;
  const Manifest &manifest;
  std::shared_ptr<Module> module;
  std::vector<BoundKernel> kernels;     ///< as in the manifest
  std::set<std::string> wanted;         ///< buffers that some kernel reads or writes
  std::map<std::string, BoundMap> maps; ///< maps that some kernel reads through
  Buffer zero;                          ///< stands in for tensors without elements
  std::map<std::string, Buffer> buffers;
  std::map<std::string, Table> tables = {}; ///< of bindTables
  TableRoom tableRoom = {};
  std::vector<std::vector<int32_t>> widened = {}; ///< per operand, a block table with extra columns
  std::vector<int32_t> headsOfOrdinals = {};      ///< of the batch bound last
  std::vector<Slot> slots = {};
  std::map<std::string, DeviceAddress> addresses; ///< of buffers and of the caller's memory
  std::map<std::string, int32_t> dims;
  StrideMap strides = {};                ///< as given
  std::vector<StridedTensor> strided;    ///< tensors that may have strides
  std::set<std::string> strideDims = {}; ///< dimensions that follow from strides
  bool strideDimsStale = true;
  std::vector<int32_t> ends;
  std::vector<int32_t> classHeads, planClassHeads; ///< of the bound tensors (empty: unknown), and of the plan
  std::vector<int32_t> ordinalHeads = {}, planOrdinalHeads = {}; ///< likewise, for plans made by head
  PlanCapacity capacity;
  std::vector<PlanStart> starts; ///< of the last plan
  int planKernel = -1, planBlocks = 0;
  std::array<int64_t, planArrayCount> planElements = {}; ///< of each of its arrays
  uint64_t planStructure = 0;                            ///< of the plan on the device
  std::vector<int32_t> unwritten = {};                   ///< Plan::unwritten
  std::vector<int32_t> mergeStart = {};                  ///< as last copied or staged for a copy
  std::vector<PlanTokenTask> tokenTasks = {}; ///< the plan's, and empty ones if the launch is fixed for more
  std::vector<PlanTokenSum> tokenSums = {};   ///< likewise
  std::optional<FixedLaunch> fixed = {};
  /// Parts of a plan that the device makes: slots, and their offsets in its memory.
  struct PlanPart {
    int slot;
    size_t offset;
  };
  std::vector<PlanPart> planParts = {};
  size_t planBytes = 0;
  bool plansOnDevice = false;
  /// Tables that Stage.cpp has checked and allocated, until they are committed or dropped.
  struct StagedTable {
    std::pair<const std::string, Table> *table;
    std::span<const int32_t> values;
    Buffer grown; ///< replaces the buffer that is too small
  };
  std::vector<StagedTable> stagedTables = {};
  std::vector<std::pair<std::string, Buffer>> stagedBuffers = {};
  std::array<PlanContent, planArrayCount> stagedPlan = {};
  std::optional<std::map<std::string, int32_t>> dimsBefore = {}; ///< present if some have changed
  bool stale = true; ///< whether addresses, dimensions or the plan have changed since values were filled

  Status allocate(const std::string &name, int64_t bytes, MemoryUse use = MemoryUse::Plain);
  Status copy(const std::string &name, const void *from, size_t bytes);
  bool takesStrides(const std::string &name) const;
  /// Sets the strides of a tensor of the caller's; without strides it lies densely.
  void setStrides(const std::string &name, std::span<const int64_t> given);
  /// The checked shape and strides of a tensor.
  Result<StridedShape> placeOf(const std::string &name, DType dtype, std::vector<int64_t> shape) const;
  /// The checked shape and strides of a tensor that may have strides; empty if its sizes are unknown.
  Result<std::optional<StridedShape>> placeOf(const StridedTensor &tensor) const;
  /// Sets the dimensions that follow from strides. Refuses strides that kernels cannot take.
  Status setStrideDims();
  bool isOfDenseStore(const std::string &name) const;
  /// Copies a tensor to its memory, or back; bytes between its lines are unchanged.
  Status copyIn(const std::string &name, const Tensor &tensor);
  Status copyOut(const std::string &name, Tensor &tensor) const;
  void setDimsOf(const Argument &argument, const TensorMap &tensors);
  /// Whether a dimension is an extent of a tensor that score functions read.
  bool isOfTable(const std::string &dim) const;
  Result<uint64_t> valueOf(const Parameter &param, const KernelInfo &kernel) const;
  Status fillValues(BoundKernel &kernel);
  Status bindMap(const TensorMapInfo &info);
  Status fillMaps(BoundKernel &kernel);
  /// Marks all values as stale after a change of addresses or dimensions.
  void forget();
  /// The size of a table: memory is allocated for `most` entries; `limit` names the limit in messages.
  struct TableSize {
    const char *limit;
    int64_t entries, most; ///< in entries of `words`
    int64_t words = 1, extra = 0;
  };
  // Stage.cpp. A failure leaves a state that `unstage` undoes.
  Status stageBuffer(const std::string &name, int64_t bytes, MemoryUse use = MemoryUse::Plain);
  Status stageRoom(const PlanCapacity &room);
  Status stageTable(const std::string &name, std::span<const int32_t> values, const TableSize &size);
  void stageDim(const std::string &name, int64_t value);
  Status stageOperand(const OperandBatch &operand, const std::string &prefix, std::vector<int32_t> &widened);
  Status stageTables(const Batch &batch, std::span<const DimValue> more);
  Status stagePlan(const Plan &plan, const PlanCapacity &room);
  void commitBuffers();
  void commitRoom(const PlanCapacity &room);
  /// Places the arrays of plans in the plan's memory, by its capacity.
  void placeArrays();
  Status commitTable(StagedTable &staged);
  Status commitPlan(const Plan &plan);
  void unstage();
  /// Fills results by token with zeros if the plan's tasks leave some out.
  Status clearUnwritten();
  /// Fills the semaphores of token tasks with zeros, if the plan has some.
  Status clearSemaphores();
  /// Launches the plan's kernel of a launch.
  Status launch(const LaunchInfo &launch);
  std::string kernelName(int kernel) const { return manifest.kernels[static_cast<size_t>(kernel)].name; }
  /// Fills the present values of parameters, if something has changed.
  Status fillStale();
  Status checkFixed(const Plan &plan) const;
  /// The records of a plan or, if the launch is fixed for more of them, a copy in `filled` with empty records
  /// at the end: their blocks have no work.
  template <typename Record>
  std::span<const Record> filledUp(const std::vector<Record> &records, std::vector<Record> &filled) const {
    const auto most = static_cast<size_t>(planElements[static_cast<size_t>(planArrayOf<Record>())]);
    if (!fixed || records.size() >= most)
      return records;
    filled = records;
    filled.resize(most);
    return filled;
  }
  Status checkFixedDims() const;
};

} // namespace attn::rt

#endif
