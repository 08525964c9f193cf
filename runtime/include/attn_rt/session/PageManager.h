//===- PageManager.h - Pages of many lists, on a device ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   PageManager manager = *PageManager::create(*device, manifest, module);
//   manager.reserve({.lists = 32768, .columns = 512, .pages = 100000});   // allocates
//   manager.bind(tables);
//   manager.launch();                                                     // as often as you like
//
// Runs an attn.manage_pages. After reserve nothing is allocated and nothing waits, and
// launches depend on nothing but what is in memory: recorded once, they may be replayed.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_PAGEMANAGER_H
#define ATTN_RT_SESSION_PAGEMANAGER_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/device/Device.h"

namespace attn::rt {

/// What pages a table is of.
struct PageTableSizes {
  int64_t lists = 0, columns = 0, pages = 0;
};

/// Tensors of i32 that an attn.manage_pages reads and changes, by their addresses.
struct PageTables {
  static constexpr const char *names[] = {"table", "counts", "tokens", "free", "span", "status"};
  DeviceAddress addresses[6] = {};
  /// Bytes of each.
  static std::vector<size_t> bytes(const PageTableSizes &sizes);
};

class PageManager {
public:
  /// Of the module of an attn.manage_pages. The device must outlive the manager.
  static Result<PageManager> create(Device &device, const Manifest &manifest, std::shared_ptr<Module> module);
  PageManager(PageManager &&) noexcept;
  PageManager &operator=(PageManager &&) noexcept;
  ~PageManager();

  /// Makes room for what blocks tell each other, and fixes their number: as many as fill the device, or those
  /// given.
  Status reserve(const PageTableSizes &sizes, std::optional<int> blocks = std::nullopt);
  const PageTableSizes &sizes() const;
  int blocks() const;
  /// Says where the tensors lie, each at a multiple of 16.
  Status bind(const PageTables &tables);
  /// Manages the pages of the tables bound last.
  Status launch();

private:
  struct State;
  explicit PageManager(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

} // namespace attn::rt

#endif
