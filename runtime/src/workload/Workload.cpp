//===- Workload.cpp - Decoding steps as forests, from a file --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/Workload.h"
#include "support/Json.h"

#include <algorithm>

namespace attn::rt {

namespace {

constexpr int64_t int32Limit = std::numeric_limits<int32_t>::max();

/// Refuses other keys: a misspelt or newer field must not be ignored silently.
void onlyKeys(const Cursor &object, std::initializer_list<std::string_view> keys) {
  if (!object.value().is_object())
    return object.expected("an object");
  for (const auto &[key, value] : object.value().items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      std::string list;
      for (std::string_view legal : keys)
        list += (list.empty() ? "'" : ", '") + std::string(legal) + "'";
      return object.fail("unknown field '" + key.substr(0, 64) + "', expected only " + list);
    }
}

int32_t small(const Cursor &value, int64_t low, int64_t high = int32Limit) {
  return static_cast<int32_t>(value.integer(low, high));
}

WorkloadStep readStep(const Cursor &cursor, int32_t qHeads, std::optional<Error> &error) {
  WorkloadStep step;
  onlyKeys(cursor, {"nodes", "repeat"});
  if (cursor.failed())
    return step;
  if (cursor.has("repeat"))
    step.repeat = cursor["repeat"].integer(1, int32Limit);
  const Cursor nodes = cursor["nodes"];
  if (!cursor.failed() && !nodes.value().is_array())
    nodes.expected("an array");
  else if (!cursor.failed() && nodes.value().empty())
    nodes.fail("expected at least one node, got none");
  if (cursor.failed())
    return step;
  step.nodes.reserve(nodes.value().size());
  for (size_t i = 0; i < nodes.value().size(); ++i) {
    // Makes one cursor at a time: a million paths would outweigh the nodes.
    const Cursor node(nodes.value()[i], nodes.path() + "[" + std::to_string(i) + "]", error);
    onlyKeys(node, {"parent", "tokens", "rows"});
    if (cursor.failed())
      return step;
    step.nodes.push_back({small(node["parent"], -1), small(node["tokens"], 0), small(node["rows"], 0)});
    if (cursor.failed())
      return step;
  }
  if (!cursor.failed())
    if (Status status = checkForest(step.nodes, qHeads, cursor.path()); !status)
      error = status.error();
  return step;
}

} // namespace

Status checkForest(const std::vector<ForestNode> &nodes, int32_t qHeads, std::string_view where) {
  const auto at = [&](size_t node) { return std::string(where) + ".nodes[" + std::to_string(node) + "]"; };
  int64_t rows = 0;
  std::vector<int32_t> path; // the open nodes, root first
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ForestNode &node = nodes[i];
    if (node.tokens < 0 || node.rows < 0)
      return inputError(at(i) + ": expected tokens and rows of at least 0, got " +
                        std::to_string(node.tokens) + " and " + std::to_string(node.rows));
    if (node.parent < -1 || node.parent >= static_cast<int64_t>(nodes.size()))
      return inputError(at(i) + ".parent: expected -1 or an earlier node, got " +
                        std::to_string(node.parent) + ", but the step has " + std::to_string(nodes.size()) +
                        " nodes: this one is an orphan");
    if (node.parent >= static_cast<int64_t>(i))
      return inputError(at(i) + ".parent: expected -1 or a node before " + std::to_string(i) + ", got " +
                        std::to_string(node.parent) +
                        (node.parent == static_cast<int64_t>(i)
                             ? ": a node cannot be its own parent"
                             : ": parents come before their children (this may be a cycle)"));
    while (!path.empty() && path.back() > node.parent)
      path.pop_back();
    if (node.parent >= 0 && (path.empty() || path.back() != node.parent))
      return inputError(at(i) + ".parent: nodes are not in depth-first order: the parent of node " +
                        std::to_string(i) + " must be node " + std::to_string(i - 1) +
                        " or one above it, but node " + std::to_string(node.parent) + " is complete");
    path.push_back(static_cast<int32_t>(i));
    rows += node.rows;
    if (rows * qHeads > int32Limit)
      return inputError(at(i) + ".rows: the rows of the step so far (" + std::to_string(rows) + ") x " +
                        std::to_string(qHeads) + " query heads exceed " + std::to_string(int32Limit));
  }
  return {};
}

Result<Workload> readWorkload(std::string_view text, std::string_view name) {
  Result<Json> json = parseJson(text, name);
  if (!json)
    return json.error();
  std::optional<Error> error;
  const Cursor root(*json, "workload", error);
  if (json->is_array() && !json->empty() && (json->front().is_array() || json->front().contains("data")))
    root.fail("expected a workload, got decoding trees: attn-workload reasoning FILE makes one of them");
  else if (root.has("Tree_Structure") || root.has("tree"))
    root.fail(
        "expected a workload, got a tree of speculated tokens: attn-workload tokens FILE makes one of it");
  onlyKeys(root, {"q_heads", "kv_heads", "dim", "bytes_per_token_per_head", "layers", "steps"});
  Workload workload;
  if (!error) {
    constexpr int64_t limit = 1 << 16;
    workload.qHeads = small(root["q_heads"], 1, limit);
    workload.kvHeads = small(root["kv_heads"], 1, limit);
    workload.dim = small(root["dim"], 1, limit);
    workload.layers = small(root["layers"], 1, limit);
    workload.bytesPerTokenPerHead = root["bytes_per_token_per_head"].integer(1, int32Limit);
    if (!error && workload.qHeads % workload.kvHeads != 0)
      root["q_heads"].fail("expected a multiple of the " + std::to_string(workload.kvHeads) +
                           " KV heads, got " + std::to_string(workload.qHeads));
    const Cursor steps = root["steps"];
    const std::vector<Cursor> elements = steps.elements();
    if (!error && elements.empty())
      steps.fail("expected at least one step, got none");
    // Paths of steps are short: they need not repeat the file's name and "workload.".
    for (size_t i = 0; i < elements.size() && !error; ++i)
      workload.steps.push_back(readStep(
          Cursor(elements[i].value(), "steps[" + std::to_string(i) + "]", error), workload.qHeads, error));
  }
  if (error)
    return inputError(std::string(name) + ": " + error->message);
  return workload;
}

std::string writeWorkload(const Workload &workload) {
  Json steps = Json::array();
  for (const WorkloadStep &step : workload.steps) {
    Json nodes = Json::array();
    for (const ForestNode &node : step.nodes)
      nodes.push_back({{"parent", node.parent}, {"tokens", node.tokens}, {"rows", node.rows}});
    steps.push_back({{"nodes", std::move(nodes)}, {"repeat", step.repeat}});
  }
  return dumpJson({{"q_heads", workload.qHeads},
                   {"kv_heads", workload.kvHeads},
                   {"dim", workload.dim},
                   {"bytes_per_token_per_head", workload.bytesPerTokenPerHead},
                   {"layers", workload.layers},
                   {"steps", std::move(steps)}});
}

std::vector<WorkloadStep> fewShotSteps(int32_t branches, int32_t promptTokens, int32_t iterations) {
  std::vector<WorkloadStep> steps;
  for (int32_t i = 1; i <= iterations; ++i) {
    WorkloadStep step;
    step.nodes.push_back({-1, promptTokens, 0});
    step.nodes.resize(static_cast<size_t>(branches) + 1, {0, i, 1});
    steps.push_back(std::move(step));
  }
  return steps;
}

} // namespace attn::rt
