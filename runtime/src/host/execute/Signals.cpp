//===- Signals.cpp - Which kernel a signal came from ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Signals.h"
#include "host/machine/Fiber.h"
#include "host/machine/Machine.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <mutex>
#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

namespace attn::rt::host {

namespace {

struct Watched {
  int number;
  const char *name;
};
constexpr Watched kSignals[] = {{SIGSEGV, "SIGSEGV (a wrong address)"},
                                {SIGBUS, "SIGBUS (a wrong address)"},
                                {SIGFPE, "SIGFPE (a wrong division)"},
                                {SIGILL, "SIGILL (a wrong instruction, or a trap)"},
                                {SIGTRAP, "SIGTRAP (a trap)"}};

/// The block that this thread runs. It is in the thread-local memory that a thread starts with: memory that
/// is allocated at its first use must not be used first by a handler.
[[gnu::tls_model("initial-exec")]] thread_local const Block *volatile running = nullptr;

//===----------------------------------------------------------------------===//
// In the handler: nothing that allocates, locks or formats
//===----------------------------------------------------------------------===//

/// A line of text with a bounded number of characters.
class Line {
public:
  Line &operator<<(const char *text) {
    for (; *text && end < sizeof(data); ++text)
      data[end++] = *text;
    return *this;
  }
  Line &operator<<(uint64_t number) { return digits(number, 10); }
  Line &hex(uint64_t number) { return (*this << "0x").digits(number, 16); }
  void write() const {
    for (size_t done = 0; done < end;) {
      const ssize_t now = ::write(STDERR_FILENO, data + done, end - done);
      if (now <= 0)
        return;
      done += static_cast<size_t>(now);
    }
  }

private:
  Line &digits(uint64_t number, unsigned base) {
    char text[21];
    char *first = text + sizeof(text) - 1;
    *first = 0;
    do
      *--first = "0123456789abcdef"[number % base];
    while (number /= base);
    return *this << first;
  }
  char data[512];
  size_t end = 0;
};

uintptr_t stackPointer(const void *context) {
  const auto &machine = static_cast<const ucontext_t *>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<uintptr_t>(machine.gregs[REG_RSP]);
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(machine.sp);
#else
  (void)machine;
  return 0;
#endif
}

void say(const Block &block, const char *signal, const siginfo_t *info, const void *context) {
  Line line;
  line << "attn: " << signal;
  if (info->si_code > 0) // raised by an instruction, not sent
    (line << " at ").hex(reinterpret_cast<uintptr_t>(info->si_addr));
  line << " while the host device ran kernel '" << block.grid->kernel.name.c_str() << "', block "
       << block.linear;
  const uintptr_t sp = stackPointer(context), stacks = reinterpret_cast<uintptr_t>(block.stacks);
  if (stacks <= sp && sp < stacks + block.stackCount * kStackStride)
    line << ", thread " << (sp - stacks) / kStackStride;
  line << "\n";
  line.write();
}

void handle(int number, siginfo_t *info, void *context);

/// Prevents that the library of this code is unloaded. A handler installed over this one, as by another copy
/// of this library, may call it long after the last launch.
void stayLoaded() {
  Dl_info here = {};
  if (dladdr(reinterpret_cast<const void *>(&handle), &here) && here.dli_fname)
    dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

//===----------------------------------------------------------------------===//
// Outside of it
//===----------------------------------------------------------------------===//

struct Handlers {
  std::mutex mutex;
  unsigned launches = 0;
  /// The handlers that these call in turn. They are kept after removal: another handler may have stored ours,
  /// and still call it.
  struct sigaction previous[std::size(kSignals)] = {};
  bool in[std::size(kSignals)] = {}; ///< installed, and not removed by this code

  static Handlers &get() {
    static Handlers &handlers = []() -> Handlers & {
      stayLoaded();
      // A child has no launches, and must not wait for a lock that a thread of its parent held.
      pthread_atfork(nullptr, nullptr, [] {
        instance().launches = 0;
        new (&instance().mutex) std::mutex;
      });
      return instance();
    }();
    return handlers;
  }
  static Handlers &instance() {
    static auto *handlers = new Handlers; // threads may outlive static objects
    return *handlers;
  }

  static bool same(const struct sigaction &a, const struct sigaction &b) {
    return a.sa_sigaction == b.sa_sigaction && a.sa_flags == b.sa_flags;
  }
  static bool isOurs(const struct sigaction &action) {
    return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == handle;
  }
  void begin() {
    std::lock_guard lock(mutex);
    if (launches++)
      return;
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction current = {};
      if (sigaction(kSignals[i].number, nullptr, &current) || isOurs(current))
        continue;
      // A handler installed over this one calls it: this one must not call that handler in turn.
      if (in[i] && !same(current, previous[i]))
        continue;
      previous[i] = current;
      struct sigaction ours = {};
      ours.sa_sigaction = handle;
      ours.sa_mask = current.sa_mask;
      ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (current.sa_flags & (SA_NODEFER | SA_RESTART));
      in[i] = sigaction(kSignals[i].number, &ours, nullptr) == 0;
    }
  }
  void end() {
    std::lock_guard lock(mutex);
    if (launches == 0) // this is a child process, and the launch was its parent's
      return;
    --launches;
    if (launches > 0)
      return;
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction current = {};
      if (in[i] && !sigaction(kSignals[i].number, nullptr, &current) && isOurs(current))
        in[i] = sigaction(kSignals[i].number, &previous[i], nullptr) != 0;
    }
  }
};

void handle(int number, siginfo_t *info, void *context) {
  const int error = errno;
  size_t i = 0;
  while (i + 1 < std::size(kSignals) && kSignals[i].number != number)
    ++i;
  if (const Block *block = running) {
    running = nullptr; // only once
    say(*block, kSignals[i].name, info, context);
    running = block;
  }
  const struct sigaction &previous = Handlers::instance().previous[i];
  errno = error;
  if (previous.sa_flags & SA_SIGINFO)
    return previous.sa_sigaction(number, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
    return previous.sa_handler(number);
  const bool sent = info->si_code <= 0;
  if (sent && previous.sa_handler == SIG_IGN)
    return;
  // Acts as if there were no handler: after the return, a faulting instruction faults again, and a signal
  // that was sent is raised again.
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  sigaction(number, &usual, nullptr);
  if (sent)
    raise(number);
}

bool turnedOff() {
  const char *setting = std::getenv("ATTN_HOST_SIGNALS");
  return setting && std::strcmp(setting, "0") == 0;
}

} // namespace

SignalNotes::SignalNotes(bool wanted) : active(wanted && !turnedOff()) {
  if (active)
    Handlers::get().begin();
}

SignalNotes::~SignalNotes() {
  if (active)
    Handlers::get().end();
}

WatchedThread::WatchedThread(const Block &block, uint8_t *stack) {
  stack_t current = {};
  if (sigaltstack(nullptr, &current) == 0 && (current.ss_flags & SS_DISABLE)) {
    const stack_t ours = {.ss_sp = stack, .ss_flags = 0, .ss_size = kSignalStackBytes};
    ownStack = sigaltstack(&ours, nullptr) == 0;
  }
  running = &block;
}

WatchedThread::~WatchedThread() {
  running = nullptr;
  if (ownStack) {
    const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
  }
}

} // namespace attn::rt::host
