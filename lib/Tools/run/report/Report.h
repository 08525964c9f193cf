//===- Report.h - Reports of attn-run ---------------------------*- C++ -*-===//
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
  double relErr, lse, scales;
  /// Returns the limits for the problem's dtype; a score region of approximate functions has its own.
  static Tolerances of(const rt::Manifest &manifest);
};

/// The facts of a run for reports to people and programs.
struct RunRecord {
  const rt::Manifest &manifest;
  rt::Batch batch;
  rt::Plan plan;
  rt::Strategy strategy = rt::Strategy::Flatten;
  std::string device{}, deviceName{};
  double compileMs = 0;  ///< from the text to PTX, or to the machine level on the host
  double hostCodeMs = 0; ///< from the machine level to native code, on the host
  double loadMs = 0;     ///< of a file of artifacts; 0 if it was compiled
  double runMs = 0;      ///< the median of several runs
  int64_t repeats = 1;
  /// The model that predicts the time: the device's, or on the host that of the GPU planned for; null without
  /// a model.
  const rt::GpuModel *gpu = nullptr;
  std::optional<rt::host::Report> host{}; ///< of the host device
  std::optional<Comparison> comparison{}; ///< of --check
  std::string failure{};                  ///< why the result is wrong; empty if it is right or not checked

  double amplification() const;
  /// Returns the limit of amplification if every length is at least 512: the cache is read once for each tile
  /// of rows.
  double amplificationBudget() const;
  /// Returns why budgets do not hold, as "is for lengths from 512 on"; empty if they do. The budget of
  /// sectors also needs heads of whole sectors.
  std::string withoutBudgets() const;
  std::string withoutSectorBudget() const;
  /// Returns the budgets that hold and were missed, by the names of the counters in --json.
  std::vector<std::string> missedBudgets() const;
};

/// Returns a few lines for people.
std::string summaryText(const RunRecord &record);

/// Returns the object of --json. Numbers that are not finite are null.
std::string reportJson(const RunRecord &record);

} // namespace attn::run

#endif
