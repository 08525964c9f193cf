//===- HostCounters.cpp - Counters of the host device as text -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "HostCounters.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace attn;
using rt::host::FindingKind;

llvm::json::Value run::number(double value) {
  return std::isfinite(value) ? llvm::json::Value(value) : llvm::json::Value(nullptr);
}

std::string run::budgetText(double counted, double budget, bool atMost, const std::string &without) {
  const bool missed = atMost ? counted > budget : counted < budget;
  return llvm::formatv("budget {0:f2}{1}", budget,
                       !missed           ? ""
                       : without.empty() ? ": missed"
                                         : " " + without);
}

std::string run::detectorsLine(const rt::host::Report &report) {
  const uint64_t races = report.total(FindingKind::Race);
  return llvm::formatv("  detectors {0} race{1}, {2} uninitialized, {3} out of bounds\n", races,
                       races == 1 ? "" : "s", report.total(FindingKind::Uninitialized),
                       report.total(FindingKind::OutOfBounds));
}

void run::addHostCounters(llvm::json::Object &object, const rt::host::Report &report, double amplification) {
  const rt::host::Counters &c = report.counters;
  auto count = [](uint64_t value) { return static_cast<int64_t>(value); };
  object["races"] = count(report.total(FindingKind::Race));
  object["uninitialized"] = count(report.total(FindingKind::Uninitialized));
  object["out_of_bounds"] = count(report.total(FindingKind::OutOfBounds));
  object["misaligned"] = count(report.total(FindingKind::Misaligned));
  object["sync_errors"] = count(report.total(FindingKind::Sync) + report.total(FindingKind::Deadlock));
  object["bytes_read"] = count(c.bytesRead);
  object["bytes_written"] = count(c.bytesWritten);
  object["bytes_partials"] = count(c.bytesPartials);
  object["amplification"] = number(amplification);
  object["sector_efficiency"] = number(c.sectorEfficiency());
  object["bank_conflicts"] = number(c.bankConflicts());
  object["flops"] = count(c.flops);
}
