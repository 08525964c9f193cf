//===- OwnedKernel.h - The kernel of a cache behind a handle ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CAPI_OWNEDKERNEL_H
#define ATTN_RT_CAPI_OWNEDKERNEL_H

#include "attn_rt/capi/Lock.h"
#include "attn_rt/capi/Objects.h"
#include "attn_rt/session/CacheKernel.h"

#include <memory>
#include <new>
#include <optional>

namespace attn::rt::capi {

/// A kernel of a cache with the loaded code that it launches. Its buffer goes back to the device, unless that
/// is lost.
struct OwnedKernel {
  std::shared_ptr<LoadedKernel> loaded;
  std::optional<CacheKernel> kernel = {};
  Lock lock = {};

  explicit OwnedKernel(std::shared_ptr<LoadedKernel> loaded) : loaded(std::move(loaded)) {}
  ~OwnedKernel() {
    if (!kernel)
      return;
    auto held = loaded->device->use();
    if (held)
      kernel.reset();
    else
      new (std::nothrow) CacheKernel(std::move(*kernel)); // its buffer belongs to a device that is lost
  }

  Status create() {
    auto held = loaded->device->use();
    if (!held)
      return held.error();
    Result<CacheKernel> made = CacheKernel::create(*loaded->device->device, loaded->manifest, loaded->module);
    if (!made)
      return made.error();
    kernel.emplace(std::move(*made));
    return {};
  }
};

} // namespace attn::rt::capi

#endif
