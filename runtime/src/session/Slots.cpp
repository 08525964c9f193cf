//===- Slots.cpp - A session over memory of the caller's ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/State.h"

#include <algorithm>

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

void Session::bind(int slot, DeviceAddress address, std::span<const int64_t> strides) {
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

void Session::reserveTables(const TableRoom &room) { state_->tableRoom = room; }

DeviceAddress Session::tableAddress(const std::string &name) const {
  auto found = state_->tables.find(name);
  return found == state_->tables.end() ? 0 : found->second.buffer.address();
}

} // namespace attn::rt
