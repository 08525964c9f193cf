//===- CacheKernel.h - An operation on a cache on a device ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   CacheKernel append = *CacheKernel::create(*device, manifest, source);
//   append.reserve(4096, layers);                     // allocates
//   append.bind(cache, rows);
//   append.setRows({{}, slots});                      // checks, copies the list
//   append.launch();                                  // as often as you like
//
// After reserve nothing is allocated and nothing waits. The number of rows is in
// device memory beside the list, so a launch depends only on addresses: recorded
// once, it may be replayed after every setRows.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_CACHEKERNEL_H
#define ATTN_RT_SESSION_CACHEKERNEL_H

#include "attn_rt/cache/CacheRows.h"
#include "attn_rt/device/Device.h"

namespace attn::rt {

/// Metadata of keys or of values: by slot, or scales given to a cache.
struct DeviceMeta {
  DeviceAddress address = 0; ///< a multiple of 16
  int64_t layerBytes = 0;    ///< from a layer to the next, whole lines; any value if there is one layer
  bool operator==(const DeviceMeta &) const = default;
};

/// The distances of pages, tokens and heads in bytes, for an append that normalizes or rotates keys; zeros:
/// they lie densely, as the cache's store says.
struct PageStrides {
  int64_t betweenPages = 0, betweenTokens = 0, betweenHeads = 0;
  bool isDense() const { return betweenPages == 0 && betweenTokens == 0 && betweenHeads == 0; }
  bool operator==(const PageStrides &) const = default;
};

/// Keys and values on a device: the slots of a cache, or rows, [layers, count, heads, dim] each.
struct DeviceRows {
  DeviceAddress k = 0, v = 0; ///< multiples of 16, best of 32
  int64_t count = 0;          ///< slots or rows of a layer
  int64_t kLayerBytes = 0,
          vLayerBytes = 0; ///< from a layer to the next, multiples of 16; any value if there is one layer
  DeviceMeta kMeta = {}, vMeta = {};   ///< of a quantized cache
  int64_t pageBytes = 0;               ///< from a unified page to the next, a multiple of 16
  DeviceMeta kScale = {}, vScale = {}; ///< of the tensor, in addition to metadata by slot
  PageStrides kStrides = {}, vStrides = {}, kMetaStrides = {}, vMetaStrides = {};
  bool operator==(const DeviceRows &) const = default;
};

/// The heads of rows. Bytes from one to the next are multiples of 16; 0: they lie densely. Heads lie densely
/// unless they are parts of heads, as those of the queries of latents.
struct DeviceHeads {
  DeviceAddress address = 0;
  int64_t layerBytes = 0, rowBytes = 0, headBytes = 0;
};

/// The operands of a norm and a rotation, beside the rows of an append. Addresses are multiples of 16; those
/// of absent parts are 0.
struct DevicePrologue {
  DeviceHeads q, rotated; ///< may be equal: queries are then prepared in place
  /// Bytes from a row to the next, multiples of 16; 0: rows lie densely.
  int64_t kRowBytes = 0, vRowBytes = 0;
  DeviceAddress kNorm = 0, qNorm = 0, cos = 0, sin = 0;
  DeviceAddress positions = 0; ///< of rows; 0: they follow the list of slots
  int64_t tableRows = 0;       ///< positions that the tables have
};

class CacheKernel {
public:
  /// Loads the module of an operation on a cache. The device must outlive the kernel.
  static Result<CacheKernel> create(Device &device, const Manifest &manifest, const ModuleSource &source);
  /// Makes a kernel of a loaded module, which may serve many kernels.
  static Result<CacheKernel> create(Device &device, const Manifest &manifest, std::shared_ptr<Module> module);
  CacheKernel(CacheKernel &&) noexcept;
  CacheKernel &operator=(CacheKernel &&) noexcept;
  ~CacheKernel();

  /// Append, Move, Gather or Requantize.
  KernelInfo::Role role() const;
  /// The cache that the kernel was compiled for, and the cache that it writes; requantize writes another one.
  const Argument &cache() const;
  const Argument &written() const;
  /// Bytes of a token's keys, or of its values: in the cache, and in rows outside of it.
  int64_t slotBytes(bool keys) const;
  int64_t rowBytes(bool keys) const;
  /// Bytes of a layer's metadata of keys, or of values, for `slots` slots.
  int64_t metaBytes(bool keys, int64_t slots) const;

  /// Allocates lists of up to `rows` rows, and fixes the number of blocks: as many as fill the device, or as
  /// given.
  Status reserve(int64_t rows, int32_t layers, std::optional<int> blocks = std::nullopt);
  int blocks() const;
  /// Sets the number of layers of later launches, at most the number reserved for.
  Status useLayers(int32_t layers);
  /// Sets the addresses of the cache and, except for a move, of the rows or of the cache that is written.
  /// `status` is the address of an i32 that counts numbers that cannot be quantized, if the kernel counts
  /// them.
  Status bind(const DeviceRows &cache, const DeviceRows &rows = {}, DeviceAddress status = 0);
  /// Sets the rest of an append that normalizes or rotates keys, or is strided, after `bind`.
  Status bindPrologue(const DevicePrologue &prologue);
  /// Whether it is an append that normalizes or rotates keys, or is strided: its rows and pages have strides.
  bool hasStrides() const;

  /// Checks the lists against the bound cache, and copies them to the device.
  Status setRows(const RowLists &lists);
  /// Copies the rows set last. Memory that was bound since must have room for them.
  Status launch();
  /// Copies the rows listed in the caller's memory, `listWords` words of i32: the number of rows (at most as
  /// many as are reserved for and bound) in a sector of its own, then the list. If slots are both read and
  /// written, the list of slots read comes first, then the list of slots written. A negative slot is skipped,
  /// in both lists at once. The list of an append that rotates continues with the positions of rows.
  Status launchFrom(DeviceAddress list);
  /// Words of a list for launchFrom.
  int64_t listWords() const;

private:
  struct State;
  explicit CacheKernel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Bytes that an operation must move: each row's keys and values, read once and written once in every layer,
/// and the lists.
int64_t rowCopyFloor(const Manifest &manifest, const RowLists &lists, int32_t layers);

} // namespace attn::rt

#endif
