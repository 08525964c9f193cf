//===- CacheKernelState.cpp - What a cache kernel binds and launches ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/CacheKernelState.h"

#include <algorithm>
#include <limits>

using namespace attn::rt;

constexpr int64_t chunkBytes = 16;
constexpr int64_t metaWordBytes = 4; ///< layers of metadata are counted in words

int64_t attn::rt::codesBytes(const Argument &cache, bool keys) {
  if (!keys && cache.latent)
    return 0; // a part of the keys
  const StorePart part = storeOf(cache).part(keys);
  return int64_t{cache.kvHeads} * part.format.rowBytes(part.dim);
}

int64_t attn::rt::metadataBytes(const Argument &cache, bool keys, int64_t slots) {
  const StorePart part = storeOf(cache).part(keys);
  if (part.format.scales == Format::Scales::Tensor)
    return part.format.metaBytes(part.dim);
  return cache.kvHeads * part.format.metaBytes(part.dim) * (part.format.hasLines() ? slots : 1);
}

bool CacheKernel::State::hasParameter(const std::string &name) const {
  return std::any_of(info.params.begin(), info.params.end(),
                     [&](const Parameter &parameter) { return parameter.name == name; });
}

Status CacheKernel::State::bindPart(const Part &part) {
  if (part.address % chunkBytes)
    return error("expected the " + part.name + " at a multiple of 16 bytes, got an address that is " +
                 std::to_string(part.address % chunkBytes) + " above one");
  if (layers > 1 && (part.layerBytes < part.needed || part.layerBytes % part.unit ||
                     part.layerBytes / part.counted > std::numeric_limits<int32_t>::max()))
    return error("expected layers of " + part.name + " to lie a multiple of " + std::to_string(part.unit) +
                 " and at least " + std::to_string(part.needed) + " bytes apart, got " +
                 std::to_string(part.layerBytes));
  bound[part.buffer] = part.address;
  bound[part.layer] = static_cast<uint64_t>(layers > 1 ? part.layerBytes / part.counted : 0);
  return {};
}

Status CacheKernel::State::checkCount(int64_t count, const std::string &what) const {
  if (count < 0 || count > std::numeric_limits<int32_t>::max())
    return error("expected 0 to 2^31 - 1 " + what + ", got " + std::to_string(count));
  return {};
}

/// Binds the distances of pages, tokens and heads, which are multiples of the bytes of an access.
Status CacheKernel::State::bindStrides(const std::string &tensor, const PageStrides &given,
                                       const PageStrides &dense, int64_t unit) {
  if (!hasParameter(strideName(tensor, 0)))
    return {};
  const PageStrides &strides = given.isDense() ? dense : given;
  const int64_t axes[] = {strides.betweenPages, strides.betweenTokens, strides.betweenHeads};
  for (size_t axis = 0; axis < std::size(axes); ++axis) {
    if (axes[axis] < 0 || axes[axis] % unit || axes[axis] > std::numeric_limits<int32_t>::max())
      return error("expected strides of '" + tensor + "' that are multiples of " + std::to_string(unit) +
                   " bytes, from 0 to below 2^31, got " + std::to_string(axes[axis]));
    bound[strideName(tensor, axis)] = static_cast<uint64_t>(axes[axis]);
  }
  return {};
}

Status CacheKernel::State::bindRowStride(const std::string &name, int64_t given, int64_t dense) {
  const int64_t bytes = given ? given : dense;
  if (bytes < dense || bytes % chunkBytes || bytes > std::numeric_limits<int32_t>::max())
    return error("expected rows of '" + name + "' a multiple of 16 bytes apart, from " +
                 std::to_string(dense) + " to below 2^31, got " + std::to_string(bytes));
  bound[strideName(name, 1)] = static_cast<uint64_t>(bytes);
  return {};
}

/// Binds queries, or where they are written; there are as many rows as of keys.
Status CacheKernel::State::bindQueries(const std::string &name, const DeviceHeads &given) {
  const std::string what = name == "q" ? "queries" : "prepared queries";
  const int64_t apart = given.headBytes ? given.headBytes : queryHeadBytes;
  if (apart < queryHeadBytes || apart % chunkBytes || apart > std::numeric_limits<int32_t>::max())
    return error("expected heads of '" + name + "' a multiple of 16 bytes apart, from " +
                 std::to_string(queryHeadBytes) + " to below 2^31, got " + std::to_string(apart));
  if (!hasParameter(strideName(name, 2)) && apart != queryHeadBytes)
    return error("expected heads of '" + name + "' in one piece, " + std::to_string(queryHeadBytes) +
                 " bytes apart, got " + std::to_string(apart));
  bound[strideName(name, 2)] = static_cast<uint64_t>(apart);
  const int64_t row = (queryHeads - 1) * apart + queryHeadBytes;
  const int64_t rowBytes = given.rowBytes ? given.rowBytes : row;
  if (!given.address)
    return error("expected an address of the " + what + ", got none");
  if (Status status = bindPart({what, name, name + ".layer", given.address, given.layerBytes,
                                rows ? (rows - 1) * rowBytes + row : 0, chunkBytes, chunkBytes});
      !status)
    return status;
  return bindRowStride(name, rowBytes, apart == queryHeadBytes ? row : queryHeadBytes);
}

Status CacheKernel::State::bindRows(const DeviceRows &given) {
  if (Status status = checkCount(given.count, "rows"); !status)
    return status;
  for (const Part &part : {Part{"keys of the rows", "k", "k.layer", given.k, given.kLayerBytes,
                                given.count * keyRowBytes, chunkBytes, chunkBytes},
                           Part{"values of the rows", "v", "v.layer", given.v, given.vLayerBytes,
                                given.count * valueRowBytes, chunkBytes, chunkBytes}})
    if (!hasParameter(part.buffer))
      continue; // values that are a part of their keys
    else if (Status status = bindPart(part); !status)
      return status;
  return {};
}

Status CacheKernel::State::bindCache(const Argument &cache, const DeviceRows &given) {
  if (Status status = checkCount(given.count, "slots"); !status)
    return status;
  const Store store = storeOf(cache);
  if (store.isUnified()) {
    const int64_t least = store.pageParts().bytes;
    if (given.pageBytes < least || given.pageBytes % chunkBytes ||
        given.pageBytes > std::numeric_limits<int32_t>::max())
      return error("expected unified pages a multiple of 16 bytes apart, from " + std::to_string(least) +
                   " to below 2^31, got " + std::to_string(given.pageBytes));
    bound[cache.name + "." + std::string(sizeName(StoreSize::PageBytes))] =
        static_cast<uint64_t>(given.pageBytes);
  }
  bound[cache.name + "." + std::string(sizeName(StoreSize::Slots))] = static_cast<uint64_t>(given.count);
  for (const bool keys : {true, false}) {
    if (!keys && store.isLatent())
      continue;
    const StorePart &part = store.part(keys);
    const std::string prefix = cache.name + ".", what = keys ? "keys of the slots" : "values of the slots";
    if (Status status = bindPart({what, prefix + store.codesName(part), prefix + part.letter + "_layer",
                                  keys ? given.k : given.v, keys ? given.kLayerBytes : given.vLayerBytes,
                                  given.count * codesBytes(cache, keys), chunkBytes, chunkBytes});
        !status)
      return status;
    const int64_t line = part.format.metaBytes(part.dim);
    if (hasStrides())
      if (Status status = bindLines(cache.name, store, part, given); !status)
        return status;
    if (Status status =
            bindMeta({"metadata of " + what, prefix + Store::metaName(part), "",
                      (keys ? given.kMeta : given.vMeta).address,
                      (keys ? given.kMeta : given.vMeta).layerBytes, metadataBytes(cache, keys, given.count),
                      std::min<int64_t>(chunkBytes, line & -line), metaWordBytes},
                     part, given.count);
        !status)
      return status;
    if (!part.format.hasLines())
      continue;
    const DeviceMeta &scale = keys ? given.kScale : given.vScale;
    if (Status status = bindMeta({"scale of the " + what, prefix + Store::sharedName(part), "", scale.address,
                                  scale.layerBytes, metaWordBytes, metaWordBytes, metaWordBytes},
                                 part, given.count);
        !status)
      return status;
  }
  return {};
}

/// Binds the strides of quantized values and of their metadata.
Status CacheKernel::State::bindLines(const std::string &name, const Store &store, const StorePart &part,
                                     const DeviceRows &given) {
  const bool keys = part.letter == 'k';
  const auto denseOf = [&](int64_t line) -> PageStrides {
    const int64_t heads = store.heads, page = store.tokensOf(int64_t{1});
    if (!store.isPaged()) // a slot is a page of one token, whose heads are its tokens
      return {heads * line, line, line};
    if (store.hasHeadsFirst())
      return {heads * page * line, line, page * line};
    return {heads * page * line, heads * line, line};
  };
  const int64_t codes = part.format.rowBytes(part.dim), line = part.format.metaBytes(part.dim);
  if (Status status = bindStrides(name + "." + store.codesName(part), keys ? given.kStrides : given.vStrides,
                                  denseOf(codes), part.format.bits);
      !status || !part.format.hasLines())
    return status;
  return bindStrides(name + "." + Store::metaName(part), keys ? given.kMetaStrides : given.vMetaStrides,
                     denseOf(line), part.format.hasBlocks() ? 1 : metaWordBytes);
}

/// Binds metadata, if the kernel has it.
Status CacheKernel::State::bindMeta(Part meta, const StorePart &part, int64_t slots) {
  if (!hasParameter(meta.buffer))
    return {};
  if (slots && !meta.address)
    return error("expected " + std::string(part.letter == 'k' ? "keys" : "values") + " with '" + meta.buffer +
                 "', the metadata of format " + part.format.text() + ", got none");
  meta.layer = meta.buffer + "_layer";
  return bindPart(meta);
}

void CacheKernel::State::useList(DeviceAddress at) {
  if (at == list && !hasParameter("positions"))
    return;
  list = at;
  bound["row_count"] = at;
  bound["slots"] = bound["from"] = at + sectorBytes;
  bound["to"] = at + sectorBytes + static_cast<uint64_t>(capacity) * 4;
  bound["positions"] = positions ? positions : bound["to"];
  stale = true;
}

Status CacheKernel::State::launchKernel() {
  if (stale)
    if (Status status = fill(); !status)
      return status;
  const LaunchShape shape{{static_cast<uint32_t>(blocks), 1, 1},
                          {static_cast<uint32_t>(info.threads), 1, 1},
                          static_cast<uint32_t>(info.sharedBytes),
                          launch.overlapsPrevious};
  return device.launch(*kernel, shape, args.data());
}

Status CacheKernel::State::fill() {
  for (size_t i = 0; i < info.params.size(); ++i) {
    auto found = bound.find(info.params[i].name);
    if (found == bound.end())
      return error("'" + info.params[i].name + "' is not bound");
    values[i] = found->second;
  }
  stale = false;
  return {};
}
