//===- CacheKernel.h - An operation on a cache on a device ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   CacheKernel append = *CacheKernel::create(*device, manifest, source);
//   append.reserve(4096, layers);                     // allocates
//   append.bind(cache, rows);
//   append.setRows({{}, slots});                      // checks, copies the list
//   append.launch();                                  // as often as you like
//
// After reserve nothing is allocated and nothing waits. How many rows there are
// lies in device memory beside the list, so a launch depends on addresses and on
// nothing else: recorded once, it may be replayed after every setRows.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_CACHEKERNEL_H
#define ATTN_RT_SESSION_CACHEKERNEL_H

#include "attn_rt/cache/CacheRows.h"
#include "attn_rt/device/Device.h"

namespace attn::rt {

/// Metadata of keys or of values: by slot, or the scales that a cache is given.
struct DeviceMeta {
  DeviceAddress address = 0; ///< a multiple of 16
  int64_t layerBytes = 0;    ///< from a layer to the next, whole lines of it; any where there is one
  bool operator==(const DeviceMeta &) const = default;
};

/// Keys and values on a device: the slots of a cache, or rows, [layers][count][heads][dim] each.
struct DeviceRows {
  DeviceAddress k = 0, v = 0; ///< multiples of 16, best of 32
  int64_t count = 0;          ///< slots or rows of a layer
  int64_t kLayerBytes = 0,
          vLayerBytes = 0;             ///< from a layer to the next, multiples of 16; any where there is one
  DeviceMeta kMeta = {}, vMeta = {};   ///< of a cache of codes
  int64_t pageBytes = 0;               ///< from a unified page to the next, a multiple of 16
  DeviceMeta kScale = {}, vScale = {}; ///< of the tensor, beside metadata by slot
  bool operator==(const DeviceRows &) const = default;
};

class CacheKernel {
public:
  /// Loads the module of an operation on a cache. The device must outlive the kernel.
  static Result<CacheKernel> create(Device &device, const Manifest &manifest, const ModuleSource &source);
  /// Of a module that was loaded before, and may serve many kernels.
  static Result<CacheKernel> create(Device &device, const Manifest &manifest, std::shared_ptr<Module> module);
  CacheKernel(CacheKernel &&) noexcept;
  CacheKernel &operator=(CacheKernel &&) noexcept;
  ~CacheKernel();

  /// Append, Move, Gather or Requantize.
  KernelInfo::Role role() const;
  /// The cache that the kernel was compiled for, and that which it writes: another where it requantizes.
  const Argument &cache() const;
  const Argument &written() const;
  /// Bytes of a token's keys, or of its values, in the cache, and in rows outside of it.
  int64_t slotBytes(bool keys) const;
  int64_t rowBytes(bool keys) const;
  /// Bytes of a layer's metadata of keys, or of values, for so many slots.
  int64_t metaBytes(bool keys, int64_t slots) const;

  /// Makes room for lists of up to so many rows, and fixes the number of blocks (as many as fill the device,
  /// or those given).
  Status reserve(int64_t rows, int32_t layers, std::optional<int> blocks = std::nullopt);
  int blocks() const;
  /// Launches to come are of so many layers, at most as many as reserved for.
  Status useLayers(int32_t layers);
  /// Says where the cache lies and, but for a move, the rows, or the cache that is written. `status` is where
  /// an i32 counts numbers without a code, if the kernel counts them.
  Status bind(const DeviceRows &cache, const DeviceRows &rows = {}, DeviceAddress status = 0);

  /// Checks the lists against the cache that is bound, and copies them to the device.
  Status setRows(const RowLists &lists);
  /// Copies the rows set last. What was bound since has to have room for them.
  Status launch();
  /// The rows whose lists lie in memory of the caller's, `listWords` of i32: their number (at most as many as
  /// are reserved for and bound) in a sector of its own and the list behind it; where slots are both read and
  /// written those read, and then those written. Negative ones are skipped, in both lists at once.
  Status launchFrom(DeviceAddress list);
  int64_t listWords() const;

private:
  struct State;
  explicit CacheKernel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Bytes that an operation must move: each row's keys and values once from where they are and once to where
/// they go, in every layer, and the lists.
int64_t rowCopyFloor(const Manifest &manifest, const RowLists &lists, int32_t layers);

} // namespace attn::rt

#endif
