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

/// The pages of a head class on a device: keys and values, [layers][pages][pageTokens][heads][dim].
struct DevicePages {
  int32_t headClass = 0;
  int32_t pages = 0, pageTokens = 16, layers = 1;
  DeviceAddress k = 0, v = 0;
  int64_t kLayerBytes = 0, vLayerBytes = 0; ///< any where there is one layer
  DeviceMeta kMeta = {}, vMeta = {};        ///< of codes
  DeviceMeta kScale = {}, vScale = {};      ///< of the tensor, beside metadata by slot
  DeviceAddress status = 0;                 ///< where the append counts, if it does
};

/// Some of the layers that are reserved for.
struct LayerRange {
  int32_t first = 0, count = 0; ///< 0: all of them
  bool operator==(const LayerRange &) const = default;
};

class CacheKernels {
public:
  /// An append and a move, both for one kind of cache. Their pages may be of any size: a slot is a slot.
  static Result<CacheKernels> create(CacheKernel append, CacheKernel move);

  /// Makes room for Movements of up to so many new tokens and so many copied ones, and says where the pages
  /// are.
  Status reserve(const DevicePages &pages, int64_t newTokens, int64_t copiedTokens);

  /// Executes the part of a Movement that is the head class's; neither allocates nor waits. `rows` holds
  /// Movement::rows new tokens, and may be left out where there are none. Refuses, before anything is
  /// launched and naming it, whatever lies outside pages, rows or the room reserved. `rows` are of `layers`.
  /// `id` names the movement, where it is not 0: lists of the one that was executed last are there already.
  Status execute(const Movement &movement, const DeviceRows &rows = {}, const LayerRange &layers = {},
                 uint64_t id = 0);
  /// Writes new tokens as CacheKernel::launchFrom does, up to rows.count of them.
  Status append(DeviceAddress list, const DeviceRows &rows, const LayerRange &layers = {});

  /// Copies tokens from slots to others as CacheKernel::launchFrom does, in all layers.
  Status move(DeviceAddress list);

  /// The two halves of that, for launches that are recorded: `set` checks and copies the lists, `launch`
  /// launches both kernels, whether they have rows or not. As long as `rows` stays where it was, a recording
  /// of `launch` serves every Movement.
  Status set(const Movement &movement, const DeviceRows &rows);
  Status launch();

  const CacheKernel &append() const { return append_; }
  const CacheKernel &move() const { return move_; }

private:
  CacheKernels(CacheKernel append, CacheKernel move) : append_(std::move(append)), move_(std::move(move)) {}
  DeviceRows memory(const LayerRange &layers) const;
  /// Says where pages of these layers lie.
  Status useLayers(const LayerRange &layers);
  Status bindAppend(const DeviceRows &rows);
  Status setLists(const Movement &movement, const DeviceRows &rows, bool always);

  CacheKernel append_, move_;
  DevicePages pages_;
  MovementRows lists_;
  LayerRange layers_;               ///< that launches are of
  std::optional<DeviceRows> bound_; ///< the rows of the last append
  uint64_t listed_ = 0;             ///< the movement whose lists are there
  int64_t newTokens_ = -1, copiedTokens_ = -1;
  bool writes_ = false, copies_ = false; ///< what the last Movement does
};

} // namespace attn::rt

#endif
