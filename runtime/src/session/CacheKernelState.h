//===- CacheKernelState.h - Inside a cache kernel ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SESSION_CACHEKERNELSTATE_H
#define ATTN_RT_SESSION_CACHEKERNELSTATE_H

#include "attn_rt/session/CacheKernel.h"

#include <map>

namespace attn::rt {

constexpr int64_t sectorBytes = 32;

/// Bytes of a slot's keys or values in one layer.
int64_t codesBytes(const Argument &cache, bool keys);
/// Bytes of a layer's metadata for `slots` slots; of given scales, all their bytes.
int64_t metadataBytes(const Argument &cache, bool keys, int64_t slots);

struct CacheKernel::State {
  Device &device;
  std::string entry;
  KernelInfo info;
  LaunchInfo launch;
  std::vector<Argument> caches;
  int64_t keyRowBytes, valueRowBytes;
  int64_t queryHeads, queryHeadBytes;
  std::shared_ptr<Module> module;
  Kernel *kernel = nullptr;

  std::map<std::string, uint64_t> bound; ///< values of parameters by name
  std::vector<uint64_t> values;
  std::vector<void *> args;
  bool stale = true;

  // On the device: the number of rows in a sector of its own, then the lists, each of `capacity` rows.
  Buffer lists = {};
  int64_t capacity = 0;
  int32_t layers = 0, reservedLayers = 0;
  int blocks = 0;
  std::optional<int> givenBlocks = {};
  int64_t slots = -1, rows = -1, written = -1; ///< of the bound memory; written: slots of the target
  int64_t listed = -1;                         ///< number of rows that are set
  DeviceAddress list = 0;                      ///< the lists that launches read
  DeviceAddress positions = 0;                 ///< of rows, if they do not follow the list of slots
  std::vector<int32_t> staging = {};
  RowChecker checker = {};

  bool reads() const { return info.role != KernelInfo::Role::Append; }
  bool writes() const { return info.role != KernelInfo::Role::Gather; }
  Error error(const std::string &what) const { return inputError("cache kernel '" + entry + "': " + what); }

  /// The number of lists: of slots, and of positions.
  int64_t listCount() const {
    return (reads() && writes()) || (hasParameter("positions") && !positions) ? 2 : 1;
  }
  bool hasStrides() const { return hasParameter("k.stride1"); }

  bool hasParameter(const std::string &name) const;

  Status bindStrides(const std::string &tensor, const PageStrides &given, const PageStrides &dense,
                     int64_t unit);
  Status bindLines(const std::string &name, const Store &store, const StorePart &part,
                   const DeviceRows &given);
  Status bindRowStride(const std::string &name, int64_t given, int64_t dense);
  Status bindQueries(const std::string &name, const DeviceHeads &given);
  Status bindRows(const DeviceRows &given);
  Status bindCache(const Argument &cache, const DeviceRows &given);
  /// Sets the memory of the lists, which follow a sector with the number of rows.
  void useList(DeviceAddress at);
  Status launchKernel();

private:
  /// The memory of keys or values, or of their metadata.
  struct Part {
    std::string name, buffer, layer;
    DeviceAddress address;
    int64_t layerBytes, needed; ///< needed: bytes of a layer
    int64_t unit, counted;      ///< layers begin at multiples of `unit`, and are counted in `counted` bytes
  };
  Status bindPart(const Part &part);
  Status bindMeta(Part meta, const StorePart &part, int64_t slots);
  Status checkCount(int64_t count, const std::string &what) const;
  Status fill();
};

} // namespace attn::rt

#endif
