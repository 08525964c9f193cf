//===- Threads.h - Work side by side, whose failures arrive -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An exception that leaves a thread ends the process, and so does a thread that the system cannot start
// while others run. Both come back to the caller here. The compiler is built without exceptions, so nothing
// here may be a template or inline.
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
  ~Threads(); ///< waits for all threads
  Threads(const Threads &) = delete;
  Threads &operator=(const Threads &) = delete;

  /// Runs the work on a thread of its own. Returns false, without running it, if the system has no thread
  /// left.
  bool start(std::function<void()> work) noexcept;
  /// Runs the work on the calling thread. Its exceptions wait for wait(), as those of the threads do.
  void here(const std::function<void()> &work) noexcept;
  /// Waits for all threads; throws the first exception of any.
  void wait();

private:
  struct State;
  std::unique_ptr<State> state;
};

/// Runs the same work on `count` threads, the calling thread among them, or on fewer if the system has no
/// more. Throws the first exception of the work, after all threads have ended.
void onThreads(unsigned count, const std::function<void()> &work);

} // namespace attn::rt

#endif
