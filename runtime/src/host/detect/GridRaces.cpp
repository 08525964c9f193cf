//===- GridRaces.cpp - Races between blocks -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GridRaces.h"
#include "Checker.h"
#include <algorithm>

namespace attn::rt::host {

void findGridRaces(const Grid &grid, const std::vector<std::vector<LoggedRange>> &blocks,
                   std::vector<std::vector<LocalFinding>> &findings) {
  struct Entry {
    LoggedRange range;
    uint32_t block;
    bool isWrite() const { return range.kind >= LoggedRange::Write; }
  };
  std::vector<Entry> all;
  for (size_t b = 0; b < blocks.size(); ++b)
    for (const LoggedRange &r : blocks[b])
      all.push_back({r, static_cast<uint32_t>(b)});
  std::sort(all.begin(), all.end(), [](const Entry &a, const Entry &b) {
    return std::tie(a.range.start, a.block, a.range.kind, a.range.op) <
           std::tie(b.range.start, b.block, b.range.kind, b.range.op);
  });
  auto report = [&](const Entry &write, const Entry &other, uint64_t address) {
    const char *what = other.range.kind == LoggedRange::Write         ? "writes"
                       : other.range.kind == LoggedRange::Atomic      ? "updates atomically"
                       : other.range.kind == LoggedRange::NonCoherent ? "reads through the non-coherent path"
                                                                      : "reads";
    reportTo(findings[write.block], FindingKind::Race, write.range.op, write.range.thread, other.range.op,
             [&](LocalFinding &f) {
               f.address = describeGlobal(grid.memory, address, 1);
               f.message = "written without order against block " + std::to_string(other.block) + ", which " +
                           what + " the same byte: " + grid.kernel.ops[other.range.op].text;
             });
  };
  std::vector<const Entry *> writes, reads; // ranges that may still overlap
  for (const Entry &e : all) {
    auto expire = [&](std::vector<const Entry *> &list) {
      std::erase_if(list, [&](const Entry *x) { return x->range.end <= e.range.start; });
    };
    expire(writes);
    for (const Entry *w : writes) {
      bool nonCoherent = e.range.kind == LoggedRange::NonCoherent;
      if (w->block == e.block && !nonCoherent)
        continue;
      if (w->range.kind == LoggedRange::Atomic && e.range.kind == LoggedRange::Atomic)
        continue;
      report(*w, e, e.range.start);
    }
    if (!e.isWrite()) {
      reads.push_back(&e);
      continue;
    }
    expire(reads);
    for (const Entry *r : reads)
      if (r->block != e.block || r->range.kind == LoggedRange::NonCoherent)
        report(e, *r, e.range.start);
    writes.push_back(&e);
  }
}

} // namespace attn::rt::host
