//===- CacheKernels.h - A cache's changes on a device -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Executes the Movements of a Cache on pages in device memory, by an append and a
// move: what executeMovement (CacheMemory.h) does on a host, in the order of the
// calls, between the launches of the attention that reads the pages.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_CACHEKERNELS_H
#define ATTN_RT_SESSION_CACHEKERNELS_H

#include "attn_rt/session/CacheKernel.h"

#include <optional>

namespace attn::rt {

/// The pages of a head class on a device: keys and values, [layers, pages, pageTokens, heads, dim].
struct DevicePages {
  int32_t headClass = 0;
  int32_t pages = 0, pageTokens = 16, layers = 1;
  DeviceAddress k = 0, v = 0;
  int64_t kLayerBytes = 0, vLayerBytes = 0; ///< any value if there is one layer
  DeviceMeta kMeta = {}, vMeta = {};        ///< of quantized values
  DeviceMeta kScale = {}, vScale = {};      ///< of the tensor, in addition to metadata by slot
  DeviceAddress status = 0;                 ///< the address of the append's count, if it counts
};

/// A range of the layers reserved for.
struct LayerRange {
  int32_t first = 0, count = 0; ///< 0: all of them
  bool operator==(const LayerRange &) const = default;
};

class CacheKernels {
public:
  /// Combines an append and a move for one kind of cache. Their pages may be of any size: only slots matter.
  static Result<CacheKernels> create(CacheKernel append, CacheKernel move);

  /// Allocates lists of Movements of up to `newTokens` new tokens and `copiedTokens` copied tokens, and sets
  /// the addresses of the pages.
  Status reserve(const DevicePages &pages, int64_t newTokens, int64_t copiedTokens);

  /// Executes the head class's part of a Movement; neither allocates nor waits. `rows` holds Movement::rows
  /// new tokens of `layers`, and is optional if there are none. Refuses, before any launch and by name, what
  /// lies outside the pages, the rows or the reserved lists. `id` identifies the movement if it is not 0: the
  /// lists of the movement executed last are already on the device.
  Status execute(const Movement &movement, const DeviceRows &rows = {}, const LayerRange &layers = {},
                 uint64_t id = 0);
  /// Writes new tokens as CacheKernel::launchFrom does, up to rows.count of them.
  Status append(DeviceAddress list, const DeviceRows &rows, const LayerRange &layers = {});

  /// Copies tokens between slots as CacheKernel::launchFrom does, in all layers.
  Status move(DeviceAddress list);

  /// The two halves of `execute`, for launches that are recorded: `set` checks and copies the lists, `launch`
  /// launches both kernels, with or without rows. While `rows` keeps its address, a recording of `launch`
  /// serves every Movement.
  Status set(const Movement &movement, const DeviceRows &rows);
  Status launch();

  const CacheKernel &append() const { return append_; }
  const CacheKernel &move() const { return move_; }

private:
  CacheKernels(CacheKernel append, CacheKernel move) : append_(std::move(append)), move_(std::move(move)) {}
  DeviceRows memory(const LayerRange &layers) const;
  /// Sets the addresses of the pages of these layers.
  Status useLayers(const LayerRange &layers);
  Status bindAppend(const DeviceRows &rows);
  Status setLists(const Movement &movement, const DeviceRows &rows, bool always);

  CacheKernel append_, move_;
  DevicePages pages_;
  MovementRows lists_;
  LayerRange layers_;               ///< of the launches
  std::optional<DeviceRows> bound_; ///< the rows of the last append
  uint64_t listed_ = 0;             ///< the movement whose lists are on the device
  int64_t newTokens_ = -1, copiedTokens_ = -1;
  bool writes_ = false, copies_ = false; ///< whether the last Movement does
};

} // namespace attn::rt

#endif
