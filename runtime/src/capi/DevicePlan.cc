//===- DevicePlan.cc - The C API's plans that the device makes ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"
#include "capi/Adopted.h"

#include <algorithm>

using namespace attn::rt;
using namespace attn::rt::capi;

namespace {

/// Checks that each sequence has one instance of each operand, which only its rows see.
Status checkUnshared(const Manifest &manifest, const Batch &batch) {
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    const std::string &name = manifest.operands[o].argument;
    if (operand.instances() != batch.sequences())
      return inputError("plan: expected an instance of '" + name + "' for each of the " +
                        std::to_string(batch.sequences()) + " sequences, got " +
                        std::to_string(operand.instances()) + ": shared tokens are planned on the host");
    for (size_t i = 0; i < operand.instances(); ++i)
      if (operand.rowFirst[i] < operand.rowLast[i] &&
          (operand.rowFirst[i] != batch.qStart[i] || operand.rowLast[i] != batch.qStart[i + 1]))
        return inputError(
            "plan: expected instance " + std::to_string(i) + " of '" + name +
            "' to be seen only by the rows of that sequence: shared tokens are planned on the host");
  }
  return {};
}

/// The capacity of the tables in tokens.
int64_t mostTokens(const Manifest &manifest, const Batch &batch) {
  int64_t most = 1;
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const Store store = storeOf(manifest.argumentOf(manifest.operands[o]));
    const OperandBatch &operand = batch.operands[o];
    most = std::max<int64_t>(most, store.isPaged() ? store.tokensOf(operand.maxPages) : operand.tokens);
  }
  return most;
}

std::vector<PlannedBatch::DeviceTable> deviceTablesOf(const Manifest &manifest, const Batch &batch) {
  const size_t sequences = batch.sequences(), word = sizeof(int32_t);
  std::vector<PlannedBatch::DeviceTable> tables{{"q_start", (sequences + 1) * word}};
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const Argument &argument = manifest.argumentOf(manifest.operands[o]);
    const std::string prefix = argument.name + ".";
    if (std::any_of(tables.begin(), tables.end(),
                    [&](const auto &t) { return t.name == prefix + "lengths"; }))
      continue;                                            // one region that two operands show
    const size_t lists = batch.operands[o].lengths.size(); // of sequences, or of each of their heads
    tables.push_back({prefix + "lengths", lists * word});
    tables.push_back({prefix + "pos0", sequences * word});
    if (storeOf(argument).isPaged())
      tables.push_back(
          {prefix + "block_table", lists * static_cast<size_t>(batch.operands[o].maxPages) * word});
    if (argument.store == StoreKind::Packed)
      tables.push_back({prefix + "start", (sequences + 1) * word});
  }
  return tables;
}

} // namespace

Status PlannedBatch::moveToDevice(int64_t tokens, uintptr_t stream) {
  if (fixed || !ready)
    return inputError("plan: expected one that was made, and neither fixed nor moved to the device before");
  auto content = hold();
  if (!content)
    return content.error();
  const Batch &most = batch->content.batch;
  if (Status status = checkUnshared(kernel->manifest, most); !status)
    return status;
  auto held = kernel->device->use(stream);
  if (!held)
    return held.error();
  if (kernel->device->device->isRecording())
    return inputError("plan: expected to be moved to the device before the stream is captured");
  const PlanLimits limits = PlanLimits::of(kernel->manifest, most);
  if (plan.scoreTasks.empty() && (limits.scoreTasks > 0 || limits.tokenTasks > 0))
    return inputError("plan: expected a step of decoding, whose sequences have a row that sees all of their "
                      "tokens: of other batches significance is planned on the host");
  PlanOptions here = options;
  here.kernel = plan.kernel;
  here.strategy = Strategy::ByQuery;
  Result<DevicePlan> made =
      makeDevicePlan(kernel->manifest,
                     {.rows = most.rows,
                      .sequences = static_cast<int64_t>(most.sequences()),
                      .tokens = tokens > 0 ? tokens : mostTokens(kernel->manifest, most),
                      .scoreTasks = limits.scoreTasks,
                      .scoreTokens = limits.scoreTokens},
                     here);
  if (!made)
    return inputError("plan: " + made.error().message);
  made->ends = plan.ends;
  if (Status status = session->useDevicePlan(*made); !status)
    return status;
  deviceTables = deviceTablesOf(kernel->manifest, most);
  for (DeviceTable &table : deviceTables) {
    Result<int> slot = session->slot(table.name);
    if (!slot)
      return slot.error();
    table.slot = *slot;
    session->bind(*slot, session->tableAddress(table.name));
  }
  deviceTables.insert(deviceTables.begin(), {"plan", session->planBytes()});
  fixed = onDevice = true;
  return {};
}

Status PlannedBatch::bind(const uint64_t *addresses, const size_t *bytes, size_t count) {
  if (!onDevice)
    return inputError("plan: is made on the host: move it to the device first (attnPlanOnDevice)");
  if (count != deviceTables.size())
    return inputError("plan: expected an address for each of the " + std::to_string(deviceTables.size()) +
                      " tables, got " + std::to_string(count));
  for (size_t i = 0; i < count; ++i)
    if (const size_t alignment = i == 0 ? 16 : sizeof(int32_t);
        addresses[i] && (bytes[i] < deviceTables[i].bytes || addresses[i] % alignment))
      return inputError("'" + deviceTables[i].name + "': expected at least " +
                        std::to_string(deviceTables[i].bytes) + " bytes at a multiple of " +
                        std::to_string(alignment) + ", got " + std::to_string(bytes[i]) + " at " +
                        std::to_string(addresses[i]));
  for (size_t i = 0; i < count; ++i) {
    DeviceTable &table = deviceTables[i];
    table.own = !addresses[i];
    table.address = addresses[i];
    if (i == 0) {
      if (Status status = session->bindPlan(addresses[i]); !status)
        return status;
      continue;
    }
    session->bind(table.slot, table.own ? session->tableAddress(table.name) : addresses[i]);
  }
  return {};
}

Status PlannedBatch::make(uintptr_t stream) {
  if (!onDevice)
    return inputError("plan: is made on the host: move it to the device first (attnPlanOnDevice)");
  auto held = kernel->device->use(stream);
  if (!held)
    return held.error();
  std::optional<Adopted> adopted;
  if (Status status = adoptTables(adopted); !status)
    return status;
  return session->launchPlan();
}

Status PlannedBatch::adoptTables(std::optional<Adopted> &adopted) const {
  HostDevice *host = kernel->device->host;
  if (!host)
    return {};
  adopted.emplace(*host);
  for (const DeviceTable &table : deviceTables)
    if (!table.own)
      adopted->add(table.address, table.bytes, table.name.c_str());
  return adopted->adopt();
}

AttnStatus attnPlanOnDevice(AttnPlan *plan, int64_t tokens, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("plan", plan); !status)
      return status;
    auto held = plan->planned->lock.take("the plan");
    return held ? plan->planned->moveToDevice(tokens, stream) : held.error();
  });
}

const char *attnPlanTable(const AttnPlan *plan, size_t index) {
  return guardedValue(static_cast<const char *>(nullptr), [&]() -> const char * {
    if (!plan || index >= plan->planned->deviceTables.size())
      return nullptr;
    return plan->planned->deviceTables[index].name.c_str();
  });
}

size_t attnPlanTableBytes(const AttnPlan *plan, size_t index) {
  return guardedValue(size_t{0}, [&]() -> size_t {
    if (!plan || index >= plan->planned->deviceTables.size())
      return 0;
    return plan->planned->deviceTables[index].bytes;
  });
}

AttnStatus attnPlanBind(AttnPlan *plan, const uint64_t *addresses, const size_t *bytes, size_t count) {
  return guarded([&]() -> Status {
    if (Status status = required("plan, addresses, bytes", plan, addresses, bytes); !status)
      return status;
    auto held = plan->planned->lock.take("the plan");
    return held ? plan->planned->bind(addresses, bytes, count) : held.error();
  });
}

AttnStatus attnPlanMake(AttnPlan *plan, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("plan", plan); !status)
      return status;
    auto held = plan->planned->lock.take("the plan");
    return held ? plan->planned->make(stream) : held.error();
  });
}

AttnStatus attnPlanFault(AttnPlan *plan, uintptr_t stream, AttnBytes **message) {
  return guarded([&]() -> Status {
    if (Status status = required("plan, message", plan, message); !status)
      return status;
    auto held = plan->planned->lock.take("the plan");
    if (!held)
      return held.error();
    auto device = plan->planned->kernel->device->use(stream);
    if (!device)
      return device.error();
    std::optional<Adopted> adopted;
    if (Status status = plan->planned->adoptTables(adopted); !status)
      return status;
    Result<std::string> found = plan->planned->session->planFault();
    if (!found)
      return found.error();
    *message = new AttnBytes{std::move(*found)};
    return {};
  });
}
