//===- Fiber.h - Stacks and switches ----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Boost.Context's lowest level. Kernels own no C++ objects, so a fiber that will
// never be resumed (deadlock) is simply forgotten.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_MACHINE_FIBER_H
#define ATTN_RT_SRC_HOST_MACHINE_FIBER_H

#include "host/machine/FiberNotes.h"
#include <boost/context/detail/fcontext.hpp>
#include <cstdint>

namespace attn::rt::host {

/// Stack tops a power of two apart would share their cache sets; the odd
/// remainder spreads the hot ends of the stacks over all of them.
inline constexpr size_t kStackBytes = 128 << 10;
inline constexpr size_t kStackStride = kStackBytes + 17 * 64;

struct Lane;

/// Code suspended on a stack of its own: a lane's, or a thread's that waits for its lanes.
struct Fiber {
  Fiber() = default;
  /// A fiber that will start with `main`, on the `kStackBytes` below `top`.
  Fiber(uint8_t *top, void (*main)(boost::context::detail::transfer_t))
      : context(boost::context::detail::make_fcontext(top, kStackBytes, main)),
        notes(top - kStackBytes, kStackBytes) {}

  void *context = nullptr; ///< where to resume
  bool ended = false;      ///< it will switch away once more, and never be resumed
  [[no_unique_address]] FiberNotes notes;
};

/// The argument of a switch: the fiber left, and the lane to run.
struct Switch {
  Fiber *from;
  Lane *to;
};

/// Must be the first call of `here` when it starts or resumes.
inline Lane *arrived(boost::context::detail::transfer_t t, Fiber &here) {
  auto *s = static_cast<Switch *>(t.data);
  s->from->context = t.fctx;
  here.notes.resumed(s->from->notes);
  return s->to;
}

/// Suspends the running fiber `from`, until another fiber switches to it.
ATTN_FIBER_SWITCH inline void switchTo(Fiber &target, Fiber &from, Lane *to) {
  Switch s{&from, to};
  from.notes.leaving(target.notes, from.ended);
  arrived(boost::context::detail::jump_fcontext(target.context, &s), from);
}

} // namespace attn::rt::host

#endif
