//===- Threads.h - Work side by side, whose failures arrive -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An exception that leaves a thread ends the process, and so does a thread that the system has no room for
// while others run. Here both come back to the caller. The compiler is built without exceptions, so nothing
// of this may be a template or inline.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SUPPORT_THREADS_H
#define ATTN_RT_SUPPORT_THREADS_H

#include <functional>
#include <memory>

namespace attn::rt {

class Threads {
public:
  Threads();
  ~Threads(); ///< waits
  Threads(const Threads &) = delete;
  Threads &operator=(const Threads &) = delete;

  /// Does the work on a thread of its own; false where the system has none left, and then nothing was done.
  bool start(std::function<void()> work) noexcept;
  /// Does it here and now. What it throws waits, like that of the threads, for wait().
  void here(const std::function<void()> &work) noexcept;
  /// Waits for all; throws the first exception of any.
  void wait();

private:
  struct State;
  std::unique_ptr<State> state;
};

/// Does the same work on so many threads, this one among them, or on fewer where the system has no more.
/// Throws what the work threw first, after all have ended.
void onThreads(unsigned count, const std::function<void()> &work);

} // namespace attn::rt

#endif
