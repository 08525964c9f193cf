//===- Stage.cpp - What a session is given, checked before it is kept -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A step brings tables and a plan, which belong together: recorded launches read both. So
// all checks and all allocations come first. If one fails, the session is unchanged, and
// launches still run the last step.
//
//===----------------------------------------------------------------------===//
#include "session/State.h"

#include <algorithm>
#include <cstring>

namespace attn::rt {

Status Session::State::stageBuffer(const std::string &name, int64_t bytes, MemoryUse use) {
  const auto found = buffers.find(name);
  if (found != buffers.end() && found->second && found->second.bytes() == static_cast<size_t>(bytes))
    return {};
  if (fixed)
    return inputError("'" + name + "' has " +
                      std::to_string(found == buffers.end() ? 0 : found->second.bytes()) +
                      " bytes, at an address that launches were fixed with, and is asked to have " +
                      std::to_string(bytes) + ": bind and reserve the most before fixLaunch");
  Result<Buffer> made = Buffer::create(device, static_cast<size_t>(bytes), name, use);
  if (!made)
    return made.error();
  stagedBuffers.emplace_back(name, std::move(*made));
  return {};
}

void Session::State::commitBuffers() {
  for (auto &[name, buffer] : stagedBuffers) {
    addresses[name] = buffer.address();
    buffers[name] = std::move(buffer);
  }
  if (!stagedBuffers.empty())
    forget();
  stagedBuffers.clear();
}

Status Session::State::stageRoom(const PlanCapacity &room) {
  const auto wantedBuffers = planBuffers(room, manifest);
  for (size_t i = 0; i < planArrayCount; ++i)
    if (const auto &[elements, elementBytes, use] = wantedBuffers[i]; use == MemoryUse::Partials)
      if (Status status = stageBuffer(std::string(planArrayNames[i]), elements * elementBytes, use); !status)
        return status;
  const PlanPlaces places = planPlaces(wantedBuffers);
  if (fixed && places != planPlaces(planBuffers(capacity, manifest)))
    return inputError("memory for plans was reserved before fixLaunch, and launches hold the addresses of "
                      "its arrays: expected the same capacity, got another: reserve the most before "
                      "fixLaunch");
  return stageBuffer(planMemory, static_cast<int64_t>(places.bytes));
}

void Session::State::commitRoom(const PlanCapacity &room) {
  commitBuffers();
  capacity = room;
  planStructure = 0;
  placeArrays();
}

void Session::State::placeArrays() {
  const auto held = planBuffers(capacity, manifest);
  const PlanPlaces places = planPlaces(held);
  for (size_t i = 0; i < planArrayCount; ++i)
    if (held[i].use != MemoryUse::Partials)
      addresses[std::string(planArrayNames[i])] = addresses[planMemory] + places.offsets[i];
  forget();
}

Status Session::State::stageTable(const std::string &name, std::span<const int32_t> values,
                                  const TableSize &size) {
  if (!wanted.count(name))
    return {};
  StagedTable &staged = stagedTables.emplace_back(&*tables.try_emplace(name).first, values, Buffer());
  const Buffer &buffer = staged.table->second.buffer;
  const size_t bytes = values.size_bytes();
  if (buffer && buffer.bytes() >= bytes)
    return {};
  if (fixed) {
    const auto words = static_cast<int64_t>(buffer.bytes() / sizeof(int32_t));
    return inputError("'" + name + "' has room for " +
                      std::to_string((words - size.extra) / std::max<int64_t>(size.words, 1)) + " " +
                      size.limit + ", at an address that launches were fixed with, and the batch has " +
                      std::to_string(size.entries) + ": " + fixedAdvice(size.limit, size.entries));
  }
  const auto reserved = static_cast<size_t>(size.most * size.words + size.extra) * sizeof(int32_t);
  Result<Buffer> made = Buffer::create(device, std::max({bytes, reserved, buffer.bytes() * 3 / 2}), name);
  if (!made)
    return made.error();
  staged.grown = std::move(*made);
  return {};
}

Status Session::State::commitTable(StagedTable &staged) {
  auto &[name, table] = *staged.table;
  if (staged.grown) {
    table.buffer = std::move(staged.grown);
    table.bytes.clear();
  }
  if (std::none_of(slots.begin(), slots.end(), [&](const Slot &slot) { return slot.name == name; }) &&
      std::exchange(addresses[name], table.buffer.address()) != table.buffer.address())
    forget();
  const size_t bytes = staged.values.size_bytes();
  if (table.bytes.size() == bytes &&
      (bytes == 0 || !std::memcmp(table.bytes.data(), staged.values.data(), bytes)))
    return {};
  table.bytes.clear(); // unknown until the copy is complete
  if (Status status = device.copyIn(table.buffer.address(), staged.values.data(), bytes); !status)
    return status;
  const auto *first = reinterpret_cast<const uint8_t *>(staged.values.data());
  table.bytes.assign(first, first + bytes);
  return {};
}

void Session::State::stageDim(const std::string &name, int64_t value) {
  auto [dim, isNew] = dims.try_emplace(name);
  if (!isNew && dim->second == static_cast<int32_t>(value))
    return;
  if (!dimsBefore) {
    dimsBefore = dims;
    if (isNew)
      dimsBefore->erase(name);
  }
  dim->second = static_cast<int32_t>(value);
  forget();
}

Status Session::State::stageOperand(const OperandBatch &operand, const std::string &prefix,
                                    std::vector<int32_t> &widened) {
  int64_t columns = std::max(operand.maxPages, operand.maxPages ? tableRoom.pages : 0);
  const std::string wide = prefix + "max_pages";
  if (fixed && fixed->dims.count(wide)) {
    const int64_t held = fixed->dims[wide];
    if (operand.maxPages > held)
      return inputError("'" + prefix + "block_table' has room for " + std::to_string(held) +
                        " pages of an instance, as launches were fixed with, and the batch's have up to " +
                        std::to_string(operand.maxPages) + ": " + fixedAdvice("pages", operand.maxPages));
    columns = held;
  }
  if (columns > operand.maxPages && operand.maxPages > 0 && manifest.walksTokens())
    return inputError("'" + prefix + "block_table': expected " + std::to_string(columns) +
                      " columns, as many as launches have room for, because significance is as wide as the "
                      "table, got " +
                      std::to_string(operand.maxPages));
  const auto instances = static_cast<int64_t>(operand.instances());
  const int64_t lists = instances ? std::ssize(operand.lengths) / instances : 1; // one per head if ragged
  stageDim(prefix + "instances", instances);
  stageDim(prefix + "pages", operand.pages);
  stageDim(wide, columns);
  stageDim(prefix + "tokens", operand.tokens);
  std::span<const int32_t> blocks = operand.blockTable;
  if (columns > operand.maxPages && operand.maxPages > 0) {
    const auto from = static_cast<size_t>(operand.maxPages), to = static_cast<size_t>(columns);
    widened.assign(blocks.size() / from * to, -1);
    for (size_t row = 0; row * from < blocks.size(); ++row)
      std::copy_n(blocks.begin() + static_cast<int64_t>(row * from), from,
                  widened.begin() + static_cast<int64_t>(row * to));
    blocks = widened;
  }
  const auto sizeOf = [&](int64_t words, int64_t extra = 0) {
    return TableSize{"instances", instances, tableRoom.instances, words, extra};
  };
  if (Status status = stageTable(prefix + "lengths", operand.lengths, sizeOf(lists)); !status)
    return status;
  if (Status status = stageTable(prefix + "pos0", operand.pos0, sizeOf(1)); !status)
    return status;
  if (Status status = stageTable(prefix + "block_table", blocks, sizeOf(lists * columns)); !status)
    return status;
  return stageTable(prefix + "start", operand.start, sizeOf(1, operand.start.empty() ? 0 : 1));
}

Status Session::State::stageTables(const Batch &batch, std::span<const DimValue> more) {
  // Each launch gives the strides of slots; strides of the last launch need not fit a batch of other sizes.
  // Fixed launches keep theirs.
  for (Slot &slot : slots)
    if (!fixed && !slot.strides.empty()) {
      slot.strides.clear();
      setStrides(slot.name, {});
    }
  const auto sequences = static_cast<int64_t>(batch.sequences());
  stageDim("rows", batch.rows);
  stageDim("sequences", sequences);
  for (const auto &[name, value] : more)
    stageDim(name, value);
  if (Status status = stageTable("q_start", batch.qStart, {"groups", sequences, tableRoom.sequences, 1, 1});
      !status)
    return status;
  if (Status status = stageTable("q_pos", batch.qPos, {"rows", batch.rows, tableRoom.rows}); !status)
    return status;
  const std::vector<int32_t> heads = rt::classHeads(manifest, batch);
  if (wanted.count("ordinal_heads")) {
    headsOfOrdinals = rt::ordinalHeads(manifest, batch);
    if (Status status =
            stageTable("ordinal_heads", headsOfOrdinals, {"heads", std::ssize(headsOfOrdinals), 0});
        !status)
      return status;
  }
  widened.resize(batch.operands.size());
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const Argument &argument = manifest.argumentOf(manifest.operands[o]);
    if (argument.headClass >= 0)
      stageDim(argument.name + ".heads", heads[static_cast<size_t>(argument.headClass)]);
    if (Status status = stageOperand(batch.operands[o], argument.name + ".", widened[o]); !status)
      return status;
  }
  if (Status status = setStrideDims(); !status)
    return status;
  return checkFixedDims();
}

void Session::State::unstage() {
  if (dimsBefore) {
    dims = std::move(*dimsBefore);
    forget();
  }
  dimsBefore.reset();
  stagedBuffers.clear();
  stagedTables.clear();
}

/// Stages the records of a plan in the form that the device reads.
Status Session::State::stagePlan(const Plan &plan, const PlanCapacity &room) {
  if (plansOnDevice)
    return inputError("'" + manifest.entry + "' makes its plans on the device: useDevicePlan was called");
  if (!manifest.isPlanned(plan.kernel) || plan.ends.size() != manifest.ends.size())
    return inputError("the plan was made for another kernel than '" + manifest.entry + "'");
  if (Status status = checkFixed(plan); !status)
    return status;
  // An extended plan differs only in what tasks read, and in the blocks' first records, which hold a copy.
  const bool extended = plan.structure != 0 && plan.structure == planStructure;
  if (!extended) { // the number of lists precedes their begins
    mergeStart.assign({static_cast<int32_t>(plan.mergeRows.size())});
    mergeStart.insert(mergeStart.end(), plan.mergeStart.begin(), plan.mergeStart.end());
  }
  fillStarts(plan, starts);
  stagedPlan = planContents({.blockTasks = plan.blockTasks,
                             .starts = starts,
                             .slots = plan.slots,
                             .bits = plan.bits,
                             .tasks = plan.tasks,
                             .segments = plan.segments,
                             .tokenTasks = filledUp(plan.tokenTasks, tokenTasks),
                             .tokenSums = filledUp(plan.tokenSums, tokenSums),
                             .scoreTasks = plan.scoreTasks,
                             .mergeStart = mergeStart,
                             .mergeRows = plan.mergeRows,
                             .mergePartials = plan.mergePartials,
                             .partialRows = plan.partialRows,
                             .partialTokens = plan.partialTokens,
                             .scoreWords = plan.scoreWords,
                             .semaphores = plan.semaphores});
  const auto held = planBuffers(room, manifest);
  for (size_t i = 0; i < planArrayCount; ++i)
    if (stagedPlan[i].elements > held[i].elements)
      return inputError("the plan fills " + std::to_string(stagedPlan[i].elements) + " elements of '" +
                        std::string(planArrayNames[i]) + "', but the session has reserved " +
                        std::to_string(held[i].elements));
  return {};
}

Status Session::State::commitPlan(const Plan &plan) {
  const bool extended = plan.structure != 0 && plan.structure == planStructure;
  const auto held = planBuffers(capacity, manifest);
  const PlanPlaces places = planPlaces(held);
  planStructure = 0;
  std::vector<CopyPiece> pieces;
  for (size_t i = 0; i < planArrayCount; ++i)
    if (const auto bytes = static_cast<size_t>(stagedPlan[i].elements * held[i].elementBytes);
        stagedPlan[i].data && bytes && (!extended || extends(static_cast<PlanArray>(i))))
      pieces.push_back({places.offsets[i], stagedPlan[i].data, bytes});
  const DeviceAddress memory = addresses[planMemory];
  if (!extended)
    if (Status status = device.copyPieces(memory, pieces); !status)
      return status;
  for (size_t i = 0; extended && i < pieces.size(); ++i) // the arrays between them are unchanged
    if (Status status = device.copyIn(memory + pieces[i].offset, pieces[i].from, pieces[i].bytes); !status)
      return status;
  planStructure = plan.structure;
  planKernel = plan.kernel;
  planBlocks = plan.blocks;
  for (size_t i = 0; i < planArrayCount; ++i)
    planElements[i] = stagedPlan[i].elements;
  unwritten = plan.unwritten;
  ends.assign(plan.ends.begin(), plan.ends.end());
  planClassHeads = plan.classHeads;
  planOrdinalHeads = plan.ordinalHeads;
  stale |= !extended;
  return {};
}

Status Session::reserve(const PlanCapacity &capacity) {
  State &s = *state_;
  if (Status status = s.stageRoom(capacity); !status) {
    s.unstage();
    return status;
  }
  s.commitRoom(capacity);
  return {};
}

Status Session::bindTables(const Batch &batch) {
  State &s = *state_;
  Status status = s.stageTables(batch, {});
  for (size_t i = 0; i < s.stagedTables.size() && status; ++i)
    status = s.commitTable(s.stagedTables[i]);
  if (status)
    s.dimsBefore.reset();
  s.unstage();
  return status;
}

Status Session::setPlan(const Plan &plan) {
  State &s = *state_;
  if (Status status = s.stagePlan(plan, s.capacity); !status)
    return status;
  for (size_t i = 0; i < planArrayCount; ++i)
    if (const std::string name(planArrayNames[i]); !s.addresses.count(name))
      return inputError("no room was reserved for '" + name + "'");
  return s.commitPlan(plan);
}

Status Session::take(const Batch &batch, std::span<const DimValue> dims, const Plan &plan,
                     const PlanCapacity *room, bool &begun) {
  State &s = *state_;
  begun = false;
  const auto stage = [&]() -> Status {
    if (Status status = s.stageTables(batch, dims); !status)
      return status;
    if (Status status = room ? s.stageRoom(*room) : Status(); !status)
      return status;
    return s.stagePlan(plan, room ? *room : s.capacity);
  };
  Status status = stage();
  if (status) {
    begun = true;
    s.dimsBefore.reset();
    if (room)
      s.commitRoom(*room);
    for (size_t i = 0; i < s.stagedTables.size() && status; ++i)
      status = s.commitTable(s.stagedTables[i]);
    if (status)
      status = s.commitPlan(plan);
  }
  s.unstage();
  return status;
}

} // namespace attn::rt
