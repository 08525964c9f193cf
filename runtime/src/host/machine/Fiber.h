//===- Fiber.h - Stacks and switches ----------------------------*- C++ -*-===//
//
// Boost.Context's lowest level. Kernels own no C++ objects, so a fiber that will
// never be resumed (deadlock) is simply forgotten.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_MACHINE_FIBER_H
#define ATTN_RT_SRC_HOST_MACHINE_FIBER_H

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace attn::rt::host {

/// Stack tops a power of two apart would share their cache sets; the odd
/// remainder spreads the hot ends of the stacks over all of them.
inline constexpr size_t kStackBytes = 128 << 10;
inline constexpr size_t kStackStride = kStackBytes + 17 * 64;

struct Lane;

/// Travels with a switch: where to keep the context that was left, and who is meant.
struct Switch {
  void **slot;
  Lane *to;
};

inline Lane *arrived(boost::context::detail::transfer_t t) {
  auto *s = static_cast<Switch *>(t.data);
  *s->slot = t.fctx;
  return s->to;
}

/// Leaves the running context, to be resumed through `slot`.
inline void switchTo(void *target, void *&slot, Lane *to) {
  Switch s{&slot, to};
  arrived(boost::context::detail::jump_fcontext(target, &s));
}

} // namespace attn::rt::host

#endif
