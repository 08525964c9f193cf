//===- Safetensors.cpp - Tensors in files ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Safetensors.h"
#include "attn_rt/support/File.h"
#include "support/Json.h"

#include <algorithm>
#include <cstring>

namespace attn::rt {

namespace {

// The limit of the reference implementation, so that a length read from garbage does not become an
// allocation.
constexpr uint64_t headerLimit = 100'000'000;

struct Extent {
  uint64_t begin, end;
  std::string name;
};

// Reads one entry of the header: checks it against the data, copies the data out, and records its range in
// `extents`.
void readEntry(const Cursor &entry, const std::string &name, std::string_view data, TensorMap &tensors,
               std::vector<Extent> &extents) {
  static const std::vector<std::string_view> words = [] {
    std::vector<std::string_view> list;
    for (const ElementType &type : elementTypes())
      list.push_back(type.fileName);
    return list;
  }();
  Tensor tensor;
  tensor.dtype = elementTypes()[entry["dtype"].oneOf(words)].dtype;
  for (const Cursor &dim : entry["shape"].elements())
    tensor.shape.push_back(dim.integer(0));
  const Cursor offsets = entry["data_offsets"];
  const std::vector<Cursor> pair = offsets.elements();
  if (entry.failed())
    return;
  if (pair.size() != 2)
    return offsets.expected("two offsets");
  const auto begin = static_cast<uint64_t>(pair[0].integer(0)),
             end = static_cast<uint64_t>(pair[1].integer(0));
  if (entry.failed())
    return;
  if (begin > end || end > data.size())
    return offsets.fail("expected begin <= end <= " + std::to_string(data.size()) +
                        " (the bytes after the header), got [" + std::to_string(begin) + ", " +
                        std::to_string(end) + ")");
  std::optional<int64_t> count = elementCount(tensor.shape);
  int64_t size = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<int64_t>(dtypeSize(tensor.dtype)), &size))
    return entry["shape"].fail("the product of " + shapeText(tensor.shape) + " overflows");
  if (static_cast<uint64_t>(size) != end - begin)
    return offsets.fail("shape " + shapeText(tensor.shape) + " of " + std::string(dtypeName(tensor.dtype)) +
                        " takes " + std::to_string(size) + " bytes, but the offsets span " +
                        std::to_string(end - begin));
  tensor.bytes.assign(data.begin() + static_cast<ptrdiff_t>(begin),
                      data.begin() + static_cast<ptrdiff_t>(end));
  tensors.emplace(name, std::move(tensor));
  extents.push_back({begin, end, name});
}

} // namespace

Result<TensorMap> readSafetensors(std::string_view bytes, std::string_view name) {
  const std::string prefix = "safetensors file '" + std::string(name) + "'";
  uint64_t headerLength = 0;
  if (bytes.size() < sizeof(headerLength))
    return inputError(prefix + ": expected at least 8 bytes, got " + std::to_string(bytes.size()));
  std::memcpy(&headerLength, bytes.data(), sizeof(headerLength));
  bytes.remove_prefix(sizeof(headerLength));
  if (headerLength > headerLimit)
    return inputError(prefix + ": expected a header of at most " + std::to_string(headerLimit) +
                      " bytes, got " + std::to_string(headerLength));
  if (headerLength > bytes.size())
    return inputError(prefix + ": the header is said to have " + std::to_string(headerLength) +
                      " bytes, but only " + std::to_string(bytes.size()) + " follow");
  Result<Json> header = parseJson(bytes.substr(0, headerLength), prefix + ": header");
  if (!header)
    return header.error();
  if (!header->is_object())
    return inputError(prefix + ": header: expected an object, got " + quoteJson(*header));
  const std::string_view data = bytes.substr(headerLength);

  std::optional<Error> error;
  TensorMap tensors;
  std::vector<Extent> extents;
  for (const auto &[key, value] : header->items()) {
    if (key == "__metadata__")
      continue;
    if (key.find('\0') != std::string::npos)
      return inputError(prefix + ": a tensor's name contains a NUL character");
    readEntry(Cursor(value, prefix + ": tensor '" + key + "'", error), key, data, tensors, extents);
    if (error)
      return *error;
  }
  std::sort(extents.begin(), extents.end(), [](const Extent &a, const Extent &b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t position = 0;
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent &extent = extents[i];
    if (extent.begin < position)
      return inputError(prefix + ": tensors '" + extents[i - 1].name + "' and '" + extent.name +
                        "' overlap at byte " + std::to_string(extent.begin));
    if (extent.begin > position)
      return inputError(prefix + ": bytes [" + std::to_string(position) + ", " +
                        std::to_string(extent.begin) + ") before tensor '" + extent.name +
                        "' belong to no tensor");
    position = extent.end;
  }
  if (position != data.size())
    return inputError(prefix + ": " + std::to_string(data.size() - position) +
                      " bytes after the last tensor belong to no tensor");
  return tensors;
}

Result<TensorMap> readSafetensorsFile(const std::string &path) {
  Result<std::string> bytes = readFile(path);
  if (!bytes)
    return bytes.error();
  return readSafetensors(*bytes, path);
}

std::string writeSafetensors(const TensorMap &tensors) {
  // Widest elements first keeps every tensor aligned to its own element, as the format's reference writer
  // does.
  std::vector<const TensorMap::value_type *> order;
  for (const auto &entry : tensors)
    order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](auto *a, auto *b) {
    const size_t left = dtypeSize(a->second.dtype), right = dtypeSize(b->second.dtype);
    return left != right ? left > right : a->first < b->first;
  });
  Json header = Json::object();
  uint64_t position = 0;
  for (const auto *entry : order) {
    const Tensor &tensor = entry->second;
    const uint64_t end = position + tensor.bytes.size();
    header[entry->first] = {{"dtype", elementType(tensor.dtype).fileName},
                            {"shape", tensor.shape},
                            {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = dumpJson(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char *>(&length), sizeof(length));
  bytes.reserve(bytes.size() + text.size() + position);
  bytes += text;
  for (const auto *entry : order)
    bytes.append(reinterpret_cast<const char *>(entry->second.bytes.data()), entry->second.bytes.size());
  return bytes;
}

Status writeSafetensorsFile(const std::string &path, const TensorMap &tensors) {
  return writeFile(path, writeSafetensors(tensors));
}

} // namespace attn::rt
