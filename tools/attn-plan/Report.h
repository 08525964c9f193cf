//===- Report.h - Figures of a workload, as text, JSON and SVG --*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_PLAN_REPORT_H
#define ATTN_TOOLS_PLAN_REPORT_H

#include "Options.h"

namespace attn::plan {

/// One strategy over a whole workload: sums over steps, layers and repeats.
struct Figures {
  rt::Strategy strategy;
  rt::ForestStats sum;                ///< tiles, maxTiles and meanTiles are summed like bytes
  double meanTiles = 0;               ///< over the blocks in use
  double worstBalance = 1;            ///< of any step
  double worstExcess = 0;             ///< of any step: most tiles of a block - mean
  size_t longest = 0;                 ///< the step that takes longest
  std::vector<rt::ForestStats> steps; ///< of one layer, one repeat

  double balance() const { return meanTiles > 0 ? static_cast<double>(sum.maxTiles) / meanTiles : 1; }
};

rt::Result<Figures> measure(const rt::Workload &workload, const rt::ForestOptions &options);

std::string tableText(const rt::Workload &workload, const std::vector<Figures> &all, int blocks);
/// Returns the figures of all[main] at the top, and those of each strategy under "strategies".
std::string jsonText(const rt::Workload &workload, const std::vector<Figures> &all, size_t main, int blocks);
/// Draws blocks x time, coloured by node.
std::string svgText(const rt::Workload &workload, size_t step, const rt::ForestOptions &options);

} // namespace attn::plan

#endif
