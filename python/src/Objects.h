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

/// A list whose length is known only afterwards.
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

/// What `attn.cache.pages.Run.pages` says of pages on a device.
AttnDevicePages pagesOf(const py::dict &given);

/// Of a batch made from a cache: the user's row of each row, or the way back, as i32; else no bytes.
py::object userRows(const Batch &batch, bool back);
/// And the node where each instance begins, by operand.
py::list nodesOf(const Batch &batch);

/// A change of a cache whose new tokens are not written yet. The cache and the movement that is to write them
/// hold it together: once the movement is gone, nobody can, and the cache takes the tokens back.
struct OpenChange {
  std::vector<AttnAppend> appended;
  std::vector<AttnNode> children;
  std::optional<AttnNode> speculated;
  bool failed = false; ///< a write has begun and not ended: it raised an error, or was interrupted
  bool takenBack = false;
};

struct Movement {
  Handle<AttnMovement, attnMovementDestroy> handle;
  std::shared_ptr<OpenChange> change; ///< null where no new token is to be written
  AttnMovement *get() const { return handle.get(); }
  AttnMovement **out() { return handle.out(); }
};

/// Settles the open change before each use of the handle, so that no question is answered, and no page given
/// out, with tokens that nobody will write.
class Cache {
public:
  int32_t pageTokens, draftPage;
  py::list classes;

  AttnCache **out() { return handle_.out(); }
  /// The cache, after changes that were dropped or could not be written have been rolled back.
  AttnCache *get() const;
  /// Tokens are to be written to what the call that has just returned made room for.
  void open(Movement &movement, OpenChange change) const;
  /// The tokens of the movement are written, or somebody else writes them.
  void close(const Movement &movement) const {
    if (open_ == movement.change)
      open_.reset();
  }
  /// Whether there are tokens that somebody can still write.
  bool isOpen() const { return get() && open_; }
  /// Takes the open change back, if there is one.
  void rollBack() const;

private:
  Handle<AttnCache, attnCacheDestroy> handle_;
  mutable std::shared_ptr<OpenChange> open_;
};

/// A call of the API on a cache, without the GIL.
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
