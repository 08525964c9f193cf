//===- CacheKernel.h - Append, move or gather on a device -------*- C++ -*-===//
//
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
#ifndef ATTN_RT_CACHEKERNEL_H
#define ATTN_RT_CACHEKERNEL_H

#include "attn_rt/CacheRows.h"
#include "attn_rt/Device.h"

namespace attn::rt {

/// Keys and values on a device: the slots of a cache, or rows, [layers][count][heads][dim] each.
struct DeviceRows {
  DeviceAddress k = 0, v = 0; ///< multiples of 16, best of 32
  int64_t count = 0;          ///< slots or rows of a layer
  int64_t kLayerBytes = 0,
          vLayerBytes = 0; ///< from a layer to the next, multiples of 16; any where there is one
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

  /// Append, Move or Gather.
  KernelInfo::Role role() const;
  /// The cache that the kernel was compiled for.
  const Argument &cache() const;
  /// Bytes of a token's keys and of its values.
  int64_t keyBytes() const;
  int64_t valueBytes() const;

  /// Makes room for lists of up to so many rows, and fixes the number of blocks (as many as fill the device,
  /// or those given).
  Status reserve(int64_t rows, int32_t layers, std::optional<int> blocks = std::nullopt);
  int blocks() const;
  /// Says where the cache lies and, but for a move, the rows.
  Status bind(const DeviceRows &cache, const DeviceRows &rows = {});

  /// Checks the lists against the cache that is bound, and copies them to the device.
  Status setRows(const RowLists &lists);
  /// Copies the rows set last.
  Status launch();

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
