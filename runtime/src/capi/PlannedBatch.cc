//===- PlannedBatch.cc - What the C API's plans stand for -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"
#include "capi/Adopted.h"

#include <limits>

using namespace attn::rt;
using namespace attn::rt::capi;

Status SharedDevice::checkPlanning(uintptr_t stream) {
  auto held = use(stream);
  if (!held)
    return held.error();
  if (device->isRecording())
    return inputError(
        "plan: expected to be made and updated before the stream is captured, or between replays");
  return {};
}

PlannedBatch::~PlannedBatch() {
  if (!session)
    return;
  auto held = kernel->device->hold();
  if (!held)
    new (std::nothrow) Session(std::move(*session)); // its buffers belong to a device that is lost
  else if (ready && !fixed && !onDevice)
    kernel->leaveRoom(std::move(*this));
  else
    session.reset();
}

void PlannedBatch::noteStream() {
  if (fixed) // leaves no workspace
    return;
  const uint64_t number = oneStream ? kernel->device->device->streamNumber() : 0;
  oneStream = number && (!stream || stream == number);
  stream = number;
}

Result<std::unique_lock<std::mutex>> PlannedBatch::hold() const {
  auto held = batch->lock.take("the batch");
  if (held && batch->version != version)
    return inputError("the batch has changed since it was planned: update the plan first");
  return held;
}

/// Kernels index partials and records with 32 bits.
static Status checkCapacity(const PlanCapacity &capacity) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  for (const auto &[name, value] : {std::pair("tasks", capacity.tasks),
                                    {"segments", capacity.segments},
                                    {"merge rows", capacity.mergeRows},
                                    {"merge partials", capacity.mergePartials},
                                    {"partial rows", capacity.partialRows},
                                    {"slots", capacity.slots},
                                    {"bits", capacity.bits},
                                    {"tokens of parts", capacity.partialTokens},
                                    {"semaphores", capacity.semaphores},
                                    {"words of scores", capacity.scoreWords}})
    if (value < 0 || value > most)
      return inputError(std::string("limits: they ask for ") + std::to_string(value) + " " + name +
                        ", more than 2^31 - 1");
  return {};
}

/// Plans a batch anew into `next`, with a larger workspace if needed.
Status PlannedBatch::planAnew(const Batch &content, NextRoom &room) {
  const Manifest &manifest = kernel->manifest;
  Status status = planner ? planner->plan(content, next) : Status();
  if (planner && status)
    return {};
  room.limits = PlanLimits::larger(limits, PlanLimits::of(manifest, content));
  if (planner && (room.limits == limits || fixed))
    return status;
  room.capacity = planCapacity(manifest, room.limits, options);
  if (Status legal = checkCapacity(room.capacity); !legal)
    return legal;
  room.planner.emplace(manifest, options, room.capacity);
  return room.planner->plan(content, next);
}

/// Copies tables and plan to the device.
Status PlannedBatch::upload(const SharedBatch &given, const Plan &made, const PlanCapacity *room,
                            uintptr_t stream, bool &begun) {
  begun = false;
  auto held = kernel->device->use(stream);
  if (!held)
    return held.error();
  noteStream();
  std::vector<Session::DimValue> dims;
  for (const auto &[name, shape] : given.shapes)
    for (size_t axis = 0; axis < shape.size(); ++axis)
      dims.emplace_back(name + ".dim" + std::to_string(axis), shape[axis]);
  return session->take(given.content.batch, dims, made, room, begun);
}

/// Checks come before any change: after a failure the plan is unchanged, unless the device failed with half
/// of the step copied.
Status PlannedBatch::update(std::shared_ptr<SharedBatch> given, uintptr_t stream, bool &wasExtended) {
  if (onDevice)
    return inputError("plan: is made on the device: attnPlanMake makes the next one");
  const Manifest &manifest = kernel->manifest;
  auto held = given->lock.take("the batch");
  if (!held)
    return held.error();
  if (Status status = given->fits(manifest); !status)
    return status;
  if (Status status = kernel->device->checkPlanning(stream); !status)
    return status;
  std::vector<SlotNeed> needed;
  for (const std::string &slot : kernel->slots) {
    Result<SlotNeed> need = given->need(manifest, slot);
    if (!need)
      return need.error();
    needed.push_back(*need);
  }
  LogCounts counted = LogCounts::of(given->content);
  const Batch &content = given->content.batch;
  NextRoom room;
  const bool kept = planner && planner->extend(content, plan);
  if (!kept)
    if (Status status = planAnew(content, room); !status)
      return status;
  bool begun = false;
  Status status = upload(*given, kept ? plan : next, room.planner ? &room.capacity : nullptr, stream, begun);
  if (!status && kept && !begun)
    planner->retract(plan);
  if (!status && !begun)
    return status;
  if (!kept)
    std::swap(plan, next);
  if (room.planner) {
    limits = room.limits;
    capacity = room.capacity;
    planner.emplace(std::move(*room.planner));
  }
  extended = kept ? extended + 1 : 0;
  wasExtended = kept;
  needs = std::move(needed);
  rows = content.rows;
  version = given->version;
  counts = std::move(counted);
  batch = std::move(given);
  ready = static_cast<bool>(status);
  return status;
}

Status PlannedBatch::grow(int32_t tokens, int64_t apart, uintptr_t stream, bool &wasExtended) {
  if (!ready)
    return inputError("plan: the device failed in its last update: update it before it grows");
  if (Status status = kernel->device->checkPlanning(stream); !status)
    return status;
  uint64_t versionBefore = 0;
  {
    auto held = hold();
    if (!held)
      return held.error();
    if (batch->built)
      return inputError("plan: its batch was made from a cache, which grows by itself: update the plan");
    beforeGrowth = batch->content.batch;
    versionBefore = batch->version;
    if (Status status = growBatch(kernel->manifest, batch->content.batch, tokens, apart); !status)
      return status;
    batch->version = newVersion();
  }
  const uint64_t grown = batch->version;
  Status status = update(batch, stream, wasExtended);
  if (!status && version != grown) // it is still the plan of the batch before
    if (auto held = batch->lock.take("the batch"); held && batch->version == grown) {
      std::swap(batch->content.batch, beforeGrowth);
      batch->version = versionBefore;
    }
  return status;
}

Status PlannedBatch::checkAddress(size_t slot, uint64_t address, size_t bytes, bool isDense) const {
  const SlotNeed &need = needs[slot];
  const std::string &name = kernel->slots[slot];
  if (isDense && bytes < need.bytes)
    return inputError("'" + name + "': expected at least " + std::to_string(need.bytes) + " bytes, got " +
                      std::to_string(bytes));
  if (need.bytes && !address)
    return inputError("'" + name + "': expected an address, got null");
  if (address % need.alignment)
    return inputError("'" + name + "': expected an address that is a multiple of " +
                      std::to_string(need.alignment) + ", got one that is " +
                      std::to_string(address % need.alignment) + " above one");
  if (bytes > std::numeric_limits<int64_t>::max() || address > std::numeric_limits<uint64_t>::max() - bytes)
    return inputError("'" + name + "': " + std::to_string(bytes) + " bytes at " + std::to_string(address) +
                      " reach past the end of memory");
  return {};
}

Status PlannedBatch::checkOverlaps(const uint64_t *addresses, const size_t *bytes) const {
  for (size_t out : kernel->written)
    for (size_t i = 0; i < needs.size(); ++i)
      if (i != out && addresses[i] < addresses[out] + bytes[out] &&
          addresses[out] < addresses[i] + bytes[i] && bytes[i] && bytes[out])
        return inputError("'" + kernel->slots[out] + "': overlaps '" + kernel->slots[i] +
                          "', which other blocks still read or write when the first results are written");
  return {};
}

Status PlannedBatch::checkCurrent() {
  if (batch->version != version)
    return inputError("plan: its batch has changed since it was planned: update the plan first");
  if (counts.areCurrent(batch->content))
    return {};
  auto held = hold();
  if (!held)
    return held.error();
  if (Status status = attn::rt::checkCurrent(batch->content, counts); !status)
    return inputError(
        "plan: " + status.error().message +
        ": update the batch, or make one of the nodes that there are, and then the plan with it");
  return {};
}

Status PlannedBatch::checkStrides(const size_t *bytes, const int64_t *const *strides) {
  if (Status status = session->checkStrides(); !status || !strides)
    return status;
  for (size_t i = 0; i < needs.size(); ++i)
    if (const auto span = static_cast<size_t>(session->slotSpan(slots[i])); strides[i] && bytes[i] < span)
      return inputError("'" + kernel->slots[i] + "': expected at least the " + std::to_string(span) +
                        " bytes that its strides reach over, got " + std::to_string(bytes[i]));
  return {};
}

Status PlannedBatch::run(const uint64_t *addresses, const size_t *bytes, const int64_t *const *strides,
                         size_t count, uintptr_t stream) {
  if (!ready)
    return inputError("plan: the device failed in its last update: update it before it is run");
  if (count != needs.size())
    return inputError("expected an address for each of the " + std::to_string(needs.size()) +
                      " buffers, got " + std::to_string(count));
  if (Status status = onDevice ? Status() : checkCurrent(); !status)
    return status;
  auto held = kernel->device->use(stream);
  if (!held)
    return held.error();
  if (!fixed && kernel->device->device->isRecording())
    return inputError(
        "plan: the stream is being captured, and launches of a plan that is not fixed change with "
        "its updates, so that replays would go wrong: call plan.fix() (attnPlanFix) before the "
        "capture");
  noteStream();
  HostDevice *host = kernel->device->host;
  std::optional<Adopted> adopted;
  if (host)
    adopted.emplace(*host);
  for (const DeviceTable &table : deviceTables)
    if (host && !table.own)
      adopted->add(table.address, table.bytes, table.name.c_str());
  for (size_t i = 0; i < count; ++i) {
    const bool own = !addresses[i] && kernel->slots[i] == "ordinal_heads";
    std::span<const int64_t> lies;
    if (strides && strides[i])
      lies = {strides[i], kernel->ranks[i]};
    if (!own)
      if (Status status = checkAddress(i, addresses[i], bytes[i], lies.empty()); !status)
        return status;
    session->bind(slots[i], own ? session->tableAddress("ordinal_heads") : addresses[i], lies);
    if (host && !own)
      adopted->add(addresses[i], bytes[i], kernel->slots[i].c_str());
  }
  if (Status status = checkStrides(bytes, strides); !status)
    return status;
  if (Status status = checkOverlaps(addresses, bytes); !status)
    return status;
  if (host)
    if (Status status = adopted->adopt(); !status)
      return status;
  // Tokens have results even without rows, and a fixed launch may be recorded and replayed with rows.
  if (rows == 0 && !fixed && !kernel->manifest.walksTokens())
    return {};
  if (!host)
    return session->launch();
  // Only attention may be interrupted: a cache operation that ended early would leave its copies half done.
  host->options().interrupted = kernel->device->interrupted;
  Status launched = session->launch();
  host->options().interrupted = nullptr;
  return launched;
}
