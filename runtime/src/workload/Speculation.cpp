//===- Speculation.cpp - Token trees and what is accepted of them ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/Speculation.h"
#include "attn_rt/support/Random.h"
#include "support/Json.h"

#include <algorithm>
#include <set>

namespace attn::rt {

namespace {

/// Reads paths of child numbers; an error is recorded at the cursor.
TokenTree readPaths(const Cursor &cursor, std::optional<Error> &error) {
  std::vector<std::vector<int32_t>> paths;
  const std::vector<Cursor> elements = cursor.elements();
  // The tree reports a wrong size; until then, no memory is spent on millions of paths.
  for (size_t i = 0; i < elements.size() && i <= maxTreeTokens && !error; ++i) {
    paths.emplace_back();
    for (const Cursor &child : elements[i].elements())
      paths.back().push_back(static_cast<int32_t>(child.integer(0, std::numeric_limits<int32_t>::max())));
  }
  if (error)
    return {};
  Result<TokenTree> tree = TokenTree::fromPaths(paths);
  if (!tree) {
    cursor.fail(tree.error().message);
    return {};
  }
  return std::move(*tree);
}

} // namespace

Result<std::map<std::string, TokenTree>> readTokenTrees(std::string_view text, std::string_view name) {
  Result<Json> json = parseJson(text, name);
  if (!json)
    return json.error();
  std::optional<Error> error;
  const Cursor root(*json, "trees", error);
  std::map<std::string, TokenTree> trees;
  if (!json->is_object() || json->empty())
    root.expected("an object with at least one tree");
  else
    for (const auto &[key, value] : json->items()) {
      trees.emplace(key, readPaths(Cursor(value, "'" + key.substr(0, 64) + "'", error), error));
      if (error)
        break;
    }
  if (error)
    return inputError(std::string(name) + ": " + error->message);
  return trees;
}

Result<Verification> readVerification(std::string_view text, std::string_view name) {
  Result<Json> json = parseJson(text, name);
  if (!json)
    return json.error();
  std::optional<Error> error;
  const Cursor root(*json, "verification", error);
  Verification result;
  const bool published = root.has("Tree_Structure"); // otherwise reduced to the needed fields
  result.tree = readPaths(root[published ? "Tree_Structure" : "tree"], error);
  const char *total = published ? "Token_Tree_size" : "size", *all = published ? "Records" : "records";
  if (!error)
    if (const int64_t size = root[total].integer(1); !error && size != result.tree.size() + 1)
      root[total].fail("expected " + std::to_string(result.tree.size() + 1) + " (" +
                       std::to_string(result.tree.size()) + " paths and the token before them), got " +
                       std::to_string(size));
  if (!error)
    for (const Cursor &record : root[all].elements()) {
      result.accepted.emplace_back();
      for (const Cursor &length : record["Accept_length"].elements())
        result.accepted.back().push_back(static_cast<int32_t>(length.integer(1, result.tree.height() + 1)));
    }
  if (!error && result.accepted.empty())
    root[all].fail("expected at least one, got none");
  if (error)
    return inputError(std::string(name) + ": " + error->message);
  return result;
}

TokenTree generateTokenTree(int32_t tokens) {
  // The sum of a path's child numbers is the exponent of its probability; ties are broken by length, then by
  // order.
  using Candidate = std::tuple<int32_t, size_t, std::vector<int32_t>>;
  std::set<Candidate> candidates{{0, 1, {0}}};
  std::vector<std::vector<int32_t>> paths;
  while (std::ssize(paths) < std::clamp(tokens, 1, maxTreeTokens)) {
    const auto [cost, length, path] = *candidates.begin();
    candidates.erase(candidates.begin());
    paths.push_back(path);
    std::vector<int32_t> sibling = path, child = path;
    ++sibling.back();
    child.push_back(0);
    candidates.insert({cost + 1, length, std::move(sibling)});
    candidates.insert({cost + 1, length + 1, std::move(child)});
  }
  return *TokenTree::fromPaths(paths);
}

std::vector<int32_t> generateAccepted(uint64_t seed, const TokenTree &tree, int32_t steps) {
  Random random(seed, "accepted tokens");
  std::vector<int32_t> accepted;
  for (int32_t step = 0; step < steps; ++step) {
    // At each token the first child is right half of the time, else the next one, and so on.
    int32_t here = -1, gained = 1;
    for (bool found = true; found;) {
      found = false;
      for (int32_t d = here + 1; d < tree.size() && !found; ++d)
        if (tree.parent()[static_cast<size_t>(d)] == here && random.below(2) == 0) {
          here = d;
          ++gained;
          found = true;
        }
    }
    accepted.push_back(gained);
  }
  return accepted;
}

std::vector<WorkloadStep> speculationSteps(const TokenTree &tree, std::span<const int32_t> accepted,
                                           int32_t context) {
  std::vector<WorkloadStep> steps;
  for (int32_t gained : accepted) {
    WorkloadStep step;
    step.nodes.push_back({-1, context, 1});
    for (int32_t parent : tree.parent())
      step.nodes.push_back({parent + 1, 1, 1});
    steps.push_back(std::move(step));
    context += gained;
  }
  return steps;
}

} // namespace attn::rt
