//===- DecodingTree.cpp - Runs of multi-step reasoning --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/DecodingTree.h"
#include "attn_rt/support/Random.h"
#include "support/Json.h"

#include <algorithm>
#include <unordered_map>

namespace attn::rt {

namespace {

constexpr int32_t timeLimit = 1 << 30; // differences stay within 31 bits

struct ReadNode {
  int64_t id = 0;
  bool reached = false;
  DecodingTree::Node node;
  std::vector<int32_t> children; // indices
};

/// Reads the nodes in order; children are still ids, which a second pass resolves.
std::vector<ReadNode> readNodes(const Cursor &tree, const std::vector<Cursor> &elements,
                                std::unordered_map<int64_t, int32_t> &indexOf) {
  std::vector<ReadNode> nodes;
  if (!tree.failed() && elements.empty())
    tree.fail("expected at least one node, got none");
  for (const Cursor &element : elements) {
    ReadNode read;
    read.id = element["id"].integer(0);
    const char *count = element.has("value") ? "value" : "tokens"; // as published, or as reduced to the trees
    const int64_t tokens = element[count].integer(0, timeLimit);
    read.node.start = static_cast<int32_t>(element["start"].integer(-timeLimit + 1, timeLimit));
    read.node.end = static_cast<int32_t>(element["end"].integer(-timeLimit, timeLimit));
    if (tree.failed())
      return nodes;
    if (tokens != int64_t{read.node.end} - read.node.start + 1)
      element[count].fail("expected " + std::to_string(int64_t{read.node.end} - read.node.start + 1) +
                          " (from start " + std::to_string(read.node.start) + " to end " +
                          std::to_string(read.node.end) + "), got " + std::to_string(tokens));
    if (!indexOf.emplace(read.id, static_cast<int32_t>(nodes.size())).second)
      element["id"].fail("node " + std::to_string(read.id) + " is given twice");
    nodes.push_back(std::move(read));
  }
  return nodes;
}

void readChildren(const Cursor &tree, const std::vector<Cursor> &elements,
                  const std::unordered_map<int64_t, int32_t> &indexOf, std::vector<ReadNode> &nodes) {
  for (size_t i = 0; i < nodes.size() && !tree.failed(); ++i) {
    const Cursor children = elements[i]["children"];
    for (const Cursor &child : children.elements()) {
      const int64_t id = child.integer(0);
      const auto found = indexOf.find(id);
      if (tree.failed())
        return;
      if (found == indexOf.end())
        return child.fail("there is no node " + std::to_string(id));
      DecodingTree::Node &node = nodes[static_cast<size_t>(found->second)].node;
      if (node.parent >= 0)
        return child.fail("node " + std::to_string(id) + " has two parents, " +
                          std::to_string(nodes[static_cast<size_t>(node.parent)].id) + " and " +
                          std::to_string(nodes[i].id));
      if (node.start <= nodes[i].node.end)
        return child.fail("node " + std::to_string(id) + " starts at " + std::to_string(node.start) +
                          ", before its parent is done at " + std::to_string(nodes[i].node.end));
      node.parent = static_cast<int32_t>(i);
      nodes[i].children.push_back(found->second);
    }
  }
}

/// The nodes of a tree: a list; or, as DeFT publishes it, an object of them by id beside the prompt's text.
std::vector<Cursor> nodesOf(const Cursor &tree, std::optional<Error> &error) {
  if (!tree.value().is_object())
    return tree.elements();
  const Cursor data = tree["data"];
  if (!error && !data.value().is_object())
    data.expected("an object of nodes");
  std::vector<Cursor> nodes;
  for (auto node = data.value().begin(); !error && node != data.value().end(); ++node)
    nodes.emplace_back(*node, data.path() + "['" + node.key().substr(0, 64) + "']", error);
  return nodes;
}

DecodingTree readTree(const Cursor &cursor, std::optional<Error> &error) {
  std::unordered_map<int64_t, int32_t> indexOf;
  const std::vector<Cursor> elements = nodesOf(cursor, error);
  std::vector<ReadNode> nodes = readNodes(cursor, elements, indexOf);
  readChildren(cursor, elements, indexOf, nodes);
  DecodingTree tree;
  std::vector<std::pair<int32_t, int32_t>> open; // nodes, each with its parent's index; the next node is last
  for (size_t i = nodes.size(); i-- > 0;)
    if (nodes[i].node.parent < 0)
      open.emplace_back(static_cast<int32_t>(i), -1);
  while (!open.empty() && !cursor.failed()) {
    const auto [index, parent] = open.back();
    open.pop_back();
    const ReadNode &read = nodes[static_cast<size_t>(index)];
    const auto place = static_cast<int32_t>(tree.nodes.size());
    tree.nodes.push_back({parent, read.node.start, read.node.end});
    nodes[static_cast<size_t>(index)].reached = true;
    for (auto child = read.children.rbegin(); child != read.children.rend(); ++child)
      open.emplace_back(*child, place);
  }
  // Nodes without tokens may have the same times, and so be above each other.
  for (const ReadNode &read : nodes)
    if (!read.reached && !cursor.failed())
      cursor.fail("node " + std::to_string(read.id) + " is below itself: a cycle");
  return tree;
}

} // namespace

Result<std::vector<DecodingTree>> readDecodingTrees(std::string_view text, std::string_view name) {
  Result<Json> json = parseJson(text, name);
  if (!json)
    return json.error();
  std::optional<Error> error;
  const Cursor root(*json, "trees", error);
  std::vector<DecodingTree> trees;
  for (const Cursor &tree : root.elements())
    if (!tree.has("data") || !tree.value()["data"].is_object() || !tree.value()["data"].empty())
      trees.push_back(readTree(tree, error)); // otherwise a published run ended before its first node
  if (!error && trees.empty())
    root.fail("expected at least one, got none");
  if (error)
    return inputError(std::string(name) + ": " + error->message);
  return trees;
}

int32_t DecodingTree::iterations() const {
  int32_t last = 0;
  for (const Node &node : nodes)
    last = std::max(last, node.end);
  return last;
}

WorkloadStep DecodingTree::step(int32_t iteration) const {
  // A node is needed if it generates or is above a node that generates.
  std::vector<bool> needed(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node &node = nodes[i];
    if (node.start > 0 && node.start <= iteration && iteration <= node.end)
      needed[i] = true;
    if (needed[i] && node.parent >= 0)
      needed[static_cast<size_t>(node.parent)] = true;
  }
  WorkloadStep result;
  std::vector<int32_t> place(nodes.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node &node = nodes[i];
    if (!needed[i])
      continue;
    place[i] = static_cast<int32_t>(result.nodes.size());
    const bool generates = node.start > 0 && iteration <= node.end;
    result.nodes.push_back({node.parent < 0 ? -1 : place[static_cast<size_t>(node.parent)],
                            std::min(iteration, node.end) - node.start + 1, generates ? 1 : 0});
  }
  return result;
}

std::vector<WorkloadStep> DecodingTree::steps(int32_t every) const {
  std::vector<WorkloadStep> result;
  for (int64_t iteration = 1; iteration <= iterations(); iteration += every)
    if (WorkloadStep made = step(static_cast<int32_t>(iteration)); !made.nodes.empty()) {
      made.repeat = every;
      result.push_back(std::move(made));
    }
  return result;
}

DecodingTree generateDecodingTree(uint64_t seed, int32_t promptTokens,
                                  const std::vector<DecodingLevel> &levels) {
  Random random(seed, "decoding tree");
  struct Made {
    int32_t parent, start, end;
    std::vector<size_t> children;
  };
  std::vector<Made> made{{-1, 1 - promptTokens, 0, {}}};
  std::vector<size_t> level{0};
  for (const DecodingLevel &shape : levels) {
    std::vector<size_t> parents = std::move(level);
    level.clear();
    while (shape.keep > 0 && std::ssize(parents) > shape.keep)
      parents.erase(parents.begin() + random.below(std::ssize(parents)));
    for (size_t parent : parents)
      for (int32_t i = 0; i < shape.width; ++i) {
        const int32_t start = made[parent].end + 1;
        made[parent].children.push_back(made.size());
        level.push_back(made.size());
        made.push_back(
            {0, start, start + static_cast<int32_t>(random.below(std::max(shape.longest, 1))), {}});
      }
  }
  DecodingTree tree;
  std::vector<std::pair<size_t, int32_t>> open{{0, -1}};
  while (!open.empty()) {
    const auto [index, parent] = open.back();
    open.pop_back();
    const auto place = static_cast<int32_t>(tree.nodes.size());
    tree.nodes.push_back({parent, made[index].start, made[index].end});
    for (size_t i = made[index].children.size(); i-- > 0;)
      open.emplace_back(made[index].children[i], place);
  }
  return tree;
}

} // namespace attn::rt
