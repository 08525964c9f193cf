//===- Requests.cpp - Sectors and wavefronts ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Requests.h"
#include <algorithm>

namespace attn::rt::host {

void Requests::reset(const Block &block, BlockLog &blockLog) {
  grid = block.grid;
  log = &blockLog;
  counters = {};
  opCount = static_cast<unsigned>(grid->kernel.ops.size());
  size_t need = size_t(opCount) * block.warpCount;
  if (entries.size() < need)
    entries.resize(need);
  // An aborted block leaves its requests; they are cleared here.
  for (auto &list : touched) {
    for (uint32_t index : list) {
      entries[index].used = 0;
      std::fill(std::begin(entries[index].count), std::end(entries[index].count), 0u);
    }
    list.clear();
  }
}

uint32_t Requests::add(const Lane &lane, uint32_t op, const void *address, uint32_t bytes, uint32_t offset,
                       uint32_t sharedBytes) {
  uint32_t index = lane.warp->index * opCount + op;
  Entry &entry = entries[index];
  uint32_t n = entry.count[lane.index]++;
  if (n >= entry.used) {
    if (entry.used == 0) {
      entry.op = op;
      touched[lane.warp->index].push_back(index);
    }
    if (entry.requests.size() <= n)
      entry.requests.emplace_back();
    entry.used = n + 1;
    entry.requests[n].global = entry.requests[n].shared = 0;
  }
  Request &request = entry.requests[n];
  if (address && bytes) {
    request.address[lane.index] = reinterpret_cast<uintptr_t>(address);
    request.bytes[lane.index] = static_cast<uint8_t>(bytes);
    request.global |= lane.bit();
  }
  if (offset != ~0u && sharedBytes) {
    request.offset[lane.index] = offset;
    request.sharedBytes[lane.index] = static_cast<uint8_t>(sharedBytes);
    request.shared |= lane.bit();
  }
  return n;
}

void Requests::flush(const Warp &warp) {
  for (uint32_t index : touched[warp.index]) {
    Entry &entry = entries[index];
    for (uint32_t n = 0; n < entry.used; ++n) {
      const Request &request = entry.requests[n];
      if (request.global)
        priceGlobal(request, entry.op, warp);
      if (request.shared)
        priceShared(request);
    }
    entry.used = 0;
    std::fill(std::begin(entry.count), std::end(entry.count), 0u);
  }
  touched[warp.index].clear();
}

void Requests::priceGlobal(const Request &request, uint32_t op, const Warp &warp) {
  const HostOpInfo &info = grid->kernel.ops[op];
  struct Piece {
    uint64_t start, end;
  } pieces[kLanes];
  unsigned n = 0;
  bool sorted = true;
  for (uint32_t lanes = request.global; lanes; lanes &= lanes - 1) {
    unsigned l = static_cast<unsigned>(std::countr_zero(lanes));
    pieces[n] = {request.address[l], request.address[l] + request.bytes[l]};
    sorted &= n == 0 || pieces[n - 1].start <= pieces[n].start;
    ++n;
  }
  if (!sorted)
    std::sort(pieces, pieces + n, [](const Piece &a, const Piece &b) { return a.start < b.start; });
  uint64_t distinct = 0, sectors = 0, lastSector = ~0ull;
  Piece run = pieces[0];
  auto close = [&] {
    distinct += run.end - run.start;
    uint64_t firstSector = run.start / 32, endSector = (run.end - 1) / 32;
    sectors += endSector - firstSector + (firstSector != lastSector);
    lastSector = endSector;
    log->add(run.start, run.end, op, warp.index * kLanes, info);
  };
  for (unsigned i = 1; i < n; ++i) {
    if (pieces[i].start <= run.end) {
      run.end = std::max(run.end, pieces[i].end);
    } else {
      close();
      run = pieces[i];
    }
  }
  close();
  counters.requests += 1;
  if (info.access == Access::Atomic) {
    counters.bytesAtomic += distinct;
    return;
  }
  (info.access == Access::Store ? counters.bytesWritten : counters.bytesRead) += distinct;
  counters.sectorBytesUsed += distinct;
  counters.sectorBytesSpanned += 32 * sectors;
  if (log->partials(pieces[0].start))
    counters.bytesPartials += distinct;
}

void Requests::bulkRun(uint64_t start, uint64_t end, uint32_t op, uint32_t thread, bool writes) {
  (writes ? counters.bytesWritten : counters.bytesRead) += end - start;
  counters.sectorBytesUsed += end - start;
  counters.sectorBytesSpanned += 32 * ((end + 31) / 32 - start / 32);
  log->add(start, end, op, thread, grid->kernel.ops[op]);
  if (log->partials(start))
    counters.bytesPartials += end - start;
}

void Requests::priceShared(const Request &request) {
  // The hardware serves 4-byte accesses of all lanes together, 8-byte ones of 16 lanes, 16-byte ones of 8.
  unsigned widest = 0;
  for (uint32_t lanes = request.shared; lanes; lanes &= lanes - 1)
    widest = std::max<unsigned>(widest, request.sharedBytes[std::countr_zero(lanes)]);
  unsigned perPhase = widest <= 4 ? 32 : widest <= 8 ? 16 : 8;
  for (unsigned first = 0; first < kLanes; first += perPhase) {
    uint32_t words[kLanes * 4];
    unsigned n = 0, perBank[32] = {}, worst = 0;
    for (unsigned l = first; l < first + perPhase; ++l) {
      if (!(request.shared >> l & 1))
        continue;
      uint32_t begin = request.offset[l] / 4, end = (request.offset[l] + request.sharedBytes[l] + 3) / 4;
      for (uint32_t word = begin; word < end && n < kLanes * 4; ++word) {
        // A word requested twice is broadcast. Only words of the same bank can be equal.
        bool known = false;
        if (perBank[word % 32])
          known = std::find(words, words + n, word) != words + n;
        if (known)
          continue;
        words[n++] = word;
        worst = std::max(worst, ++perBank[word % 32]);
      }
    }
    counters.wavefronts += worst;
    counters.wavefrontsNeeded += worst != 0;
  }
}

uint32_t Requests::wavefrontsOf(const uint32_t *offsets) {
  // Eight chunks in different 16-byte columns of 128 bytes are served together.
  uint32_t groups = 0;
  for (uint32_t r = 0; r < 8; ++r)
    groups |= 1u << (offsets[r] / 16 % 8);
  if (groups == 255)
    return 1;
  uint32_t worst = 0, seen[8], n = 0, perGroup[8] = {};
  for (uint32_t r = 0; r < 8; ++r) {
    uint32_t row = offsets[r] / 16;
    if (std::find(seen, seen + n, row) != seen + n)
      continue;
    seen[n++] = row;
    worst = std::max(worst, ++perGroup[row % 8]);
  }
  return worst;
}

void Requests::matrix(const uint32_t *offsets, uint32_t rows) {
  for (uint32_t first = 0; first < rows; first += 8) {
    counters.wavefronts += wavefrontsOf(offsets + first);
    counters.wavefrontsNeeded += 1;
  }
}

} // namespace attn::rt::host
