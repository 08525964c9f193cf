//===- Threads.cpp - Work side by side, whose failures arrive --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/support/Threads.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace attn::rt {

struct Threads::State {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr failure; ///< the first failure

  void guarded(const std::function<void()> &work) noexcept {
    try {
      work();
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure)
        failure = std::current_exception();
    }
  }
  void join() {
    for (std::thread &thread : threads)
      thread.join();
    threads.clear();
  }
};

Threads::Threads() : state(std::make_unique<State>()) {}
Threads::~Threads() { state->join(); }

bool Threads::start(std::function<void()> work) noexcept {
  try {
    state->threads.emplace_back([state = state.get(), work = std::move(work)] { state->guarded(work); });
    return true;
  } catch (...) {
    return false; // no thread, or no memory for one: the caller does without
  }
}

void Threads::here(const std::function<void()> &work) noexcept { state->guarded(work); }

void Threads::wait() {
  state->join();
  if (std::exception_ptr failure = std::exchange(state->failure, nullptr))
    std::rethrow_exception(failure);
}

void onThreads(unsigned count, const std::function<void()> &work) {
  Threads threads;
  for (unsigned i = 1; i < count; ++i)
    if (!threads.start(work))
      break;
  threads.here(work);
  threads.wait();
}

} // namespace attn::rt
