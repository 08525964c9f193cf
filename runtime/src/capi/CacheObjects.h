//===- CacheObjects.h - What is behind the handles of Cache.h ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CAPI_CACHEOBJECTS_H
#define ATTN_RT_CAPI_CACHEOBJECTS_H

#include "attn-c/Cache.h"
#include "attn_rt/cache/Cache.h"
#include "attn_rt/capi/Guard.h"
#include "attn_rt/capi/Lock.h"

#include <atomic>

struct AttnCache {
  attn::rt::Cache cache;
  mutable attn::rt::capi::Lock lock = {};
};
struct AttnMovement {
  attn::rt::Movement movement;
  uint64_t id = nextId(); ///< unique among all movements; not 0

  static uint64_t nextId() {
    static std::atomic<uint64_t> last = 0;
    return ++last;
  }
};

namespace attn::rt::capi {

inline AttnNode numberOf(NodeId node) {
  return uint64_t{node.generation} << 32 | static_cast<uint32_t>(node.index);
}
inline NodeId nodeOf(AttnNode number) {
  return {static_cast<int32_t>(static_cast<uint32_t>(number)), static_cast<uint32_t>(number >> 32)};
}

/// Writes as many elements as fit into `room`, and the length of the list.
template <typename T> Status giveList(const std::vector<T> &list, T *out, size_t room, size_t *count) {
  if (!count || (room && !out))
    return inputError("expected room for a list and its length, got null");
  *count = list.size();
  for (size_t i = 0; i < list.size() && i < room; ++i)
    out[i] = list[i];
  return {};
}

} // namespace attn::rt::capi

#endif
