//===- Lock.h - A mutex that survives fork ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A child process has a copy of every object and only one of the threads that used
// them. A mutex that another thread held stays locked in the child for ever, around an
// object that is half changed. So the child makes all mutexes new, and those that were
// held refuse to be locked, with an error instead of a deadlock.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CAPI_LOCK_H
#define ATTN_RT_CAPI_LOCK_H

#include "attn_rt/support/Status.h"

#include <mutex>

namespace attn::rt::capi {

/// The number of forks from the process's first ancestor to this process.
unsigned forkCount();

class Lock {
public:
  Lock();
  ~Lock();
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;

  /// Locks the mutex. `what` begins the error's message.
  Result<std::unique_lock<std::mutex>> take(const char *what) {
    if (broken_)
      return Error{ErrorKind::Device, std::string(what) + " was used by another thread when this process was "
                                                          "forked: make another one here"};
    return std::unique_lock(mutex_);
  }

private:
  friend struct LockRegistry;
  std::mutex mutex_;
  bool broken_ = false;
  Lock *next_ = nullptr, *previous_ = nullptr;
};

} // namespace attn::rt::capi

#endif
