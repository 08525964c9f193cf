//===- BlockLog.cpp - What a block did to global memory -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "BlockLog.h"
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

} // namespace attn::rt::host
