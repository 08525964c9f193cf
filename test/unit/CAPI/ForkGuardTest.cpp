//===- ForkGuardTest.cpp - A fork waits for compiler calls ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ForkGuard.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using attn::capi::ForkGuard;

namespace {

/// Runs `check` in a child, which an alarm ends if it waits for ever, and returns the child's status.
template <typename Check> int statusOfChild(Check check) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(check() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(ForkGuard, AForkWaitsForTheCallsUnderWay) {
  std::atomic<bool> begun = false, ended = false;
  std::thread caller([&] {
    ForkGuard guard;
    begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ended = true;
  });
  while (!begun)
    std::this_thread::yield();
  EXPECT_EQ(statusOfChild([&] { return ended.load(); }), 0);
  caller.join();
}

TEST(ForkGuard, AForkDoesNotWaitForCallsThatComeLater) {
  std::atomic<bool> stop = false;
  std::thread callers[2];
  for (std::thread &caller : callers)
    caller = std::thread([&] {
      while (!stop) {
        ForkGuard guard;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(statusOfChild([] { return true; }), 0);
  stop = true;
  for (std::thread &caller : callers)
    caller.join();
}

TEST(ForkGuard, AChildCallsAndForksItself) {
  std::atomic<bool> stop = false;
  std::thread forking([&] {
    while (!stop)
      statusOfChild([] { return true; });
  });
  for (int i = 0; i < 20; ++i) {
    const int status = statusOfChild([] {
      ForkGuard guard;
      return true;
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(statusOfChild([] { return statusOfChild([] { return true; }) == 0; }), 0);
    ForkGuard guard;
  }
  stop = true;
  forking.join();
}

} // namespace
