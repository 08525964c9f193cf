//===- Report.cpp - Figures of a workload, as text, JSON and SVG ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace attn::plan {

namespace {

using Json = nlohmann::ordered_json;

__attribute__((format(printf, 1, 2))) std::string format(const char *pattern, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, pattern);
  vsnprintf(buffer, sizeof(buffer), pattern, arguments);
  va_end(arguments);
  return buffer;
}

/// Returns decimal work tiles, as papers print them.
std::string bytesText(int64_t bytes) {
  const char *workTiles[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  auto value = static_cast<double>(bytes);
  size_t workTile = 0;
  for (; value >= 1000 && workTile + 1 < std::size(workTiles); ++workTile)
    value /= 1000;
  return format(workTile ? "%.2f %s" : "%.0f %s", value, workTiles[workTile]);
}

std::string secondsText(double seconds) {
  return seconds < 1e-3 ? format("%.1f us", seconds * 1e6)
         : seconds < 1  ? format("%.2f ms", seconds * 1e3)
                        : format("%.2f s", seconds);
}

std::string nameOf(rt::Strategy strategy) {
  return std::string(rt::strategyNames[static_cast<size_t>(strategy)]);
}

bool addScaled(int64_t &sum, int64_t value, int64_t times) {
  int64_t product = 0;
  return !__builtin_mul_overflow(value, times, &product) && !__builtin_add_overflow(sum, product, &sum);
}

Json statsJson(const rt::ForestStats &stats) {
  Json json;
  json["kv_bytes"] = stats.kvBytes;
  json["partial_bytes"] = stats.partialBytes;
  json["metadata_bytes"] = stats.metadataBytes;
  json["query_bytes"] = stats.queryBytes;
  json["output_bytes"] = stats.outputBytes;
  json["tasks"] = stats.tasks;
  json["cuts"] = stats.cuts;
  json["tiles"] = stats.tiles;
  json["max_tiles"] = stats.maxTiles;
  json["flops"] = stats.flops;
  json["roofline_seconds"] = stats.rooflineSeconds;
  json["estimated_seconds"] = stats.estimatedSeconds;
  return json;
}

Json figuresJson(const Figures &figures) {
  Json json = statsJson(figures.sum);
  json["balance"] = figures.balance();
  json["mean_tiles"] = figures.meanTiles;
  json["worst_balance"] = figures.worstBalance;
  json["worst_excess_tiles"] = figures.worstExcess;
  json["longest_step"] = figures.longest;
  Json &steps = json["steps"] = Json::array();
  for (const rt::ForestStats &stats : figures.steps) {
    Json step = statsJson(stats);
    step["balance"] = stats.balance();
    step["mean_tiles"] = stats.meanTiles();
    step["used_blocks"] = stats.usedBlocks;
    steps.push_back(std::move(step));
  }
  return json;
}

} // namespace

rt::Result<Figures> measure(const rt::Workload &workload, const rt::ForestOptions &options) {
  Figures figures{options.strategy, {}, 0, 1, 0, 0, {}};
  rt::ForestPlanner planner(workload, options);
  for (size_t s = 0; s < workload.steps.size(); ++s) {
    const std::string where = "steps[" + std::to_string(s) + "]: ";
    const rt::WorkloadStep &step = workload.steps[s];
    rt::Result<rt::ForestStats> planned = planner.plan(step.nodes);
    if (!planned)
      return rt::inputError(where + planned.error().message);
    const rt::ForestStats &stats = *planned;
    const int64_t times = step.repeat * workload.layers;
    rt::ForestStats &sum = figures.sum;
    for (auto field :
         {&rt::ForestStats::kvBytes, &rt::ForestStats::partialBytes, &rt::ForestStats::metadataBytes,
          &rt::ForestStats::queryBytes, &rt::ForestStats::outputBytes, &rt::ForestStats::tasks,
          &rt::ForestStats::cuts, &rt::ForestStats::tiles, &rt::ForestStats::maxTiles})
      if (!addScaled(sum.*field, stats.*field, times))
        return rt::inputError(where + "the sums up to here exceed 63 bits");
    const auto scale = static_cast<double>(times);
    sum.flops += stats.flops * scale;
    sum.rooflineSeconds += stats.rooflineSeconds * scale;
    sum.estimatedSeconds += stats.estimatedSeconds * scale;
    figures.meanTiles += stats.meanTiles() * scale;
    figures.worstBalance = std::max(figures.worstBalance, stats.balance());
    figures.worstExcess =
        std::max(figures.worstExcess, static_cast<double>(stats.maxTiles) - stats.meanTiles());
    figures.steps.push_back(stats);
    if (stats.estimatedSeconds > figures.steps[figures.longest].estimatedSeconds)
      figures.longest = s;
  }
  return figures;
}

std::string tableText(const rt::Workload &workload, const std::vector<Figures> &all, int blocks) {
  const rt::GpuModel &gpu = rt::defaultGpu();
  std::string text =
      format("%zu step%s, %d layer%s, %d query heads on %d KV heads of %d, %d blocks\n"
             "roofline: %s, %.2f TB/s, %.0f TFLOP/s\n\n",
             workload.steps.size(), workload.steps.size() == 1 ? "" : "s", workload.layers,
             workload.layers == 1 ? "" : "s", workload.qHeads, workload.kvHeads, workload.dim, blocks,
             std::string(gpu.name).c_str(), gpu.bytesPerSecond / 1e12, gpu.flopsPerSecond / 1e12);
  text += format("%-14s%12s%12s%12s%10s%10s%12s%12s\n", "strategy", "K/V", "partials", "metadata", "balance",
                 "worst", "roofline", "estimate");
  for (const Figures &figures : all)
    text += format("%-14s%12s%12s%12s%10.3f%10.3f%12s%12s\n", nameOf(figures.strategy).c_str(),
                   bytesText(figures.sum.kvBytes).c_str(), bytesText(figures.sum.partialBytes).c_str(),
                   bytesText(figures.sum.metadataBytes).c_str(), figures.balance(), figures.worstBalance,
                   secondsText(figures.sum.rooflineSeconds).c_str(),
                   secondsText(figures.sum.estimatedSeconds).c_str());
  return text + "\nestimate: the roofline, or the block with the most tiles at its share of the GPU\n";
}

std::string jsonText(const rt::Workload &workload, const std::vector<Figures> &all, size_t main, int blocks) {
  const rt::GpuModel &gpu = rt::defaultGpu();
  Json root;
  root["strategy"] = nameOf(all[main].strategy);
  root["blocks"] = blocks;
  root["layers"] = workload.layers;
  root["gpu"] = {{"name", std::string(gpu.name)},
                 {"bytes_per_second", gpu.bytesPerSecond},
                 {"flops_per_second", gpu.flopsPerSecond}};
  root["tile"] = {{"keys", rt::forestTileKeys}, {"rows", rt::forestTileRows}};
  root.update(figuresJson(all[main]));
  if (all.size() > 1)
    for (const Figures &figures : all) {
      Json figure = figuresJson(figures);
      figure.erase("steps");
      root["strategies"][nameOf(figures.strategy)] = std::move(figure);
    }
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace attn::plan
