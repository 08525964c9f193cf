#include "session/State.h"

#include "session/TensorMaps.h"

#include <cstring>

namespace attn::rt {

Status Session::State::allocate(const std::string &name, int64_t bytes, MemoryUse use) {
  Buffer &buffer = buffers[name];
  if (!buffer || buffer.bytes() != static_cast<size_t>(bytes)) {
    buffer.reset(); // before the new one is asked for: both might not fit
    addresses.erase(name);
    Result<Buffer> made = Buffer::create(device, static_cast<size_t>(bytes), name, use);
    if (!made)
      return made.error();
    buffer = std::move(*made);
  }
  addresses[name] = buffer.address();
  stale = mapsStale = true;
  return {};
}

Status Session::State::copy(const std::string &name, const void *from, size_t bytes) {
  return device.copyIn(addresses[name], from, bytes);
}

void Session::State::setDimsOf(const Argument &argument, const TensorMap &tensors) {
  const auto set = [&](const char *dim, const char *tensor, size_t axis) {
    auto found = tensors.find(argument.name + "." + tensor);
    if (found != tensors.end() && found->second.shape.size() > axis)
      dims[argument.name + "." + dim] = static_cast<int32_t>(found->second.shape[axis]);
  };
  if (auto found = tensors.find(argument.name); found != tensors.end())
    for (size_t axis = 0; axis < found->second.shape.size(); ++axis)
      dims[argument.name + ".dim" + std::to_string(axis)] = static_cast<int32_t>(found->second.shape[axis]);
  set("instances", "lengths", 0);
  set("pages", "k_pages", 0);
  set("max_pages", "block_table", 1);
  set("tokens", "k", argument.store == Argument::Store::Dense ? 1 : 0);
}

Result<uint64_t> Session::State::valueOf(const Parameter &param, const KernelInfo &kernel) const {
  const auto word = [](auto value) {
    uint64_t slot = 0;
    std::memcpy(&slot, &value, sizeof(value));
    return slot;
  };
  switch (param.kind) {
  case Parameter::Kind::Buffer:
    if (auto found = addresses.find(param.name); found != addresses.end())
      return found->second;
    return inputError("kernel '" + kernel.name + "' needs buffer '" + param.name + "', which is not bound");
  case Parameter::Kind::Dim:
    if (param.name == "merge_rows")
      return word(static_cast<int32_t>(mergeRows));
    if (auto found = dims.find(param.name); found != dims.end())
      return word(found->second);
    return inputError("kernel '" + kernel.name + "' needs dimension '" + param.name + "', which is not set");
  case Parameter::Kind::End:
    return word(ends[static_cast<size_t>(param.index)]);
  case Parameter::Kind::Scale:
    return word(static_cast<float>(manifest.scale));
  case Parameter::Kind::Map:
    break; // its argument points to the map itself
  }
  return uint64_t{0};
}

Status Session::State::fillValues(BoundKernel &kernel) {
  for (size_t i = 0; i < kernel.info->params.size(); ++i) {
    Result<uint64_t> value = valueOf(kernel.info->params[i], *kernel.info);
    if (!value)
      return value.error();
    kernel.values[i] = *value;
  }
  return {};
}

Status Session::State::bindMap(const TensorMapInfo &info) {
  wanted.insert(info.buffer);
  maps[info.name].info = &info;
  if (zero)
    return {};
  Result<Buffer> made = Buffer::create(device, 16, "tensors without elements");
  if (!made)
    return made.error();
  zero = std::move(*made);
  return device.fill(zero.address(), 0, zero.bytes());
}

Status Session::State::fillMaps() {
  for (auto &[name, bound] : maps) {
    auto address = addresses.find(bound.info->buffer);
    if (address == addresses.end())
      return inputError("tensor map '" + name + "' needs buffer '" + bound.info->buffer +
                        "', which is not bound");
    MapMemory memory{address->second, {}};
    if (auto own = buffers.find(bound.info->buffer); own != buffers.end())
      memory.bytes = own->second.bytes();
    Result<BulkTensor> tensor = resolveTensorMap(*bound.info, dims, memory, zero.address());
    if (!tensor)
      return tensor.error();
    Result<EncodedMap> map = device.encode(*tensor);
    if (!map)
      return map.error();
    bound.map = *map;
  }
  return {};
}

Status Session::State::launch(BoundKernel &kernel, int64_t blocks) {
  const LaunchShape shape{{static_cast<uint32_t>(blocks), 1, 1},
                          {static_cast<uint32_t>(kernel.info->threads), 1, 1},
                          static_cast<uint32_t>(kernel.info->sharedBytes),
                          kernel.info->role == KernelInfo::Role::Merge};
  return device.launch(*kernel.kernel, shape, kernel.args.data());
}

} // namespace attn::rt
