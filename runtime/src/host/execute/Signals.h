//===- Signals.h - Which kernel a signal came from --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Native code of a kernel runs unprotected: a wrong address faults as it does
// anywhere else, and the process ends. Around launches, and only there, handlers of
// the signals that a program's own instructions raise say on standard error whose
// they were, and hand on: to the handler that was there before (a debugger's,
// Python's faulthandler, an application's own), else to the system's default.
//
// They are the process's, so they are counted: the first of several launches puts
// them in, the last takes them out, unless somebody has put his own on top by then,
// who then calls ours. A thread that runs no kernel is only handed on.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_EXECUTE_SIGNALS_H
#define ATTN_RT_SRC_HOST_EXECUTE_SIGNALS_H

#include <csignal>
#include <cstddef>
#include <cstdint>

namespace attn::rt::host {

struct Block;

/// The handlers, for as long as this lives. ATTN_HOST_SIGNALS=0 in the environment turns them off.
class SignalNotes {
public:
  explicit SignalNotes(bool wanted);
  ~SignalNotes();
  SignalNotes(const SignalNotes &) = delete;
  SignalNotes &operator=(const SignalNotes &) = delete;

private:
  const bool active;
};

/// What a handler needs: its frame must not lie on the stack of the fiber that faulted, which may be the
/// fault.
inline constexpr size_t kSignalStackBytes = 64 << 10;

/// This thread runs a block, for as long as this lives. `stack`: kSignalStackBytes, used where the thread has
/// no stack for signals of its own.
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
