//===- Report.cpp - What a launch found, in words -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Report.h"
#include <algorithm>

namespace attn::rt::host {

const char *toString(FindingKind kind) {
  switch (kind) {
  case FindingKind::Race:
    return "race";
  case FindingKind::Uninitialized:
    return "uninitialized";
  case FindingKind::OutOfBounds:
    return "out of bounds";
  case FindingKind::Misaligned:
    return "misaligned";
  case FindingKind::Sync:
    return "synchronization";
  case FindingKind::Deadlock:
    return "deadlock";
  }
  return "?";
}

Counters &Counters::operator+=(const Counters &o) {
  bytesRead += o.bytesRead;
  bytesWritten += o.bytesWritten;
  bytesPartials += o.bytesPartials;
  bytesAtomic += o.bytesAtomic;
  sectorBytesUsed += o.sectorBytesUsed;
  sectorBytesSpanned += o.sectorBytesSpanned;
  wavefronts += o.wavefronts;
  wavefrontsNeeded += o.wavefrontsNeeded;
  operandWavefronts += o.operandWavefronts;
  operandWavefrontsNeeded += o.operandWavefrontsNeeded;
  flops += o.flops;
  requests += o.requests;
  return *this;
}

static void keep(std::vector<Finding> &kept, Finding finding, unsigned limit) {
  for (Finding &f : kept)
    if (f.kind == finding.kind && f.kernel == finding.kernel && f.op == finding.op &&
        f.location == finding.location) {
      f.count += finding.count;
      return;
    }
  if (kept.size() < limit)
    kept.push_back(std::move(finding));
}

void addFindings(Report &report, const Grid &grid, uint64_t block,
                 const std::vector<LocalFinding> &findings) {
  for (const LocalFinding &local : findings) {
    report.totals[static_cast<size_t>(local.kind)] += local.count;
    Finding f;
    f.kind = local.kind;
    f.kernel = grid.kernel.name;
    if (local.op < grid.kernel.ops.size()) {
      f.op = grid.kernel.ops[local.op].text;
      f.location = grid.kernel.ops[local.op].location;
    }
    uint32_t x = grid.block.x, y = grid.block.y;
    f.block = {static_cast<uint32_t>(block % grid.grid.x),
               static_cast<uint32_t>(block / grid.grid.x % grid.grid.y),
               static_cast<uint32_t>(block / grid.grid.x / grid.grid.y)};
    f.thread = {local.thread % x, local.thread / x % y, local.thread / x / y};
    f.address = local.address;
    f.message = local.message;
    f.count = local.count;
    keep(report.findings, std::move(f), grid.options.maxFindings);
  }
}

bool Report::clean() const {
  return error.empty() && std::all_of(totals.begin(), totals.end(), [](uint64_t n) { return n == 0; });
}

void Report::merge(const Report &other, unsigned maxFindings) {
  for (const Finding &f : other.findings)
    keep(findings, f, maxFindings);
  for (size_t i = 0; i < totals.size(); ++i)
    totals[i] += other.totals[i];
  counters += other.counters;
  seconds += other.seconds;
  if (error.empty())
    error = other.error;
}

static std::string triple(const std::array<uint32_t, 3> &v) {
  return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
}

std::string Report::describe() const {
  if (!error.empty())
    return "error: " + error + "\n";
  std::string text;
  for (const Finding &f : findings) {
    text += (f.location.empty() ? f.kernel : f.location) + ": " + toString(f.kind) + ": " + f.message;
    if (!f.address.empty())
      text += " at " + f.address;
    text += "\n  " + f.op + "\n  first in block " + triple(f.block) + " thread " + triple(f.thread) + " of " +
            f.kernel + ", " + std::to_string(f.count) + (f.count == 1 ? " time\n" : " times\n");
  }
  return text;
}

} // namespace attn::rt::host
