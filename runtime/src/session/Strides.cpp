//===- Strides.cpp - How a session's tensors lie --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/State.h"

#include <algorithm>
#include <cstring>

namespace attn::rt {

bool Session::State::takesStrides(const std::string &name) const {
  return std::any_of(strided.begin(), strided.end(),
                     [&](const StridedTensor &tensor) { return tensor.name == name; });
}

void Session::State::setStrides(const std::string &name, std::span<const int64_t> given) {
  if (given.empty())
    strides.erase(name);
  else
    strides[name].assign(given.begin(), given.end());
  forget();
}

Result<StridedShape> Session::State::placeOf(const std::string &name, DType dtype,
                                             std::vector<int64_t> shape) const {
  StridedShape tensor = StridedShape::dense(dtype, std::move(shape));
  auto given = strides.find(name);
  if (given == strides.end())
    return tensor;
  tensor.strides = given->second;
  const bool unified = std::any_of(strided.begin(), strided.end(), [&](const StridedTensor &known) {
    return known.name == name && known.unified;
  });
  return unified ? rt::checkPages(name, std::move(tensor)) : rt::checkStrides(name, std::move(tensor));
}

Result<std::optional<StridedShape>> Session::State::placeOf(const StridedTensor &tensor) const {
  std::vector<int64_t> shape;
  for (const DimInfo &dim : tensor.dims) {
    auto known = dims.find(dim.name);
    if (!dim.name.empty() && known == dims.end())
      return std::optional<StridedShape>();
    shape.push_back(dim.name.empty() ? dim.value : known->second);
  }
  Result<StridedShape> lies = placeOf(tensor.name, tensor.dtype, std::move(shape));
  if (!lies)
    return lies.error();
  return std::optional<StridedShape>(std::move(*lies));
}

Status Session::State::setStrideDims() {
  if (!strideDimsStale)
    return {};
  for (const auto &[name, given] : strides)
    if (!takesStrides(name))
      return inputError(
          name +
          ": expected dense memory, got strides; kernels take those of "
          "queries, gates, the output, unified pages, and of keys and values without metadata by token");
  std::map<std::string, StridedShape> lie;
  for (const StridedTensor &tensor : strided) {
    Result<std::optional<StridedShape>> place = placeOf(tensor);
    if (!place)
      return place.error();
    if (*place)
      lie[tensor.name] = std::move(**place);
  }
  const auto set = [&](const std::string &name, int64_t value) {
    strideDims.insert(name);
    dims[name] = static_cast<int32_t>(value);
  };
  for (const Argument &argument : manifest.arguments) {
    if (argument.role != Argument::Role::KV)
      continue;
    const Store store = storeOf(argument);
    const std::string prefix = argument.name + ".";
    if (store.isUnified()) {
      std::vector<std::pair<std::string, StridedShape>> parts;
      for (const StridedTensor &tensor : strided)
        if (tensor.unified && tensor.name.starts_with(prefix) && lie.count(tensor.name))
          parts.emplace_back(tensor.name, lie[tensor.name]);
      const bool given = std::any_of(parts.begin(), parts.end(),
                                     [&](const auto &part) { return strides.count(part.first) > 0; });
      if (!given) { // a launch will give them
        dims.erase(prefix + std::string(sizeName(StoreSize::PageBytes)));
        continue;
      }
      Result<int64_t> bytes = countPageBytes(store, parts);
      if (!bytes)
        return bytes.error();
      set(prefix + std::string(sizeName(StoreSize::PageBytes)), *bytes);
      continue;
    }
    if (!store.isStrided())
      continue;
    auto keys = lie.find(prefix + store.codesName(store.keys));
    auto values = lie.find(prefix + store.codesName(store.values));
    if (keys == lie.end() || values == lie.end())
      continue;
    Result<SlotCounts> slots = countSlots(argument.name, store, keys->second, values->second);
    if (!slots)
      return slots.error();
    set(prefix + std::string(sizeName(StoreSize::OuterSlots)), slots->outer);
    set(prefix + std::string(sizeName(StoreSize::Slots)), slots->all);
  }
  for (const auto &[name, tensor] : lie)
    for (size_t axis = 0; axis + 1 < tensor.strides.size(); ++axis)
      set(strideName(name, axis), tensor.strides[axis]);
  for (Slot &slot : slots)
    slot.span = slot.strides.empty() || !lie.count(slot.name) ? 0 : lie[slot.name].span().value_or(0);
  strideDimsStale = false;
  return {};
}

namespace {

/// Calls `copy` for each run of bytes that are contiguous in memory and in the dense tensor, with its offsets
/// in both and its length.
template <typename Copy> Status eachRun(const StridedShape &tensor, Copy &&copy) {
  const StridedShape dense = StridedShape::dense(tensor.dtype, tensor.shape);
  if (tensor.isEmpty())
    return {};
  size_t outer = tensor.shape.size(); // axes outside the run
  while (outer > 0 && (tensor.shape[outer - 1] == 1 || tensor.strides[outer - 1] == dense.strides[outer - 1]))
    --outer;
  int64_t bytes = static_cast<int64_t>(dtypeSize(tensor.dtype)), runs = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    (i < outer ? runs : bytes) *= tensor.shape[i];
  for (int64_t run = 0; run < runs; ++run) {
    int64_t rest = run, at = 0;
    for (size_t i = outer; i-- > 0; rest /= tensor.shape[i])
      at += rest % tensor.shape[i] * tensor.strides[i];
    if (Status status = copy(static_cast<uint64_t>(at), run * bytes, static_cast<size_t>(bytes)); !status)
      return status;
  }
  return {};
}

} // namespace

bool Session::State::isOfDenseStore(const std::string &name) const {
  return std::any_of(manifest.arguments.begin(), manifest.arguments.end(), [&](const Argument &argument) {
    return argument.role == Argument::Role::KV && storeOf(argument).kind == StoreKind::Dense &&
           name.starts_with(argument.name + ".");
  });
}

Status Session::State::copyIn(const std::string &name, const Tensor &tensor) {
  Result<StridedShape> lies = placeOf(name, tensor.dtype, tensor.shape);
  if (!lies)
    return lies.error();
  if (Status status = allocate(name, lies->span().value_or(0)); !status)
    return status;
  if (device.kind() == "host") { // memory between lines stays unwritten there, so that reads of it are found
    // Tiles of dense instances read past the end of an instance. On a GPU they find other numbers there,
    // which must not count: NaN stands for these.
    constexpr uint8_t ofNaN = 0xff;
    if (isOfDenseStore(name))
      if (Status status = device.fill(addresses[name], ofNaN, static_cast<size_t>(lies->span().value_or(0)));
          !status)
        return status;
    return eachRun(*lies, [&](uint64_t at, int64_t from, size_t bytes) {
      return device.copyIn(addresses[name] + at, tensor.bytes.data() + from, bytes);
    });
  }
  std::vector<uint8_t> image(static_cast<size_t>(lies->span().value_or(0)));
  (void)eachRun(*lies, [&](uint64_t at, int64_t from, size_t bytes) -> Status {
    std::memcpy(image.data() + at, tensor.bytes.data() + from, bytes);
    return {};
  });
  return device.copyIn(addresses[name], image.data(), image.size());
}

Status Session::State::copyOut(const std::string &name, Tensor &tensor) const {
  Result<StridedShape> lies = placeOf(name, tensor.dtype, tensor.shape);
  if (!lies)
    return lies.error();
  return eachRun(*lies, [&](uint64_t at, int64_t to, size_t bytes) {
    return device.copyOut(tensor.bytes.data() + to, addresses.at(name) + at, bytes);
  });
}

Status Session::checkStrides() { return state_->setStrideDims(); }

int64_t Session::slotSpan(int slot) const { return state_->slots[static_cast<size_t>(slot)].span; }

} // namespace attn::rt
