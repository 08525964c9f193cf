//===- Statistic.h - What passes count --------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TableGen declares what a pass counts (`let statistics`). MLIR's own counters are empty
// classes, and its report has no lines, in an LLVM without assertions, as Debian's is. So
// declarations are generated with counters of this type (attn_pass_decls).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_SUPPORT_STATISTIC_H
#define ATTN_SUPPORT_STATISTIC_H

#include "mlir/Pass/Pass.h"

#include <atomic>

namespace mlir::attn {

/// One number of a pass. All instances of the pass in this process add to the same.
class Statistic {
public:
  Statistic(Pass *owner, StringRef name, StringRef description)
      : total(totalOf(owner->getArgument(), name, description)) {}
  Statistic &operator+=(uint64_t count) { return total += count, *this; }
  Statistic &operator++() { return *this += 1; }

private:
  static std::atomic<uint64_t> &totalOf(StringRef pass, StringRef name, StringRef description);

  std::atomic<uint64_t> &total;
};

/// Prints what has been counted so far, by the passes' flags. Passes that counted nothing have no lines.
void printStatistics(raw_ostream &out);

} // namespace mlir::attn

#endif
