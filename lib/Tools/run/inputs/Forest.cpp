//===- Forest.cpp - Tensors for a forest ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A step of a workload, as tensors. Rows are numbered in the depth-first order of their nodes, so that the
// rows that see a node are one range; positions count the tokens of the path. The rows of a node are its last
// tokens:
//
//     node            tokens  rows     instance: pos0, rows     positions of rows
//     prompt              90     0     0, [0, 4)
//     ├─ answer A         10     1     90, [0, 1)               99
//     └─ thought          20     1     90, [1, 4)               109
//        └─ draft          2     2     110, [2, 4)              110, 111
//
// One KV argument holds an instance for every node. If there are two, the second holds the nodes that are new
// in this step: nodes below another node all of whose tokens are rows, such as drafts, and responses after a
// shared prompt. If its pages have one token, as those of drafts do, an instance is not a node but its path
// through new nodes, for its own rows. Such a path is one tile of keys, where each of its nodes would be a
// tile of one or two keys.
//
//===----------------------------------------------------------------------===//
#include "Inputs.h"

#include "TensorMaker.h"

#include "attn_rt/support/Random.h"

#include <algorithm>
#include <limits>

using namespace attn;
using namespace attn::run;

namespace {

constexpr int64_t int32Limit = std::numeric_limits<int32_t>::max();

struct Node {
  int32_t parent, tokens, rows;
  int64_t pos0 = 0;
  int32_t rowFirst = 0, rowLast = 0; ///< range of the rows on the node and below it
  bool isNew = false;
};

rt::Result<std::vector<Node>> readNodes(const rt::WorkloadStep &step, const std::string &where) {
  std::vector<Node> nodes;
  int32_t rows = 0;
  for (const rt::ForestNode &from : step.nodes) {
    Node node{from.parent, from.tokens, from.rows};
    const std::string at = where + ".nodes[" + std::to_string(nodes.size()) + "]";
    if (node.rows > node.tokens)
      return rt::inputError(at + ": rows are the last tokens of their node, so expected at most " +
                            std::to_string(node.tokens) + ", got " + std::to_string(node.rows));
    if (node.parent >= 0) {
      const Node &parent = nodes[static_cast<size_t>(node.parent)];
      node.pos0 = parent.pos0 + parent.tokens;
      node.isNew = node.rows > 0 && node.rows == node.tokens;
    }
    if (node.pos0 + node.tokens > int32Limit)
      return rt::inputError(at + ": the path to its last token has " +
                            std::to_string(node.pos0 + node.tokens) + " tokens, expected at most " +
                            std::to_string(int32Limit));
    node.rowFirst = rows;
    node.rowLast = rows += node.rows;
    nodes.push_back(node);
  }
  for (size_t i = nodes.size(); i-- > 0;)
    if (nodes[i].parent >= 0) {
      int32_t &last = nodes[static_cast<size_t>(nodes[i].parent)].rowLast;
      last = std::max(last, nodes[i].rowLast);
    }
  if (rows == 0)
    return rt::inputError(where + " has no rows: there is nothing to compute");
  return nodes;
}

/// Checks the length of paths: new nodes above each other make paths that grow with the square of their
/// number.
rt::Status checkPaths(const std::vector<Node> &nodes, const std::string &name) {
  constexpr int64_t most = 1 << 26;
  std::vector<int64_t> depth(nodes.size(), 0);
  int64_t sum = 0;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].isNew)
      sum += depth[i] = depth[static_cast<size_t>(nodes[i].parent)] + 1;
  if (sum <= most)
    return {};
  return rt::inputError(name + ": the paths through new nodes have " + std::to_string(sum) +
                        " nodes in all, expected at most " + std::to_string(most) +
                        ": a chain of tokens is one node");
}

/// Returns the nodes that are new, or those that are not, or all of them.
Instances instancesOf(const std::vector<Node> &nodes, std::optional<bool> isNew, bool paths) {
  Instances instances;
  std::vector<int32_t> runOf(nodes.size(), -1);
  std::vector<std::vector<int32_t>> all(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node &node = nodes[i];
    if (isNew && node.isNew != *isNew)
      continue;
    const auto parent = static_cast<size_t>(std::max(node.parent, 0));
    if (paths && node.parent >= 0)
      all[i] = all[parent];
    all[i].push_back(static_cast<int32_t>(instances.runs.size()));
    instances.runs.push_back(node.tokens);
    int64_t pos0 = node.pos0;
    if (paths) {
      instances.paths.push_back(all[i]);
      for (int32_t run : all[i])
        pos0 -= run == all[i].back() ? 0 : instances.runs[static_cast<size_t>(run)];
    }
    instances.pos0.push_back(static_cast<int32_t>(pos0));
    instances.rows.insert(instances.rows.end(),
                          {node.rowFirst, paths ? node.rowFirst + node.rows : node.rowLast});
  }
  if (instances.runs.empty())
    instances = {.runs = {0}, .paths = {}, .pos0 = {0}, .rows = {0, 0}}; // without tokens, invisible
  return instances;
}

/// Makes an instance ragged: each head keeps none, some or all of a node's tokens.
Instances raggedOf(const Instances &whole, int64_t heads, rt::Random random) {
  Instances ragged = whole;
  ragged.heads = heads;
  ragged.runs.clear();
  for (int64_t tokens : whole.runs)
    for (int64_t head = 0; head < heads; ++head)
      ragged.runs.push_back(random.below(tokens + 1));
  ragged.paths.clear();
  for (const std::vector<int32_t> &path : whole.paths)
    for (int64_t head = 0; head < heads; ++head) {
      std::vector<int32_t> &own = ragged.paths.emplace_back();
      for (int32_t run : path)
        own.push_back(static_cast<int32_t>(run * heads + head));
    }
  return ragged;
}

rt::Status checkShape(const Arguments &arguments, const rt::Workload &workload, const std::string &name) {
  const auto text = [](int64_t qHeads, int64_t kvHeads, int64_t dim, int64_t bytes) {
    return std::to_string(qHeads) + " query heads on " + std::to_string(kvHeads) + " KV heads of " +
           std::to_string(dim) + ", " + std::to_string(bytes) + " bytes per token and head";
  };
  for (const KVArgument &kv : arguments.kv) {
    const auto bytes = kv.layout(kv.heads).tokenBytes();
    const int64_t heads = kv.headClass < 0 ? kv.heads : arguments.classes->heads;
    const std::string problem = text(arguments.query.shape[1], heads, kv.keyDim, bytes);
    const std::string given =
        text(workload.qHeads, workload.kvHeads, workload.dim, workload.bytesPerTokenPerHead);
    if (problem != given)
      return rt::inputError(name + " is of " + given + ", but '" + kv.name + "' is of " + problem +
                            ": make it for these with attn-workload's options");
  }
  return {};
}

/// Counts the KV arguments that the heads of `kv` see.
int64_t countBeside(const Arguments &arguments, const KVArgument &kv) {
  return std::count_if(arguments.kv.begin(), arguments.kv.end(), [&](const KVArgument &other) {
    return other.headClass == kv.headClass || other.headClass < 0 || kv.headClass < 0;
  });
}

} // namespace

rt::Result<rt::TensorMap> run::generateForest(const Arguments &arguments, const rt::Workload &workload,
                                              const std::string &name, int64_t step, Dims &dims,
                                              uint64_t seed) {
  if (step >= static_cast<int64_t>(workload.steps.size()))
    return rt::inputError("--step expects a number below " + std::to_string(workload.steps.size()) +
                          ", the steps of '" + name + "', got " + std::to_string(step));
  for (const KVArgument &kv : arguments.kv)
    if (const int64_t count = countBeside(arguments, kv); count > 2)
      return rt::inputError("--workload generates one KV argument, or two, of which the second has the nodes "
                            "that are new" +
                            std::string(kv.headClass < 0 ? "" : ", for each head class") +
                            "; this function has " + std::to_string(count) +
                            ": give it tensors with --inputs");
  if (rt::Status status = checkShape(arguments, workload, name); !status)
    return status.error();
  auto nodes =
      readNodes(workload.steps[static_cast<size_t>(step)], name + ": steps[" + std::to_string(step) + "]");
  if (!nodes)
    return nodes.error();
  if (rt::Status status = checkPaths(*nodes, name); !status)
    return status.error();

  TensorMaker maker(arguments, dims, seed);
  if (rt::Status status = maker.addClasses(); !status)
    return status.error();
  std::vector<std::string> sizes = {"batch", "q_len"};
  if (!arguments.query.dims.empty())
    sizes.push_back(arguments.query.dims.front());
  int64_t longest = 0;
  for (const Node &node : *nodes)
    longest = std::max(longest, node.pos0 + node.tokens);
  for (const KVArgument &kv : arguments.kv) {
    const auto first = std::find_if(arguments.kv.begin(), arguments.kv.end(), [&](const KVArgument &other) {
      return other.headClass < 0 || kv.headClass < 0 || other.headClass == kv.headClass;
    });
    const bool second = &kv != &*first;
    const auto which = countBeside(arguments, kv) == 1 ? std::optional<bool>() : second;
    Instances instances = instancesOf(*nodes, which, second && kv.layout(0).hasSingleTokens());
    if (kv.ragged)
      instances = raggedOf(instances, maker.headsOf(kv), rt::Random(seed, kv.name + ".lengths"));
    if (rt::Status status = maker.addKV(kv, instances); !status)
      return status.error();
    maker.setSize(kv.instancesDim, static_cast<int64_t>(instances.pos0.size()));
    maker.setSize(kv.tokensDim, longest); // a table over positions must cover the positions of every path
    sizes.insert(sizes.end(), {kv.instancesDim, kv.tokensDim});
  }

  std::vector<int32_t> qStart = {0}, positions;
  for (const Node &node : *nodes) {
    if (node.parent < 0)
      qStart.push_back(node.rowLast);
    for (int64_t position = node.pos0 + node.tokens - node.rows; position < node.pos0 + node.tokens;
         ++position)
      positions.push_back(static_cast<int32_t>(position));
  }
  if (rt::Status status = maker.addQuery(qStart, positions); !status)
    return status.error();
  if (rt::Status status = maker.addRest(); !status)
    return status.error();
  for (const std::string &name : dims.unused())
    return rt::inputError(std::find(sizes.begin(), sizes.end(), name) == sizes.end()
                              ? "--dim " + name + ": this problem has no such dimension"
                              : "--dim " + name + " follows from --workload: give one of the two");
  return maker.take();
}
