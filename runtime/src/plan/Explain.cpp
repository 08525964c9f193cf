//===- Explain.cpp - A plan in words --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/plan/Plan.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace attn::rt {

namespace {

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char *pattern, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, pattern);
  vsnprintf(buffer, sizeof(buffer), pattern, arguments);
  va_end(arguments);
  return buffer;
}

std::string bytesText(double bytes) {
  const char *workTiles[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t workTile = 0;
  for (; bytes >= 1024 && workTile + 1 < std::size(workTiles); ++workTile)
    bytes /= 1024;
  return format(workTile ? "%.2f %s" : "%.0f %s", bytes, workTiles[workTile]);
}

std::string secondsText(double seconds) {
  return seconds < 1e-3 ? format("%.1f us", seconds * 1e6) : format("%.2f ms", seconds * 1e3);
}

/// Compares the tokens of heads with lengths of their own with the tokens if all were as long as the longest.
std::string raggedText(const std::string &name, const OperandBatch &operand) {
  int64_t most = 0, tokens = 0;
  for (size_t i = 0; i < operand.instances(); ++i)
    most += int64_t{operand.longest(i)} * operand.heads;
  for (int32_t length : operand.lengths)
    tokens += length;
  const auto least = std::min_element(operand.lengths.begin(), operand.lengths.end());
  const auto longest = std::max_element(operand.lengths.begin(), operand.lengths.end());
  return format("ragged    %s: heads of %d to %d tokens, %.0f %% of what longest ones would make\n",
                name.c_str(), operand.lengths.empty() ? 0 : *least, operand.lengths.empty() ? 0 : *longest,
                100.0 * static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(most, 1)));
}

/// Describes the token tasks, and how many of them are parts of one task.
std::string tokensText(const Manifest &m, const Plan &plan) {
  const LaunchInfo *launch = m.findLaunch(PlanArray::TokenTasks);
  const int32_t tile = m.kernels[static_cast<size_t>(launch->kernels.front())].rows;
  const auto cut = std::count_if(plan.tokenSums.begin(), plan.tokenSums.end(),
                                 [&](const PlanTokenSum &sum) { return sum.partial % tile == 0; });
  const long long parts = plan.partialTokens / tile, tasks = std::ssize(plan.tokenTasks);
  return format("tokens    %lld tasks of %d tokens, %lld of them cut into %lld parts\n", tasks - parts + cut,
                tile, static_cast<long long>(cut), parts);
}

} // namespace

std::string explainPlan(const Manifest &m, const Batch &batch, const Plan &plan, const GpuModel &gpu) {
  const PlanStats &s = plan.stats;
  const KernelInfo &kernel = m.kernels[static_cast<size_t>(plan.kernel)];
  const ProblemFloor floor = problemFloor(m, batch);
  const int64_t total = s.kvBytes + s.qBytes + s.metadataBytes + s.outputBytes;
  std::string text;
  text += format("kernel    %s: tiles of %d packed rows x %d keys\n", kernel.name.c_str(), kernel.rows,
                 kernel.keys);
  text += format(
      "problem   %lld rows of %zu sequences, %d query heads on %d KV heads, %d key and %d value dims\n",
      static_cast<long long>(batch.rows), batch.sequences(), m.qHeads, m.kvHeads, m.keyDim, m.valueDim);
  if (!m.headClasses.empty())
    text += "heads     " + classHeadsText(m, plan.classHeads) + "\n";
  for (size_t o = 0; o < batch.operands.size(); ++o)
    if (m.argumentOf(m.operands[o]).ragged)
      text += raggedText(m.operands[o].argument, batch.operands[o]);
  text += format("work      %lld tasks, %lld key tiles, %lld cuts, on %d of %d blocks\n",
                 static_cast<long long>(s.tasks), static_cast<long long>(s.tiles),
                 static_cast<long long>(s.cuts), s.usedBlocks, plan.blocks);
  if (!plan.tokenTasks.empty())
    text += tokensText(m, plan);
  text += format("balance   %.3f (largest share over the mean), %zu rows merged from %lld partials\n",
                 s.balance, plan.mergeRows.size(), static_cast<long long>(plan.partialRows));
  text += "bytes     K/V " + bytesText(static_cast<double>(s.kvBytes)) + ", Q " +
          bytesText(static_cast<double>(s.qBytes)) + ", tables and plan " +
          bytesText(static_cast<double>(s.metadataBytes)) + ", results " +
          bytesText(static_cast<double>(s.outputBytes)) + ", partials " +
          bytesText(static_cast<double>(s.partialBytes)) + "\n";
  text += "floor     " + bytesText(static_cast<double>(floor.bytes())) +
          format(" (the plan moves %.3f times that, partials apart)\n",
                 static_cast<double>(total) / static_cast<double>(std::max<int64_t>(floor.bytes(), 1)));
  text +=
      format("flops     %.3g, of which %.3g are neither masked nor padding\n", s.flops, floor.usefulFlops);
  const double byteSeconds = static_cast<double>(floor.bytes()) / gpu.bytesPerSecond;
  const double flopSeconds = floor.usefulFlops / gpu.flopsPerSecond;
  text +=
      "roofline  " + secondsText(std::max(byteSeconds, flopSeconds)) + " on " + std::string(gpu.name) +
      format(" (%.3g TB/s, %.0f TFLOP/s): bound by ", gpu.bytesPerSecond / 1e12, gpu.flopsPerSecond / 1e12) +
      (byteSeconds >= flopSeconds ? "memory" : "arithmetic") + "; this plan is estimated at " +
      secondsText(s.estimatedSeconds) + "\n";
  return text;
}

} // namespace attn::rt
