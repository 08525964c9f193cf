//===- Launches.cpp - What the manifest says of launches and results ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "artifact/ManifestJson.h"

#include <algorithm>
#include <set>

namespace attn::rt {

namespace {

/// The grid of an operation on a cache: the rows that it is given.
constexpr std::string_view givenRows = "rows";
constexpr std::string_view whenWords[] = {"always", "filled"};

/// Checks that a launch's kernels fit its grid and each other.
void checkLaunch(const Manifest &m, const LaunchInfo &launch, const Cursor &cursor) {
  if (launch.grid.has_value() != m.hasPlan())
    cursor["grid"].expected(m.hasPlan() ? "an array of the attention's plan"
                                        : "\"rows\", which operations on a cache are given");
  if (const size_t planned = m.plannedKernels().size();
      launch.kernels.size() != 1 && launch.kernels.size() != planned)
    cursor["kernels"].fail("expected one kernel, or one for each of the " + std::to_string(planned) +
                           " among which plans choose, got " + std::to_string(launch.kernels.size()));
  const std::vector<Cursor> names = cursor["kernels"].elements();
  // A launch with a block for each element is over one of these arrays.
  constexpr PlanArray ofBlocks[] = {PlanArray::Starts, PlanArray::TokenTasks, PlanArray::TokenSums,
                                    PlanArray::ScoreTasks};
  const bool walks =
      std::none_of(std::begin(ofBlocks), std::end(ofBlocks), [&](PlanArray of) { return launch.grid == of; });
  for (size_t i = 0; i < launch.kernels.size() && !cursor.failed(); ++i) {
    const KernelInfo &kernel = m.kernels[static_cast<size_t>(launch.kernels[i])];
    if (kernel.role != m.kernels[static_cast<size_t>(launch.kernels[0])].role)
      names[i].fail("kernel '" + kernel.name + "' is of another role than the first");
    if (walks != (kernel.rowsPerWarp > 0))
      names[i].fail("kernel '" + kernel.name + "' " + (walks ? "has" : "walks and has no") +
                    " tiles: it cannot be launched over '" + std::string(launch.gridName()) + "'");
  }
}

} // namespace

std::string_view LaunchInfo::gridName() const { return grid ? planArrayName(*grid) : givenRows; }

Result<std::optional<PlanArray>> parseGrid(std::string_view name) {
  const std::optional<PlanArray> array = findPlanArray(name);
  if (!array && name != givenRows)
    return inputError("unknown grid '" + std::string(name) + "': expected an array of a plan, or \"" +
                      std::string(givenRows) + '"');
  return array;
}

Json launchToJson(const Manifest &m, const LaunchInfo &launch) {
  Json json{{"kernels", Json::array()},
            {"grid", launch.gridName()},
            {"when", whenWords[launch.onlyIfFilled]},
            {"overlaps_previous", launch.overlapsPrevious}};
  for (int kernel : launch.kernels)
    json["kernels"].push_back(m.kernels[static_cast<size_t>(kernel)].name);
  return json;
}

LaunchInfo readLaunch(const Manifest &m, const Cursor &cursor) {
  LaunchInfo launch;
  for (const Cursor &entry : cursor["kernels"].elements()) {
    const std::string name = entry.string();
    if (const KernelInfo *kernel = m.findKernel(name))
      launch.kernels.push_back(static_cast<int>(kernel - m.kernels.data()));
    else
      entry.fail("unknown kernel '" + name + "'");
  }
  if (launch.kernels.empty())
    cursor["kernels"].expected("at least one kernel");
  if (auto grid = parseGrid(cursor["grid"].string()))
    launch.grid = *grid;
  else
    cursor["grid"].fail(grid.error().message);
  launch.onlyIfFilled = cursor["when"].oneOf(whenWords) != 0;
  launch.overlapsPrevious = cursor["overlaps_previous"].boolean();
  return launch;
}

void checkLaunches(const Manifest &m, const Cursor &root) {
  const std::vector<Cursor> launches = root["launches"].elements();
  std::set<int> launched;
  for (size_t i = 0; i < m.launches.size() && !root.failed(); ++i) {
    checkLaunch(m, m.launches[i], launches[i]);
    launched.insert(m.launches[i].kernels.begin(), m.launches[i].kernels.end());
  }
  for (size_t k = 0; k < m.kernels.size(); ++k)
    if (!launched.contains(static_cast<int>(k)))
      root["launches"].fail("kernel '" + m.kernels[k].name + "' is in none of them");
  if (!m.hasPlan())
    return;
  // Plans have tasks and, except for gradients, may have partial rows.
  for (PlanArray array : {PlanArray::Starts, PlanArray::MergeRows})
    if (!m.findLaunch(array) && !(array == PlanArray::MergeRows && m.isBackward()))
      root["launches"].fail("expected one over '" + std::string(planArrayName(array)) + "'");
}

Json resultToJson(const ResultInfo &result) {
  return {{"name", result.name}, {"dtype", dtypeName(result.dtype)}, {"dims", dimsToJson(result.dims)}};
}

ResultInfo readResult(const Cursor &cursor) {
  return {cursor["name"].string(), readDType(cursor["dtype"]), readDims(cursor["dims"])};
}

void checkResults(const Manifest &m, const Cursor &root) {
  const std::vector<Cursor> results = root["results"].elements();
  std::set<std::string> names, known{"rows"};
  if (m.rowCopy())
    known.insert("layers");
  for (const Argument &argument : m.arguments) {
    names.insert(argument.name);
    if (argument.role == Argument::Role::KV && m.walksTokens())
      for (StoreSize size : storeOf(argument).sizes())
        known.insert(argument.name + "." + std::string(sizeName(size)));
  }
  for (size_t i = 0; i < m.results.size() && !root.failed(); ++i) {
    const ResultInfo &result = m.results[i];
    if (!names.insert(result.name).second)
      results[i]["name"].fail("an argument or another result is named '" + result.name + "'");
    for (size_t d = 0; d < result.dims.size(); ++d)
      if (const std::string &name = result.dims[d].name; !name.empty() && !known.contains(name))
        results[i]["dims"].elements()[d].fail("unknown dimension '" + name + "' of a result");
  }
}

} // namespace attn::rt
