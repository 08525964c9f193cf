//===- GridLog.cpp - Races between blocks ---------------------------------===//
#include "GridLog.h"
#include "Checker.h"
#include <algorithm>
#include <cstring>

namespace attn::rt::host {

void WriteSet::build(const Grid &grid) {
  everything = grid.kernel.writesAnywhere;
  list.clear();
  for (uint32_t parameter : grid.kernel.writtenParameters) {
    uint64_t words[2]; // a pointer; or a tensor map, which is longer and begins with a mark
    std::memcpy(words, grid.args[parameter], sizeof *words);
    if (words[0] == TensorMapBits::kMark)
      std::memcpy(words, grid.args[parameter], sizeof words);
    if (const Allocation *a = grid.memory.find(words[words[0] == TensorMapBits::kMark]))
      list.push_back(a);
  }
}

void BlockLog::reset(const Grid &g, const WriteSet &w) {
  grid = &g;
  writes = &w;
  last = nullptr;
  ranges.clear();
  compactAt = 1 << 16;
}

const Allocation *BlockLog::lookUp(uint64_t address) {
  if (!last || !last->contains(address, 1)) {
    last = grid->memory.find(address);
    lastMayWrite = last && writes->mayWrite(last);
  }
  return last;
}

bool BlockLog::partials(uint64_t address) {
  const Allocation *a = lookUp(address);
  return a && a->tag == Tag::Partials;
}

void BlockLog::add(uint64_t start, uint64_t end, uint32_t op, uint32_t thread, const HostOpInfo &info) {
  lookUp(start);
  if (!lastMayWrite)
    return;
  LoggedRange::Kind kind = info.access == Access::Store    ? LoggedRange::Write
                           : info.access == Access::Atomic ? LoggedRange::Atomic
                           : info.invariant                ? LoggedRange::NonCoherent
                                                           : LoggedRange::Read;
  ranges.push_back({start, end, op, thread, kind});
  if (ranges.size() >= compactAt)
    compact();
}

void BlockLog::compact() {
  std::sort(ranges.begin(), ranges.end(), [](const LoggedRange &a, const LoggedRange &b) {
    return std::tie(a.kind, a.op, a.start, a.end, a.thread) <
           std::tie(b.kind, b.op, b.start, b.end, b.thread);
  });
  size_t kept = 0;
  for (const LoggedRange &r : ranges) {
    if (kept) {
      LoggedRange &back = ranges[kept - 1];
      if (back.kind == r.kind && back.op == r.op && r.start <= back.end) {
        back.end = std::max(back.end, r.end);
        continue;
      }
    }
    ranges[kept++] = r;
  }
  ranges.resize(kept);
  compactAt = std::max<size_t>(1 << 16, 2 * kept);
}

std::vector<LoggedRange> BlockLog::take() {
  compact();
  return std::move(ranges);
}

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
  std::vector<const Entry *> writes, reads; // those that may still overlap
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
