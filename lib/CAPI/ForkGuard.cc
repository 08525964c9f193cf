//===- ForkGuard.cc - No fork during a compiler call ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ForkGuard.h"

#include <condition_variable>
#include <mutex>
#include <new>
#include <pthread.h>

namespace attn::capi {

namespace {

/// The calls under way, and the forks that wait for them. Calls that come later wait for these forks.
class Gate {
public:
  /// Returns the gate, which is never destroyed: threads may outlive static objects.
  static Gate &get() {
    static Gate &gate = *new Gate;
    return gate;
  }

  void enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return forks_ == 0; });
    ++calls_;
  }
  void leave() {
    std::lock_guard lock(mutex_);
    --calls_;
    changed_.notify_all();
  }

private:
  Gate() {
    pthread_atfork([] { get().close(); }, [] { get().open(); }, [] { get().openInChild(); });
  }

  /// Leaves the mutex locked until the process is copied.
  void close() {
    std::unique_lock lock(mutex_);
    ++forks_;
    changed_.wait(lock, [&] { return calls_ == 0; });
    lock.release();
  }
  void open() {
    --forks_;
    changed_.notify_all();
    mutex_.unlock();
  }
  /// Other threads that waited here are not in the child.
  void openInChild() {
    forks_ = 0;
    new (&changed_) std::condition_variable;
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned calls_ = 0, forks_ = 0;
};

/// Makes the gate when the library is loaded, so that a fork during the first call finds it.
[[maybe_unused]] const Gate &loaded = Gate::get();

} // namespace

ForkGuard::ForkGuard() { Gate::get().enter(); }
ForkGuard::~ForkGuard() { Gate::get().leave(); }

} // namespace attn::capi
