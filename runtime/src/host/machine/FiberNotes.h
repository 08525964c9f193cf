//===- FiberNotes.h - What sanitizers are told of fibers --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// AddressSanitizer and ThreadSanitizer follow the stack of a thread and must be
// notified of every switch to another. Builds without them pay nothing for it.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_MACHINE_FIBERNOTES_H
#define ATTN_RT_SRC_HOST_MACHINE_FIBERNOTES_H

#include <cstddef>

#ifndef __has_feature // Clang's
#define __has_feature(feature) 0
#endif
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#endif

namespace attn::rt::host {

/// Between `leaving` and the switch itself, the sanitizer believes the thread to be on the other stack:
/// instrumented code would then write its notes on the wrong stack.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ATTN_FIBER_SWITCH __attribute__((disable_sanitizer_instrumentation))
#else
#define ATTN_FIBER_SWITCH
#endif

#if __has_feature(address_sanitizer)

class FiberNotes {
public:
  FiberNotes() = default; // for a thread's own stack, whose bounds are learned on leaving it
  FiberNotes(const void *bottom, size_t bytes) : bottom(bottom), bytes(bytes) {
    __asan_unpoison_memory_region(bottom, bytes); // clears frames of an earlier fiber that did not return
  }
  ATTN_FIBER_SWITCH void leaving(const FiberNotes &target, bool forEver) {
    __sanitizer_start_switch_fiber(forEver ? nullptr : &fakeStack, target.bottom, target.bytes);
  }
  void resumed(FiberNotes &from) { __sanitizer_finish_switch_fiber(fakeStack, &from.bottom, &from.bytes); }
  void forget() {}

private:
  const void *bottom = nullptr;
  size_t bytes = 0;
  void *fakeStack = nullptr; ///< locals that may be used after their function has returned
};

#elif __has_feature(thread_sanitizer)

class FiberNotes {
public:
  FiberNotes() = default; // for a thread's own stack, which is queried on leaving it
  FiberNotes(const void *, size_t) : fiber(__tsan_create_fiber(0)) {}
  ATTN_FIBER_SWITCH void leaving(const FiberNotes &target, bool) {
    fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(target.fiber, 0);
  }
  void resumed(FiberNotes &) {}
  void forget() { __tsan_destroy_fiber(fiber); }

private:
  void *fiber = nullptr;
};

#else

struct FiberNotes {
  FiberNotes() = default;
  FiberNotes(const void *, size_t) {}
  void leaving(const FiberNotes &, bool) {}
  void resumed(FiberNotes &) {}
  void forget() {}
};

#endif

} // namespace attn::rt::host

#endif
