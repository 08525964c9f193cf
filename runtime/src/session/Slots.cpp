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

Status Session::State::setTable(const std::string &name, std::span<const int32_t> values) {
  if (!wanted.count(name))
    return {};
  Table &table = tables[name];
  const size_t bytes = values.size_bytes();
  if (!table.buffer || table.buffer.bytes() < bytes) {
    if (fixed)
      return inputError("'" + name + "' has room for " + std::to_string(table.buffer.bytes()) +
                        " bytes, at an address that launches were fixed with, and the batch's takes " +
                        std::to_string(bytes) + ": " + fixedAdvice);
    const size_t room = std::max(bytes, table.buffer.bytes() * 3 / 2);
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

Status Session::bindTables(const Batch &batch) {
  State &s = *state_;
  const auto set = [&](const std::string &name, int64_t value) {
    auto [dim, isNew] = s.dims.try_emplace(name);
    if (!isNew && dim->second == static_cast<int32_t>(value))
      return;
    dim->second = static_cast<int32_t>(value);
    s.forget();
  };
  set("rows", batch.rows);
  set("sequences", static_cast<int64_t>(batch.sequences()));
  if (Status status = s.setTable("q_start", batch.qStart); !status)
    return status;
  if (Status status = s.setTable("q_pos", batch.qPos); !status)
    return status;
  if (s.wanted.count("ordinal_heads"))
    if (Status status = s.setTable("ordinal_heads", ordinalHeads(s.manifest, batch)); !status)
      return status;
  const std::vector<int32_t> heads = classHeads(s.manifest, batch);
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    const Argument &argument = s.manifest.argumentOf(s.manifest.operands[o]);
    const std::string prefix = argument.name + ".";
    set(prefix + "instances", static_cast<int64_t>(operand.instances()));
    set(prefix + "pages", operand.pages);
    set(prefix + "max_pages", operand.maxPages);
    set(prefix + "tokens", operand.tokens);
    if (argument.headClass >= 0)
      set(prefix + "heads", heads[static_cast<size_t>(argument.headClass)]);
    if (Status status = s.setTable(prefix + "lengths", operand.lengths); !status)
      return status;
    if (Status status = s.setTable(prefix + "pos0", operand.pos0); !status)
      return status;
    if (Status status = s.setTable(prefix + "block_table", operand.blockTable); !status)
      return status;
    if (Status status = s.setTable(prefix + "start", operand.start); !status)
      return status;
  }
  if (Status status = s.setStrideDims(); !status)
    return status;
  return s.checkFixedDims();
}

DeviceAddress Session::tableAddress(const std::string &name) const {
  auto found = state_->tables.find(name);
  return found == state_->tables.end() ? 0 : found->second.buffer.address();
}

} // namespace attn::rt
