//===- Statistic.cpp - Counters of passes ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Support/Statistic.h"

#include <map>
#include <mutex>

using namespace mlir;
using namespace mlir::attn;

namespace {
struct Entry {
  std::string description;
  std::atomic<uint64_t> total = 0;
};

/// Entries by pass and name. Their addresses are stable: statistics refer to them.
struct Totals {
  std::mutex mutex;
  std::map<std::string, std::map<std::string, Entry>> ofPasses;
};

Totals &totals() {
  static Totals all;
  return all;
}
} // namespace

std::atomic<uint64_t> &Statistic::totalOf(StringRef pass, StringRef name, StringRef description) {
  std::lock_guard lock(totals().mutex);
  Entry &entry = totals().ofPasses[pass.str()][name.str()];
  entry.description = description.str();
  return entry.total;
}

void mlir::attn::printStatistics(raw_ostream &out) {
  std::lock_guard lock(totals().mutex);
  for (const auto &[pass, entries] : totals().ofPasses) {
    if (llvm::all_of(entries, [](const auto &named) { return named.second.total == 0; }))
      continue;
    out << pass << "\n";
    for (const auto &[name, entry] : entries)
      out << "  (S) " << entry.total << " " << name << " - " << entry.description << "\n";
  }
}
