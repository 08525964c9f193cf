//===- Progress.h - A progress line -----------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_PROGRAM_PROGRESS_H
#define ATTN_TOOLS_RUN_PROGRAM_PROGRESS_H

#include "attn_rt/support/Threads.h"

#include <condition_variable>
#include <mutex>
#include <string>

namespace attn::run {

/// Prints the current stage on standard error, once it has lasted a second: rewritten in place on a terminal,
/// otherwise a line now and then.
class Progress {
public:
  explicit Progress(std::string program);
  ~Progress();

  /// Begins a stage.
  void stage(std::string text);

private:
  void loop();
  void print(double seconds, const std::string &text);

  std::string program;
  std::mutex mutex;
  std::condition_variable wake;
  std::string text;
  unsigned generation = 0;
  bool stop = false;
  bool shown = false;
  bool terminal;
  rt::Threads threads;
};

} // namespace attn::run

#endif
