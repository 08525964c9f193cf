//===- HostCounters.h - What the host device counted, told ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_REPORT_HOSTCOUNTERS_H
#define ATTN_TOOLS_RUN_REPORT_HOSTCOUNTERS_H

#include "attn_rt/host/Launch.h"

#include "llvm/Support/JSON.h"

#include <string>

namespace attn::run {

/// Null where it is not finite: JSON knows no such numbers.
llvm::json::Value number(double value);

/// "budget 1.03", and where what was counted misses it that, or why the budget does not hold here.
std::string budgetText(double counted, double budget, bool atMost, const std::string &without = "");

/// "  detectors 0 races, …", a line for people.
std::string detectorsLine(const rt::host::Report &report);

/// The fields of --json that every run on the host device has, by the names that programs rely on.
void addHostCounters(llvm::json::Object &object, const rt::host::Report &report, double amplification);

} // namespace attn::run

#endif
