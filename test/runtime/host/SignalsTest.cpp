//===- SignalsTest.cpp - Kernels that end the process ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "NativeKernel.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace attn;
using namespace attn::rt::host;
using testing::ExitedWithCode;
using testing::KilledBySignal;

namespace {

void *place = nullptr; ///< the address that the kernels below write to

bool chosen(LaneAbi *lane) { return lane->special[CtaidX] == 2 && lane->special[TidX] == 37; }

void writesWrong(LaneAbi *lane, void **) {
  if (chosen(lane))
    *static_cast<volatile int *>(place) = 1;
}

volatile int zero = 0;

/// The test needs the signal, so no sanitizer may be quicker.
[[clang::no_sanitize("integer-divide-by-zero")]] void dividesByZero(LaneAbi *lane, void **) {
  if (chosen(lane))
    zero = 7 / zero;
}

Report launch(void (*entry)(LaneAbi *, void **), bool nameSignals = true) {
  MemoryMap memory;
  LaunchOptions options;
  options.nameSignals = nameSignals;
  options.threads = 2;
  void *args[] = {nullptr};
  return rt::host::launch(test::nativeKernel("wrong", entry), {4}, {64}, 0, args, memory, options);
}

struct sigaction handlerOf(int signal) {
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  return now;
}

void install(int signal, void (*handler)(int, siginfo_t *, void *), struct sigaction *before = nullptr) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(signal, &action, before);
}

void say(const char *text) { (void)!write(STDERR_FILENO, text, strlen(text)); }

TEST(Signals, nameTheKernel) {
  EXPECT_EXIT(
      launch(writesWrong), KilledBySignal(SIGSEGV),
      "^attn: SIGSEGV \\(a wrong address\\) at 0x0 while the host device ran kernel 'wrong', block 2, "
      "thread 37\n$");
  EXPECT_EXIT(launch(dividesByZero), KilledBySignal(SIGFPE),
              "^attn: SIGFPE .* kernel 'wrong', block 2, thread 37\n$");
  EXPECT_EXIT(launch([](LaneAbi *lane, void **) {
                if (chosen(lane))
                  __builtin_trap();
              }),
              KilledBySignal(SIGILL), "^attn: SIGILL .* kernel 'wrong', block 2, thread 37\n$");
  EXPECT_EXIT(launch([](LaneAbi *lane, void **) {
                if (chosen(lane))
                  raise(SIGBUS);
              }),
              KilledBySignal(SIGBUS), "^attn: SIGBUS \\(a wrong address\\) while .* block 2, thread 37\n$");
}

#if defined(__x86_64__)
TEST(Signals, nameTheKernelWhoseStackIsGone) {
  EXPECT_EXIT(launch([](LaneAbi *lane, void **) {
                if (chosen(lane))
                  asm volatile("mov $64, %%rsp\n push %%rax" ::: "memory");
              }),
              KilledBySignal(SIGSEGV), "^attn: SIGSEGV .* kernel 'wrong', block 2\n$");
}
#endif

TEST(Signals, areLeftAloneIfSoAsked) {
  EXPECT_EXIT(launch(writesWrong, false), KilledBySignal(SIGSEGV), "^$");
  EXPECT_EXIT(
      {
        setenv("ATTN_HOST_SIGNALS", "0", 1);
        launch(writesWrong);
      },
      KilledBySignal(SIGSEGV), "^$");
}

TEST(Signals, areHandedOn) {
  EXPECT_EXIT(
      {
        install(SIGSEGV, [](int, siginfo_t *info, void *) {
          say(info->si_addr == place ? "mine\n" : "whose?\n");
          _exit(3);
        });
        launch(writesWrong);
      },
      ExitedWithCode(3), "^attn: SIGSEGV .* 'wrong', block 2, thread 37\nmine\n$");
  EXPECT_EXIT(
      {
        signal(SIGSEGV, [](int) {
          say("mine\n");
          _exit(3);
        });
        launch(writesWrong);
      },
      ExitedWithCode(3), "^attn: SIGSEGV .*\nmine\n$");
}

TEST(Signals, leaveWhoRepairsToRepair) {
  place = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction before = {};
  install(SIGSEGV, [](int, siginfo_t *, void *) { mprotect(place, 4096, PROT_READ | PROT_WRITE); }, &before);
  testing::internal::CaptureStderr();
  const Report report = launch(writesWrong);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("kernel 'wrong', block 2"), std::string::npos);
  EXPECT_TRUE(report.clean());
  EXPECT_EQ(*static_cast<int *>(place), 1);
  sigaction(SIGSEGV, &before, nullptr);
  munmap(place, 4096);
  place = nullptr;
}

TEST(Signals, handlersAreThereDuringLaunchesOnly) {
  static struct sigaction during;
  stack_t before = {};
  sigaltstack(nullptr, &before);
  const struct sigaction usual = handlerOf(SIGSEGV);
  EXPECT_TRUE(launch([](LaneAbi *, void **) { during = handlerOf(SIGSEGV); }).clean());
  EXPECT_NE(reinterpret_cast<void *>(during.sa_sigaction), reinterpret_cast<void *>(usual.sa_sigaction));
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP})
    EXPECT_NE(reinterpret_cast<void *>(handlerOf(signal).sa_sigaction),
              reinterpret_cast<void *>(during.sa_sigaction));
  stack_t after = {};
  sigaltstack(nullptr, &after);
  EXPECT_EQ(after.ss_flags, before.ss_flags);
}

struct sigaction below; ///< the handler that the handler on top replaced

void onTop(int number, siginfo_t *info, void *context) {
  say("on top\n");
  below.sa_sigaction(number, info, context);
}

TEST(Signals, whoPutsHisOnTopOfOursKeepsIt) {
  EXPECT_EXIT(
      {
        launch([](LaneAbi *lane, void **) {
          if (chosen(lane))
            install(SIGSEGV, onTop, &below);
        });
        if (handlerOf(SIGSEGV).sa_sigaction != onTop)
          _exit(1);
        launch(writesWrong);
      },
      KilledBySignal(SIGSEGV), "^on top\nattn: SIGSEGV .* 'wrong', block 2, thread 37\n");
}

/// The progress of the two copies below.
std::atomic<int> step;

void goOnAt(int wanted) {
  while (step != wanted)
    std::this_thread::yield();
}

TEST(Signals, noHandlerOfAnUnloadedCopyIsLeft) {
  const struct sigaction usual = handlerOf(SIGSEGV);
  void *copies[2];
  void (*launches[2])(void (*)());
  for (int i : {0, 1}) {
    copies[i] =
        dlopen(i ? ATTN_HOST_COPIES "/libhost-copy-second.so" : ATTN_HOST_COPIES "/libhost-copy-first.so",
               RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(copies[i]) << dlerror();
    launches[i] = reinterpret_cast<void (*)(void (*)())>(dlsym(copies[i], "launchInCopy"));
    ASSERT_TRUE(launches[i]);
  }
  // The first copy's launch begins before that of the second, and ends before it.
  step = 0;
  std::thread first([&] {
    launches[0]([] {
      step = 1;
      goOnAt(2);
    });
    step = 3;
  });
  goOnAt(1);
  launches[1]([] {
    step = 2;
    goOnAt(3);
  });
  first.join();
  for (void *copy : copies)
    dlclose(copy);
  const struct sigaction left = handlerOf(SIGSEGV);
  if (left.sa_handler != SIG_DFL && left.sa_sigaction != usual.sa_sigaction) {
    Dl_info where = {};
    EXPECT_TRUE(dladdr(reinterpret_cast<void *>(left.sa_sigaction), &where))
        << "the handler is in no library";
  }
  EXPECT_EXIT(raise(SIGSEGV), KilledBySignal(SIGSEGV), "^$");
  sigaction(SIGSEGV, &usual, nullptr);
}

TEST(Signals, ofOtherThreadsAreHandedOnInSilence) {
  EXPECT_EXIT(launch([](LaneAbi *lane, void **) {
                if (!chosen(lane))
                  return;
                pthread_t other;
                pthread_create(
                    &other, nullptr,
                    [](void *) -> void * {
                      raise(SIGSEGV);
                      return nullptr;
                    },
                    nullptr);
                pthread_join(other, nullptr);
              }),
              KilledBySignal(SIGSEGV), "^$");
}

} // namespace
