//===- Lock.cc - A mutex that survives fork -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Lock.h"

#include <new>
#include <pthread.h>

namespace attn::rt::capi {

/// All locks. Never destroyed: threads may outlive static objects.
struct LockRegistry {
  std::mutex mutex;
  Lock *first = nullptr;
  unsigned forks = 0;

  static LockRegistry &get() {
    static LockRegistry *registry = [] {
      auto *made = new LockRegistry;
      pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); }, [] { get().afterFork(); });
      return made;
    }();
    return *registry;
  }

  void afterFork() {
    ++forks;
    for (Lock *lock = first; lock; lock = lock->next_)
      if (lock->mutex_.try_lock()) {
        lock->mutex_.unlock();
      } else {
        lock->broken_ = true;
        new (&lock->mutex_) std::mutex;
      }
    mutex.unlock();
  }

  void add(Lock &lock) {
    std::lock_guard guard(mutex);
    lock.next_ = first;
    if (first)
      first->previous_ = &lock;
    first = &lock;
  }
  void remove(Lock &lock) {
    std::lock_guard guard(mutex);
    (lock.previous_ ? lock.previous_->next_ : first) = lock.next_;
    if (lock.next_)
      lock.next_->previous_ = lock.previous_;
  }
};

unsigned forkCount() { return LockRegistry::get().forks; }

Lock::Lock() { LockRegistry::get().add(*this); }
Lock::~Lock() { LockRegistry::get().remove(*this); }

} // namespace attn::rt::capi
