//===- ChildProcess.h - Child processes with a time limit -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_TARGET_CHILDPROCESS_H
#define ATTN_LIB_TARGET_CHILDPROCESS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace mlir::attn {

struct ChildEnd {
  enum Kind { Exited, Signalled, TooLate, NotRun } kind = NotRun;
  int number = 0;      ///< exit status, or signal
  std::string problem; ///< why it did not run, or why its end is unknown

  bool succeeded() const { return kind == Exited && number == 0; }
};

/// Runs a program to its end. After `seconds` (0: no limit) it is killed together with all processes that it
/// started: it leads a process group of its own. Its output goes to `log`, and its input is empty. Any number
/// of threads may call this at once: it uses no timer, handler or other shared state of the process.
ChildEnd runChild(llvm::StringRef program, llvm::ArrayRef<llvm::StringRef> arguments, llvm::StringRef log,
                  double seconds);

} // namespace mlir::attn

#endif
