//===- CacheKernels.cpp - A cache's changes on a device -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/CacheKernels.h"

#include <algorithm>

namespace attn::rt {

namespace {

std::string kindText(const Argument &cache) {
  return std::to_string(cache.kvHeads) + " heads of " + std::to_string(cache.keyDim) + "/" +
         std::to_string(cache.valueDim) + " in " + cache.keyFormat.text() +
         (cache.latent ? ", values a part of keys" : "/" + cache.valueFormat.text());
}

} // namespace

Result<CacheKernels> CacheKernels::create(CacheKernel append, CacheKernel move) {
  if (append.role() != KernelInfo::Role::Append || move.role() != KernelInfo::Role::Move)
    return inputError("cache kernels: expected an append and a move");
  if (kindText(append.cache()) != kindText(move.cache()))
    return inputError("cache kernels: expected an append and a move of one kind of cache, got " +
                      kindText(append.cache()) + " and " + kindText(move.cache()));
  return CacheKernels(std::move(append), std::move(move));
}

DeviceRows CacheKernels::memory(const LayerRange &layers) const {
  const auto at = [&](DeviceAddress address, int64_t layerBytes) {
    return address ? address + static_cast<uint64_t>(layers.first * layerBytes) : 0;
  };
  const auto metaAt = [&](const DeviceMeta &meta) {
    return DeviceMeta{at(meta.address, meta.layerBytes), meta.layerBytes};
  };
  return {at(pages_.k, pages_.kLayerBytes),
          at(pages_.v, pages_.vLayerBytes),
          int64_t{pages_.pages} * pages_.pageTokens,
          pages_.kLayerBytes,
          pages_.vLayerBytes,
          metaAt(pages_.kMeta),
          metaAt(pages_.vMeta),
          /*pageBytes=*/0,
          metaAt(pages_.kScale),
          metaAt(pages_.vScale)};
}

Status CacheKernels::useLayers(const LayerRange &given) {
  if (newTokens_ < 0)
    return inputError("cache kernels: a movement before pages were reserved for");
  const LayerRange layers = given.count ? given : LayerRange{0, pages_.layers};
  if (layers == layers_)
    return {};
  if (layers.first < 0 || layers.count < 1 || layers.count > pages_.layers - layers.first)
    return inputError("cache kernels: expected some of " + std::to_string(pages_.layers) + " layers, got " +
                      std::to_string(layers.count) + " from " + std::to_string(layers.first) + " on");
  layers_ = {};
  bound_.reset();
  if (Status status = append_.useLayers(layers.count); !status)
    return status;
  if (Status status = move_.useLayers(layers.count); !status)
    return status;
  if (Status status = move_.bind(memory(layers)); !status)
    return status;
  layers_ = layers;
  return {};
}

Status CacheKernels::bindAppend(const DeviceRows &rows) {
  if (bound_ == rows)
    return {};
  bound_.reset();
  if (Status status = append_.bind(memory(layers_), rows, pages_.status); !status)
    return status;
  bound_ = rows;
  return {};
}

Status CacheKernels::reserve(const DevicePages &pages, int64_t newTokens, int64_t copiedTokens) {
  if (pages.pages < 0 || pages.pageTokens < 1)
    return inputError("cache kernels: expected pages of at least 1 token, got " +
                      std::to_string(pages.pages) + " of " + std::to_string(pages.pageTokens));
  if (Status status = append_.reserve(newTokens, pages.layers); !status)
    return status;
  if (Status status = move_.reserve(copiedTokens, pages.layers); !status)
    return status;
  pages_ = pages;
  layers_ = {};
  bound_.reset();
  listed_ = 0;
  lists_.writeTo.reserve(static_cast<size_t>(newTokens));
  lists_.copyFrom.reserve(static_cast<size_t>(copiedTokens));
  lists_.copyTo.reserve(static_cast<size_t>(copiedTokens));
  newTokens_ = newTokens;
  copiedTokens_ = copiedTokens;
  return useLayers({});
}

Status CacheKernels::setLists(const Movement &movement, const DeviceRows &rows, bool always) {
  listed_ = 0;
  int64_t copied = 0;
  for (const Movement::Copy &copy : movement.copies)
    copied += copy.headClass == pages_.headClass ? copy.tokens : 0;
  if (movement.rows > newTokens_ || copied > copiedTokens_)
    return inputError("cache kernels: expected at most " + std::to_string(newTokens_) + " new and " +
                      std::to_string(copiedTokens_) + " copied tokens, as reserved, got " +
                      std::to_string(movement.rows) + " and " + std::to_string(copied));
  if (Status status = lists_.assign(movement, pages_.headClass, pages_.pages, pages_.pageTokens); !status)
    return status;
  writes_ = std::any_of(lists_.writeTo.begin(), lists_.writeTo.end(), [](int32_t to) { return to >= 0; });
  copies_ = copied > 0;
  if (writes_ || always) {
    if (rows.count < movement.rows)
      return inputError("cache kernels: expected " + std::to_string(movement.rows) + " new tokens, got " +
                        std::to_string(rows.count));
    if (Status status = bindAppend(rows); !status)
      return status;
    if (Status status = append_.setRows({{}, lists_.writeTo}); !status)
      return status;
  }
  return copies_ || always ? move_.setRows({lists_.copyFrom, lists_.copyTo}) : Status();
}

Status CacheKernels::execute(const Movement &movement, const DeviceRows &rows, const LayerRange &layers,
                             uint64_t id) {
  if (Status status = useLayers(layers); !status)
    return status;
  if (id == 0 || id != listed_) {
    if (Status status = setLists(movement, rows, false); !status)
      return status;
    listed_ = id;
  } else if (writes_) {
    if (Status status = bindAppend(rows); !status)
      return status;
  }
  if (copies_)
    if (Status status = move_.launch(); !status)
      return status;
  return writes_ ? append_.launch() : Status();
}

Status CacheKernels::append(DeviceAddress list, const DeviceRows &rows, const LayerRange &layers) {
  if (Status status = useLayers(layers); !status)
    return status;
  if (rows.count > newTokens_)
    return inputError("cache kernels: expected at most " + std::to_string(newTokens_) +
                      " new tokens, as reserved, got " + std::to_string(rows.count));
  if (Status status = bindAppend(rows); !status)
    return status;
  return append_.launchFrom(list);
}

Status CacheKernels::move(DeviceAddress list) {
  if (Status status = useLayers({}); !status)
    return status;
  return move_.launchFrom(list);
}

Status CacheKernels::set(const Movement &movement, const DeviceRows &rows) {
  if (Status status = useLayers({}); !status)
    return status;
  return setLists(movement, rows, true);
}

Status CacheKernels::launch() {
  if (Status status = move_.launch(); !status)
    return status;
  return append_.launch();
}

} // namespace attn::rt
