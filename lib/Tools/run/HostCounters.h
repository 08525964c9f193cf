//===- HostCounters.h - What the host device counted, told ------*- C++ -*-===//
#ifndef ATTN_TOOLS_RUN_HOSTCOUNTERS_H
#define ATTN_TOOLS_RUN_HOSTCOUNTERS_H

#include "attn_rt/host/Launch.h"

#include "llvm/Support/JSON.h"

#include <string>

namespace attn::run {

/// Null where it is not finite: JSON knows no such numbers.
llvm::json::Value number(double value);

/// "budget 1.03", and whether what was counted misses it. `holds`: whether the budget is one for this
/// problem.
std::string budgetText(double counted, double budget, bool atMost, bool holds = true);

/// "  detectors 0 races, …", a line for people.
std::string detectorsLine(const rt::host::Report &report);

/// The fields of --json that every run on the host device has, by the names that programs rely on.
void addHostCounters(llvm::json::Object &object, const rt::host::Report &report, double amplification);

} // namespace attn::run

#endif
