//===- TableOperation.h - Pages of many lists, on a device ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   TableOperation manage = *TableOperation::create(*device, manifest, module);
//   manage.reserve({{32768, 512, 100000}});   // lists, columns, pages; allocates
//   manage.bind(addresses);                   // of the tensors, in their order
//   manage.launch();                          // as often as you like
//
// Runs an operation of AttnPageOps.td. After reserve nothing is allocated
// and nothing waits, and launches depend only on the contents of memory: recorded once,
// they may be replayed.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SESSION_TABLEOPERATION_H
#define ATTN_RT_SESSION_TABLEOPERATION_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/device/Device.h"

namespace attn::rt {

class TableOperation {
public:
  /// One of its tensors.
  struct Tensor {
    const char *name;
    size_t bytes;
  };

  /// Makes an operation of a loaded module with an operation on a table of pages. The device must outlive it.
  static Result<TableOperation> create(Device &device, const Manifest &manifest,
                                       std::shared_ptr<Module> module);
  TableOperation(TableOperation &&) noexcept;
  TableOperation &operator=(TableOperation &&) noexcept;
  ~TableOperation();

  /// Names of the sizes that are unknown before a run, in the order of the arguments.
  const std::vector<std::string> &sizeNames() const;
  /// Sets these sizes, allocates the memory through which blocks communicate, and fixes the number of blocks:
  /// as many as fill the device, or as given.
  Status reserve(std::span<const int64_t> sizes, std::optional<int> blocks = std::nullopt);
  /// Blocks of its launches, once reserved.
  int blocks() const;
  /// The tensors in the order of the arguments; needs the sizes.
  const std::vector<Tensor> &tensors() const;
  /// Sets the addresses of the tensors, each a multiple of 16.
  Status bind(std::span<const DeviceAddress> addresses);
  /// Launches all kernels of the operation; neither allocates nor waits.
  Status launch();

private:
  struct State;
  explicit TableOperation(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

} // namespace attn::rt

#endif
