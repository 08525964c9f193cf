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
  std::optional<BulkTensor> tensor = {}; ///< what it was made of, until a dimension changes
  bool stale = true;                     ///< the address has changed since
};

/// A kernel with its parameters' values, in the form that a launch wants them.
struct BoundKernel {
  const KernelInfo *info = nullptr;
  Kernel *kernel = nullptr;
  std::vector<uint64_t> values; ///< a slot for each parameter: an address, an i32 or an f32
  std::vector<void *> args;     ///< pointers to the slots, or to tensor maps
  std::vector<BoundMap *> maps; ///< that it reads through
};

/// A buffer of the caller's, and what an address of it goes into.
struct Slot {
  std::string name;
  DeviceAddress address = 0;
  std::vector<int64_t> strides = {};
  int64_t span = 0; ///< bytes that it reaches over with them
  std::vector<uint64_t *> values;
  std::vector<BoundMap *> maps;
};

/// A batch's table on the device, and what it holds there.
struct Table {
  Buffer buffer;
  std::vector<uint8_t> bytes;
};

/// What to do where a batch does not fit launches that were fixed.
inline std::string fixedAdvice(const std::string &limit, int64_t needed) {
  return "plan with limits={'" + limit + "': " + std::to_string(needed) +
         "} or more (Kernel.plan) before plan.fix()";
}

/// What all launches have in common once they are fixed.
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
  std::map<std::string, BoundMap> maps; ///< that some kernel reads through
  Buffer zero;                          ///< stands for tensors without elements
  std::map<std::string, Buffer> buffers;
  std::map<std::string, Table> tables = {}; ///< of bindTables
  TableRoom tableRoom = {};
  std::vector<std::vector<int32_t>> widened = {}; ///< of each operand, a block table with columns to spare
  std::vector<int32_t> headsOfOrdinals = {};      ///< of the batch that was bound last
  std::vector<Slot> slots = {};
  std::map<std::string, DeviceAddress> addresses; ///< of buffers and of the caller's memory
  std::map<std::string, int32_t> dims;
  StrideMap strides = {};                ///< as they were given
  std::vector<StridedTensor> strided;    ///< that may be given some
  std::set<std::string> strideDims = {}; ///< dimensions that follow from strides
  bool strideDimsStale = true;
  std::vector<int32_t> ends;
  std::vector<int32_t> classHeads, planClassHeads; ///< of the tensors bound (empty: not known), of the plan
  std::vector<int32_t> ordinalHeads = {}, planOrdinalHeads = {}; ///< the same, where plans are made by head
  PlanCapacity capacity;
  std::vector<PlanStart> starts; ///< of the last plan
  int planKernel = -1, planBlocks = 0;
  std::array<int64_t, planArrayCount> planElements = {}; ///< of each of its arrays
  uint64_t planStructure = 0;                            ///< of the plan that the device has
  std::vector<int32_t> unwritten = {};                   ///< Plan::unwritten
  std::vector<int32_t> mergeStart = {};                  ///< as it was last copied, or was to be
  std::vector<PlanTokenTask> tokenTasks = {};            ///< the plan's and empty ones, where the launch was
  std::vector<PlanTokenSum> tokenSums = {};              ///< fixed for more
  std::optional<FixedLaunch> fixed = {};
  /// Parts of a plan that the device makes: slots, and where they lie in its memory.
  struct PlanPart {
    int slot;
    size_t offset;
  };
  std::vector<PlanPart> planParts = {};
  size_t planBytes = 0;
  bool plansOnDevice = false;
  /// What Stage.cpp has checked and made room for, until it is kept or let go.
  struct StagedTable {
    std::pair<const std::string, Table> *table;
    std::span<const int32_t> values;
    Buffer grown; ///< in place of the one that has no room
  };
  std::vector<StagedTable> stagedTables = {};
  std::vector<std::pair<std::string, Buffer>> stagedBuffers = {};
  std::array<PlanContent, planArrayCount> stagedPlan = {};
  std::optional<std::map<std::string, int32_t>> dimsBefore = {}; ///< where some have changed
  bool stale = true; ///< addresses, dimensions or the plan changed since values were filled

  /// Takes over the memory of a session that is no longer used.
  void inherit(State &before);
  Status allocate(const std::string &name, int64_t bytes, MemoryUse use = MemoryUse::Plain);
  Status copy(const std::string &name, const void *from, size_t bytes);
  bool takesStrides(const std::string &name) const;
  /// Says how a tensor of the caller's lies; no strides: densely.
  void setStrides(const std::string &name, std::span<const int64_t> given);
  /// How a tensor lies, checked.
  Result<StridedShape> placeOf(const std::string &name, DType dtype, std::vector<int64_t> shape) const;
  /// The same of one that may be given strides; nothing where its sizes are not known.
  Result<std::optional<StridedShape>> placeOf(const StridedTensor &tensor) const;
  /// Sets the dimensions that follow from strides. Refuses what kernels cannot take.
  Status setStrideDims();
  bool isOfDenseStore(const std::string &name) const;
  /// Copies a tensor to where it lies, or back; what is between its lines stays as it is.
  Status copyIn(const std::string &name, const Tensor &tensor);
  Status copyOut(const std::string &name, Tensor &tensor) const;
  void setDimsOf(const Argument &argument, const TensorMap &tensors);
  /// Whether a dimension is an extent of a tensor that score functions read.
  bool isOfTable(const std::string &dim) const;
  Result<uint64_t> valueOf(const Parameter &param, const KernelInfo &kernel) const;
  Status fillValues(BoundKernel &kernel);
  Status bindMap(const TensorMapInfo &info);
  Status fillMaps(BoundKernel &kernel);
  /// Addresses or dimensions have changed, who knows which.
  void forget();
  /// Room in all is made for `most` entries; `limit` says who asks for more.
  struct TableSize {
    const char *limit;
    int64_t entries, most; ///< each of `words`
    int64_t words = 1, extra = 0;
  };
  // Stage.cpp. What fails leaves a state that `unstage` takes back.
  Status stageBuffer(const std::string &name, int64_t bytes, MemoryUse use = MemoryUse::Plain);
  Status stageRoom(const PlanCapacity &room);
  Status stageTable(const std::string &name, std::span<const int32_t> values, const TableSize &size);
  void stageDim(const std::string &name, int64_t value);
  Status stageOperand(const OperandBatch &operand, const std::string &prefix, std::vector<int32_t> &widened);
  Status stageTables(const Batch &batch, std::span<const DimValue> more);
  Status stagePlan(const Plan &plan, const PlanCapacity &room);
  void commitBuffers();
  void commitRoom(const PlanCapacity &room);
  /// The arrays of plans lie in the plan's memory as its capacity says.
  void placeArrays();
  Status commitTable(StagedTable &staged);
  Status commitPlan(const Plan &plan);
  void unstage();
  /// Fills results by token with zeros where the plan's tasks leave some out.
  Status clearUnwritten();
  /// Launches the plan's kernel of it.
  Status launch(const LaunchInfo &launch);
  std::string kernelName(int kernel) const { return manifest.kernels[static_cast<size_t>(kernel)].name; }
  /// Values that parameters have now, where something has changed.
  Status fillStale();
  Status checkFixed(const Plan &plan) const;
  /// A plan's records or, where the launch was fixed for more of them, those in `filled` with empty ones
  /// behind: blocks of these have nothing to do.
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
