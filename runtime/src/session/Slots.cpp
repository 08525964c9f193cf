//===- Slots.cpp - A session over memory of the caller's ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/State.h"

#include <algorithm>
#include <cstring>

namespace attn::rt {

std::vector<std::string> Session::bufferNames() const {
  return {state_->wanted.begin(), state_->wanted.end()};
}

Result<int> Session::slot(const std::string &name) {
  State &s = *state_;
  for (size_t i = 0; i < s.slots.size(); ++i)
    if (s.slots[i].name == name)
      return static_cast<int>(i);
  if (Status status = bindAddress(name, 0); !status)
    return status.error();
  Slot slot{name, 0, {}, 0, {}, {}};
  for (BoundKernel &kernel : s.kernels)
    for (size_t i = 0; i < kernel.info->params.size(); ++i)
      if (const Parameter &param = kernel.info->params[i];
          param.kind == Parameter::Kind::Buffer && param.name == name)
        slot.values.push_back(&kernel.values[i]);
  for (auto &[map, bound] : s.maps)
    if (bound.info->buffer == name)
      slot.maps.push_back(&bound);
  s.slots.push_back(std::move(slot));
  return static_cast<int>(s.slots.size() - 1);
}

void Session::bindSlot(int slot, DeviceAddress address, std::span<const int64_t> strides) {
  Slot &bound = state_->slots[static_cast<size_t>(slot)];
  if (!std::equal(strides.begin(), strides.end(), bound.strides.begin(), bound.strides.end())) {
    bound.strides.assign(strides.begin(), strides.end());
    state_->setStrides(bound.name, strides);
  }
  if (bound.address == address)
    return;
  bound.address = address;
  state_->addresses[bound.name] = address;
  for (uint64_t *value : bound.values)
    *value = address;
  for (BoundMap *map : bound.maps)
    map->stale = true;
}

Status Session::State::setTable(const std::string &name, std::span<const int32_t> values,
                                const TableSize &size) {
  if (!wanted.count(name))
    return {};
  Table &table = tables[name];
  const size_t bytes = values.size_bytes();
  if (!table.buffer || table.buffer.bytes() < bytes) {
    if (fixed) {
      const auto words = static_cast<int64_t>(table.buffer.bytes() / sizeof(int32_t));
      return inputError("'" + name + "' has room for " +
                        std::to_string((words - size.extra) / std::max<int64_t>(size.words, 1)) + " " +
                        size.limit + ", at an address that launches were fixed with, and the batch has " +
                        std::to_string(size.entries) + ": " + fixedAdvice(size.limit, size.entries));
    }
    const auto reserved = static_cast<size_t>(size.most * size.words + size.extra) * sizeof(int32_t);
    const size_t room = std::max({bytes, reserved, table.buffer.bytes() * 3 / 2});
    table.bytes.clear();
    Result<Buffer> made = Buffer::create(device, room, name);
    if (!made)
      return made.error();
    table.buffer = std::move(*made);
  }
  if (std::none_of(slots.begin(), slots.end(), [&](const Slot &slot) { return slot.name == name; }) &&
      std::exchange(addresses[name], table.buffer.address()) != table.buffer.address())
    forget();
  if (table.bytes.size() == bytes && (bytes == 0 || !std::memcmp(table.bytes.data(), values.data(), bytes)))
    return {};
  table.bytes.clear(); // unknown until the copy is done
  if (Status status = device.copyIn(table.buffer.address(), values.data(), bytes); !status)
    return status;
  const auto *first = reinterpret_cast<const uint8_t *>(values.data());
  table.bytes.assign(first, first + bytes);
  return {};
}

void Session::State::setDim(const std::string &name, int64_t value) {
  auto [dim, isNew] = dims.try_emplace(name);
  if (!isNew && dim->second == static_cast<int32_t>(value))
    return;
  dim->second = static_cast<int32_t>(value);
  forget();
}

Status Session::State::bindOperand(const OperandBatch &operand, const std::string &prefix) {
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
  const int64_t lists = instances ? std::ssize(operand.lengths) / instances : 1; // ragged: of each head
  setDim(prefix + "instances", instances);
  setDim(prefix + "pages", operand.pages);
  setDim(wide, columns);
  setDim(prefix + "tokens", operand.tokens);
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
  if (Status status = setTable(prefix + "lengths", operand.lengths, sizeOf(lists)); !status)
    return status;
  if (Status status = setTable(prefix + "pos0", operand.pos0, sizeOf(1)); !status)
    return status;
  if (Status status = setTable(prefix + "block_table", blocks, sizeOf(lists * columns)); !status)
    return status;
  return setTable(prefix + "start", operand.start, sizeOf(1, operand.start.empty() ? 0 : 1));
}

Status Session::bindTables(const Batch &batch) {
  State &s = *state_;
  // How slots lie is said with each launch; strides of the last one need not fit a batch of other sizes.
  // Launches that are fixed keep theirs.
  for (Slot &slot : s.slots)
    if (!s.fixed && !slot.strides.empty()) {
      slot.strides.clear();
      s.setStrides(slot.name, {});
    }
  const auto sequences = static_cast<int64_t>(batch.sequences());
  s.setDim("rows", batch.rows);
  s.setDim("sequences", sequences);
  if (Status status = s.setTable("q_start", batch.qStart, {"groups", sequences, s.tableRoom.sequences, 1, 1});
      !status)
    return status;
  if (Status status = s.setTable("q_pos", batch.qPos, {"rows", batch.rows, s.tableRoom.rows}); !status)
    return status;
  if (s.wanted.count("ordinal_heads")) {
    const std::vector<int32_t> heads = ordinalHeads(s.manifest, batch);
    if (Status status = s.setTable("ordinal_heads", heads, {"heads", std::ssize(heads), 0}); !status)
      return status;
  }
  const std::vector<int32_t> heads = classHeads(s.manifest, batch);
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const Argument &argument = s.manifest.argumentOf(s.manifest.operands[o]);
    if (argument.headClass >= 0)
      s.setDim(argument.name + ".heads", heads[static_cast<size_t>(argument.headClass)]);
    if (Status status = s.bindOperand(batch.operands[o], argument.name + "."); !status)
      return status;
  }
  if (Status status = s.setStrideDims(); !status)
    return status;
  return s.checkFixedDims();
}

void Session::reserveTables(const TableRoom &room) { state_->tableRoom = room; }

DeviceAddress Session::tableAddress(const std::string &name) const {
  auto found = state_->tables.find(name);
  return found == state_->tables.end() ? 0 : found->second.buffer.address();
}

} // namespace attn::rt
