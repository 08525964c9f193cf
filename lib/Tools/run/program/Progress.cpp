//===- Progress.cpp - A progress line -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Progress.h"

#include <chrono>
#include <cstdio>
#include <unistd.h>

using namespace attn::run;
using Clock = std::chrono::steady_clock;

Progress::Progress(std::string program) : program(std::move(program)), terminal(isatty(STDERR_FILENO)) {
  threads.start([this] { loop(); }); // without a thread nothing is printed
}

Progress::~Progress() {
  {
    std::lock_guard lock(mutex);
    stop = true;
  }
  wake.notify_all();
}

void Progress::stage(std::string next) {
  {
    std::lock_guard lock(mutex);
    text = std::move(next);
    ++generation;
  }
  wake.notify_all();
}

void Progress::print(double seconds, const std::string &what) {
  if (terminal)
    std::fprintf(stderr, "\r\033[K%s: %s … %.0f s", program.c_str(), what.c_str(), seconds);
  else
    std::fprintf(stderr, "%s: %s … %.0f s\n", program.c_str(), what.c_str(), seconds);
  std::fflush(stderr);
  shown = true;
}

void Progress::loop() {
  std::unique_lock lock(mutex);
  while (!stop) {
    unsigned current = generation;
    auto start = Clock::now();
    double pause = 1;
    while (!wake.wait_for(lock, std::chrono::duration<double>(pause),
                          [&] { return stop || generation != current; })) {
      if (!text.empty())
        print(std::chrono::duration<double>(Clock::now() - start).count(), text);
      pause = terminal ? 1 : 10;
    }
    if (terminal && shown)
      std::fputs("\r\033[K", stderr);
  }
}
