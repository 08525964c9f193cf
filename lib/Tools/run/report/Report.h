//===- Report.h - What attn-run says about a run ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_REPORT_REPORT_H
#define ATTN_TOOLS_RUN_REPORT_REPORT_H

#include "Check.h"

#include "attn_rt/batch/Batch.h"
#include "attn_rt/host/Launch.h"
#include "attn_rt/plan/Plan.h"

#include <optional>
#include <string>

namespace attn::run {

/// Limits of --check.
struct Tolerances {
  double relErr, lse;
  /// By the problem's dtype; a score region of approximate functions declares its own.
  static Tolerances of(const rt::Manifest &manifest);
};

/// One run, as far as it is told to people and to programs.
struct RunRecord {
  const rt::Manifest &manifest;
  rt::Batch batch;
  rt::Plan plan;
  rt::Strategy strategy = rt::Strategy::Flatten;
  std::string device{}, deviceName{};
  double compileMs = 0;  ///< from the text to what the device loads: PTX, or the machine level for host
  double hostCodeMs = 0; ///< from there to native code, on host
  double loadMs = 0;     ///< of a file of artifacts; 0 where it was compiled
  double runMs = 0;      ///< the median where there were several runs
  int64_t repeats = 1;
  /// Whose model predicts the time: the device's, on host that of the GPU planned for; null where there is
  /// none.
  const rt::GpuModel *gpu = nullptr;
  std::optional<rt::host::Report> host{}; ///< of the host device
  std::optional<Comparison> comparison{}; ///< of --check
  std::string failure{}; ///< why the result is not right; empty where it is, or was not checked

  double amplification() const;
  /// What amplification may be where every length is at least 512: the cache is read once for each tile of
  /// rows.
  double amplificationBudget() const;
  /// Why budgets do not hold, as "is for lengths from 512 on"; empty where they do. That of sectors is for
  /// heads of whole sectors, too.
  std::string withoutBudgets() const;
  std::string withoutSectorBudget() const;
  /// The budgets that hold and were missed, by the names that --json gives to what is counted.
  std::vector<std::string> missedBudgets() const;
};

/// A few lines for people.
std::string summaryText(const RunRecord &record);

/// The object of --json. Numbers that are not finite are null.
std::string reportJson(const RunRecord &record);

} // namespace attn::run

#endif
