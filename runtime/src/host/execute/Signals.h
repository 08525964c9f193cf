//===- Signals.h - Which kernel a signal came from --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Native code of a kernel runs unprotected: a wrong address faults as it does
// anywhere else, and the process ends. During launches only, handlers of the signals
// that a program's own instructions raise name the kernel on standard error. They then
// call the handler that was installed before (a debugger's, Python's faulthandler, an
// application's own), else take the system's default action.
//
// Handlers belong to the process, so launches are counted: the first of several launches
// installs them, the last removes them, unless another handler was installed over them
// by then, which calls ours. For a thread that runs no kernel, they only call the next.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_EXECUTE_SIGNALS_H
#define ATTN_RT_SRC_HOST_EXECUTE_SIGNALS_H

#include <csignal>
#include <cstddef>
#include <cstdint>

namespace attn::rt::host {

struct Block;

/// Keeps the handlers installed while it lives. ATTN_HOST_SIGNALS=0 in the environment turns them off.
class SignalNotes {
public:
  explicit SignalNotes(bool wanted);
  ~SignalNotes();
  SignalNotes(const SignalNotes &) = delete;
  SignalNotes &operator=(const SignalNotes &) = delete;

private:
  const bool active;
};

/// The stack of a handler: its frame must not lie on the stack of the fiber that faulted, which may be the
/// cause of the fault.
inline constexpr size_t kSignalStackBytes = 64 << 10;

/// Marks that this thread runs a block, while it lives. `stack`: kSignalStackBytes, used if the thread has no
/// stack for signals of its own.
class WatchedThread {
public:
  WatchedThread(const Block &block, uint8_t *stack);
  ~WatchedThread();
  WatchedThread(const WatchedThread &) = delete;
  WatchedThread &operator=(const WatchedThread &) = delete;

private:
  bool ownStack = false;
};

} // namespace attn::rt::host

#endif
