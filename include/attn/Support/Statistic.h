//===- Statistic.h - Counters of passes -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TableGen declares the counters of a pass (`let statistics`). In an LLVM without assertions, such as
// Debian's, MLIR's own counters are empty classes and its report has no lines. So declarations are generated
// with counters of this type (attn_pass_decls).
//===----------------------------------------------------------------------===//
#ifndef ATTN_SUPPORT_STATISTIC_H
#define ATTN_SUPPORT_STATISTIC_H

#include "mlir/Pass/Pass.h"

#include <atomic>

namespace mlir::attn {

/// A counter of a pass, shared by all instances of the pass in this process.
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

/// Prints all counters so far, by the passes' flags. Passes without counts have no lines.
void printStatistics(raw_ostream &out);

} // namespace mlir::attn

#endif
