//===- HostCounters.h - Counters of the host device as text -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_REPORT_HOSTCOUNTERS_H
#define ATTN_TOOLS_RUN_REPORT_HOSTCOUNTERS_H

#include "attn_rt/host/Launch.h"

#include "llvm/Support/JSON.h"

#include <string>

namespace attn::run {

/// Returns a JSON number; null if it is not finite, which JSON cannot express.
llvm::json::Value number(double value);

/// Returns "budget 1.03", with a remark if the count misses it, or why the budget does not hold.
std::string budgetText(double counted, double budget, bool atMost, const std::string &without = "");

/// Returns "  detectors 0 races, …", a line for people.
std::string detectorsLine(const rt::host::Report &report);

/// Adds the fields of --json that every run on the host device has, by the names that programs rely on.
void addHostCounters(llvm::json::Object &object, const rt::host::Report &report, double amplification);

} // namespace attn::run

#endif
