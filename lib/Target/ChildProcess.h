//===- ChildProcess.h - A program that may not end --------------*- C++ -*-===//
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
  std::string problem; ///< why it was not run, or is not known how it ended

  bool succeeded() const { return kind == Exited && number == 0; }
};

/// Runs a program to its end, which has to come within so many seconds (0: whenever). Then it is killed, and
/// with it whatever it has started: it leads a process group of its own. What it writes goes to `log`; there
/// is nothing to read. Any number of threads may do this at once: no timer, handler or other thing of the
/// process is used.
ChildEnd runChild(llvm::StringRef program, llvm::ArrayRef<llvm::StringRef> arguments, llvm::StringRef log,
                  double seconds);

} // namespace mlir::attn

#endif
