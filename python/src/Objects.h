//===- Objects.h - The classes of the extension -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PYTHON_OBJECTS_H
#define ATTN_PYTHON_OBJECTS_H

#include "Binding.h"

#include "attn-c/Cache.h"

#include <memory>
#include <optional>

namespace attn::python {

struct Device {
  Handle<AttnDevice, attnDeviceDestroy> handle;
};

struct Memory {
  Handle<AttnMemory, attnMemoryDestroy> handle;
};

struct Kernel {
  Handle<AttnKernel, attnKernelDestroy> handle;
  py::object device;
  py::tuple slots;
};

struct Batch {
  Handle<AttnBatch, attnBatchDestroy> handle;
  py::object kernel;
};

/// Returns a list whose length the call reports.
template <typename T, typename Call> std::vector<T> listOf(Call call) {
  std::vector<T> list(16);
  for (;;) {
    size_t count = 0;
    check(call(list.data(), list.size(), &count));
    const bool complete = count <= list.size();
    list.resize(count);
    if (complete)
      return list;
  }
}

/// Converts the result of `attn.cache.pages.Run.pages`.
AttnDevicePages pagesOf(const py::dict &given);

/// Returns the user's row of each row, or the inverse, as i32, for a batch made from a cache; else no bytes.
py::object userRows(const Batch &batch, bool back);
/// Returns the node of each instance's first token, by operand.
py::list nodesOf(const Batch &batch);

/// A change of a cache whose new tokens are not written yet. The cache and the movement that writes them
/// share it: once the movement is gone, the tokens cannot be written, and the cache takes them back.
struct OpenChange {
  std::vector<AttnAppend> appended;
  std::vector<AttnNode> children;
  std::optional<AttnNode> speculated;
  bool failed = false; ///< a write has begun and not ended: it raised an error, or was interrupted
  bool takenBack = false;
};

struct Movement {
  Handle<AttnMovement, attnMovementDestroy> handle;
  std::shared_ptr<OpenChange> change; ///< null if no new token is to be written
  AttnMovement *get() const { return handle.get(); }
  AttnMovement **out() { return handle.out(); }
};

/// Settles the open change before each use of the handle: no answer and no page then depends on tokens that
/// will never be written.
class Cache {
public:
  int32_t pageTokens, draftPage;
  py::list classes;

  AttnCache **out() { return handle_.out(); }
  /// Returns the cache, after rolling back changes that were dropped or could not be written.
  AttnCache *get() const;
  /// Records that tokens are to be written to the slots of the call that has just returned.
  void open(Movement &movement, OpenChange change) const;
  /// Records that the tokens of the movement are written, or that the caller writes them.
  void close(const Movement &movement) const {
    if (open_ == movement.change)
      open_.reset();
  }
  /// Returns whether there are tokens that can still be written.
  bool isOpen() const { return get() && open_; }
  /// Takes the open change back, if there is one.
  void rollBack() const;

private:
  Handle<AttnCache, attnCacheDestroy> handle_;
  mutable std::shared_ptr<OpenChange> open_;
};

/// Calls the API on a cache, without the GIL.
template <typename Call> void runOn(const Cache &cache, Call call) {
  AttnCache *mine = cache.get();
  run([&] { return call(mine); });
}

struct Plan {
  Handle<AttnPlan, attnPlanDestroy> handle;
  py::object kernel;
};

} // namespace attn::python

#endif
