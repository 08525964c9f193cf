//===- Store.cpp - Where the tokens of a KV operand lie -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Store.h"

#include <numeric>

namespace attn::rt {

std::string_view storeName(StoreKind kind) { return storeWords[static_cast<size_t>(kind)]; }

std::string_view sizeName(StoreSize size) {
  static constexpr std::string_view names[] = {"instances", "tokens",      "pages", "max_pages",
                                               "heads",     "outer_slots", "slots", "page_bytes"};
  return names[static_cast<size_t>(size)];
}

std::string_view tableName(StoreTable table) { return table == StoreTable::Start ? "start" : "block_table"; }

std::string strideName(std::string_view tensor, size_t axis) {
  return std::string(tensor) + ".stride" + std::to_string(axis);
}

namespace {

StoreDim headDim(const Store &store) {
  return store.isOfClass() ? StoreDim{StoreSize::Heads} : StoreDim{std::nullopt, store.heads};
}

} // namespace

std::string Store::text() const {
  std::string text(storeName(kind));
  return isPaged() ? text + "<" + std::to_string(page) + ">" : text;
}

std::vector<StoreDim> Store::slotDims() const {
  switch (kind) {
  case StoreKind::Dense:
    return {{StoreSize::Instances}, {StoreSize::Tokens}};
  case StoreKind::Packed:
    return {{StoreSize::Tokens}};
  case StoreKind::Paged:
  case StoreKind::Unified:
    break;
  }
  return {{StoreSize::Pages}, {std::nullopt, page}};
}

std::vector<StoreDim> Store::lineDims() const {
  std::vector<StoreDim> dims = slotDims();
  if (isUnified())
    return dims;
  dims.insert(hasHeadsFirst() ? dims.begin() + 1 : dims.end(), headDim(*this));
  return dims;
}

std::vector<const StorePart *> Store::parts() const {
  return isLatent() ? std::vector<const StorePart *>{&keys} : std::vector<const StorePart *>{&keys, &values};
}

std::vector<StoreTensor> Store::data() const {
  std::vector<StoreTensor> tensors;
  for (const StorePart *part : parts()) {
    std::vector<StoreDim> dims = lineDims();
    dims.push_back({std::nullopt, part->format.rowCodes(part->dim)});
    tensors.push_back({codesName(*part), part->format.codes, dims, StoreTensor::Content::Codes});
  }
  for (const StorePart *part : parts())
    if (part->format.hasMeta())
      tensors.push_back(part->format.hasLines() ? lineTensor(*part) : sharedTensor(*part));
  for (const StorePart *part : parts())
    if (part->format.hasLines() && part->format.hasSharedScale())
      tensors.push_back(sharedTensor(*part));
  return tensors;
}

StoreTensor Store::sharedTensor(const StorePart &part) const {
  const StoreDim dim =
      part.format.scales == Format::Scales::Head ? headDim(*this) : StoreDim{std::nullopt, 1};
  return {sharedName(part), DType::F32, {dim}, StoreTensor::Content::Scales};
}

/// The tensor of metadata by line, whose lines `lineOf` counts.
StoreTensor Store::lineTensor(const StorePart &part) const {
  const Format &format = part.format;
  StoreTensor tensor{metaName(part), format.metaType(), lineDims(), StoreTensor::Content::Lines};
  if (format.hasBlocks())
    tensor.dims.push_back({std::nullopt, format.metaBytes(part.dim)});
  else if (format.scales == Format::Scales::Group)
    tensor.dims.insert(tensor.dims.end(), {{std::nullopt, format.groups(part.dim)}, {std::nullopt, 2}});
  return tensor;
}

std::optional<StoreTable> Store::table() const {
  if (kind == StoreKind::Dense)
    return std::nullopt;
  return isPaged() ? StoreTable::BlockTable : StoreTable::Start;
}

std::vector<StoreTensor> Store::tables() const {
  const StoreDim instances{StoreSize::Instances};
  std::vector<StoreDim> lists{instances}; // lists of tokens: one for each instance, or for each of its heads
  if (ragged)
    lists.push_back(headDim(*this));
  std::vector<StoreTensor> tensors = {{"lengths", DType::I32, lists},
                                      {"pos0", DType::I32, {instances}},
                                      {"rows", DType::I32, {instances, {std::nullopt, 2}}}};
  if (kind == StoreKind::Packed)
    tensors.push_back({"start", DType::I32, {{StoreSize::Instances, 1}}});
  if (isPaged()) {
    lists.push_back({StoreSize::MaxPages});
    tensors.push_back({"block_table", DType::I32, lists});
  }
  return tensors;
}

std::vector<StoreSize> Store::sizes() const {
  std::vector<StoreSize> sizes = {StoreSize::Instances, StoreSize::Tokens};
  if (isOfClass())
    sizes.push_back(StoreSize::Heads);
  if (isPaged())
    sizes.insert(sizes.end(), {StoreSize::Pages, StoreSize::MaxPages});
  if (isStrided())
    sizes.insert(sizes.end(), {StoreSize::OuterSlots, StoreSize::Slots});
  if (isUnified())
    sizes.push_back(StoreSize::PageBytes);
  return sizes;
}

std::string Store::nearestPageSizes(int64_t tokens) {
  if (tokens < 1)
    return "1";
  if (tokens > mostPageTokens)
    return std::to_string(mostPageTokens);
  const int64_t below = tokens / pageStep * pageStep;
  return std::to_string(below ? below : fewPageTokens) + " or " + std::to_string(below + pageStep);
}

int64_t Store::boxLines(int64_t tokens) const {
  // Strides of boxes must be known before the kernel runs, or given by the launch. The axis of a box is
  // slots, not lines.
  if ((isOfClass() && !isStrided()) || hasHeadsFirst() || isUnified())
    return 0;
  const int64_t lines = isPaged() ? std::gcd(page, tokens) : tokens;
  // Swizzles repeat after eight lines; the lanes of a warp issue one box each.
  return lines % 8 == 0 && tokens / lines <= 32 ? lines : 0;
}

Store::BoxAxis Store::boxAxis() const {
  if (isStrided() && kind != StoreKind::Packed)
    return {1, {StoreSize::Slots}};
  switch (kind) {
  case StoreKind::Dense:
    return {1, {StoreSize::Instances, StoreSize::Tokens}};
  case StoreKind::Packed:
    return {1, {StoreSize::Tokens}};
  case StoreKind::Paged:
  case StoreKind::Unified:
    break;
  }
  return {page, {StoreSize::Pages}};
}

Store::PageParts Store::pageParts() const {
  constexpr int64_t unit = 16;
  PageParts parts{};
  const auto take = [&](int64_t lineBytes) {
    const int64_t at = parts.bytes;
    parts.bytes += (page * lineBytes + unit - 1) / unit * unit;
    return at;
  };
  const auto metaBytes = [](const StorePart &part) {
    return part.format.hasLines() ? part.format.metaBytes(part.dim) : 0;
  };
  parts.keys = take(keys.format.rowBytes(keys.dim));
  parts.values = take(values.format.rowBytes(values.dim));
  parts.keyMeta = take(metaBytes(keys));
  parts.valueMeta = take(metaBytes(values));
  return parts;
}

} // namespace attn::rt
