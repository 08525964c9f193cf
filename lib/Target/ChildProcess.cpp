//===- ChildProcess.cpp - Child processes with a time limit ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ChildProcess.h"

#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace mlir::attn;
using Clock = std::chrono::steady_clock;

extern char **environ;

namespace {

/// The arguments of posix_spawn, freed at the end.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnPlan(const std::string &log) {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    // The child gets default signals, whatever this thread blocks and the process ignores, and a process
    // group that can be killed.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

/// Returns a descriptor that becomes readable when the process ends; -1 if the system has none (before Linux
/// 5.3).
int openProcess(pid_t child) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, child, 0));
#else
  return -1;
#endif
}

/// Whether the child ended in time; it is not reaped.
bool endsBefore(pid_t child, Clock::time_point deadline, bool limited) {
  const int descriptor = openProcess(child);
  auto pause = std::chrono::microseconds(200);
  for (;;) {
    siginfo_t ended = {};
    const int asked = waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
    const bool over = (asked == 0 && ended.si_pid == child) || (asked != 0 && errno != EINTR);
    const auto left = deadline - Clock::now();
    if (over || (limited && left <= Clock::duration::zero())) {
      if (descriptor >= 0)
        close(descriptor);
      return over;
    }
    if (descriptor >= 0) {
      const auto most = std::chrono::milliseconds(1000);
      auto wait = limited ? std::min(std::chrono::ceil<std::chrono::milliseconds>(left), most) : most;
      pollfd waited = {descriptor, POLLIN, 0};
      poll(&waited, 1, static_cast<int>(wait.count()));
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(10000));
    }
  }
}

} // namespace

ChildEnd mlir::attn::runChild(llvm::StringRef program, llvm::ArrayRef<llvm::StringRef> arguments,
                              llvm::StringRef log, double seconds) {
  llvm::SmallVector<std::string> texts(arguments.begin(), arguments.end());
  llvm::SmallVector<char *> pointers;
  for (std::string &text : texts)
    pointers.push_back(text.data());
  pointers.push_back(nullptr);
  SpawnPlan plan(log.str());
  pid_t child = 0;
  ChildEnd end;
  if (int error = posix_spawn(&child, program.str().c_str(), &plan.files, &plan.attributes, pointers.data(),
                              environ)) {
    end.problem = "cannot run " + program.str() + ": " + std::strerror(error);
    return end;
  }

  const bool limited = seconds > 0;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(limited ? std::min(seconds, 1e9) : 0.0));
  const bool inTime = endsBefore(child, deadline, limited);
  if (!inTime)
    kill(-child, SIGKILL);
  int status = 0;
  pid_t reaped = 0;
  do
    reaped = waitpid(child, &status, 0);
  while (reaped < 0 && errno == EINTR);
  if (!inTime)
    end.kind = ChildEnd::TooLate;
  else if (reaped < 0)
    end.problem = "cannot tell how " + program.str() + " ended: " + std::strerror(errno) +
                  " (does this process ignore SIGCHLD, or wait for children that are not its own?)";
  else if (WIFEXITED(status))
    end.kind = ChildEnd::Exited, end.number = WEXITSTATUS(status);
  else
    end.kind = ChildEnd::Signalled, end.number = WTERMSIG(status);
  return end;
}
