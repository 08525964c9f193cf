//===- Lock.h - A mutex that survives fork ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A child process has a copy of every object and one thread of those that used them.
// A mutex that another thread held stays locked in the child for ever, around an
// object that is half changed. So in the child all mutexes are made new, and those
// that were held refuse to be locked, with an error instead of a deadlock.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CAPI_LOCK_H
#define ATTN_RT_CAPI_LOCK_H

#include "attn_rt/support/Status.h"

#include <mutex>

namespace attn::rt::capi {

/// Forks between the start of the process (of its first ancestor) and now.
unsigned forkCount();

class Lock {
public:
  Lock();
  ~Lock();
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;

  /// `what` begins the message.
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
