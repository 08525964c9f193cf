//===- Requests.cpp - Traces of requests, read and made -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/Requests.h"
#include "attn_rt/support/Csv.h"
#include "attn_rt/support/Random.h"
#include "support/Json.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace attn::rt {

namespace {

constexpr int64_t tokenLimit = 1 << 24; // of one request

int64_t blocksOf(int64_t tokens) { return (tokens + prefixBlock - 1) / prefixBlock; }

Status readLine(std::string_view line, const std::string &where, Request &request) {
  Result<Json> json = parseJson(line, where);
  if (!json)
    return json.error();
  std::optional<Error> error;
  const Cursor root(*json, where, error);
  request.context = static_cast<int32_t>(root["input_length"].integer(0, tokenLimit));
  request.generated = static_cast<int32_t>(root["output_length"].integer(0, tokenLimit));
  for (const Cursor &block : root["hash_ids"].elements())
    request.blocks.push_back(block.integer(0));
  if (!error && std::ssize(request.blocks) != blocksOf(request.context))
    root["hash_ids"].fail("expected " + std::to_string(blocksOf(request.context)) + " blocks (" +
                          std::to_string(request.context) + " tokens, " + std::to_string(prefixBlock) +
                          " each), got " + std::to_string(request.blocks.size()));
  return error ? Status(*error) : Status();
}

} // namespace

Result<std::vector<Request>> readRequestsCsv(std::string_view text, std::string_view name) {
  Result<std::vector<int64_t>> context = readCsvColumn(text, "ContextTokens", name);
  if (!context)
    return context.error();
  Result<std::vector<int64_t>> generated = readCsvColumn(text, "GeneratedTokens", name);
  if (!generated)
    return generated.error();
  std::vector<Request> requests;
  for (size_t i = 0; i < context->size(); ++i) {
    for (int64_t tokens : {(*context)[i], (*generated)[i]})
      if (tokens < 0 || tokens > tokenLimit)
        return inputError("CSV file '" + std::string(name) + "': request " + std::to_string(i) +
                          ": expected 0 to " + std::to_string(tokenLimit) + " tokens, got " +
                          std::to_string(tokens));
    requests.push_back({static_cast<int32_t>((*context)[i]), static_cast<int32_t>((*generated)[i]), {}});
  }
  return requests;
}

Result<std::vector<Request>> readRequestsJsonl(std::string_view text, std::string_view name) {
  std::vector<Request> requests;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    Request request;
    if (Status status = readLine(line, std::string(name) + ": line " + std::to_string(number), request);
        !status)
      return status.error();
    requests.push_back(std::move(request));
  }
  if (requests.empty())
    return inputError(std::string(name) + ": expected at least one request, got none");
  return requests;
}

std::vector<Request> generateRequests(uint64_t seed, int32_t count, int32_t sharing) {
  Random random(seed, "requests");
  std::vector<Request> requests;
  std::vector<std::vector<int64_t>> prefixes;
  int64_t nextBlock = 0;
  // Lengths are about log-normal; the published medians are 1,500 and 13 tokens.
  const auto draw = [&](double median, double spread) {
    double a = 0, b = 0;
    random.normalPair(a, b);
    return static_cast<int32_t>(std::clamp(median * std::exp(spread * a), 1.0, 1e5));
  };
  for (int32_t i = 0; i < count; ++i) {
    Request request{draw(1500, 0.8), draw(13, 0.9), {}};
    if (sharing > 1) {
      if (prefixes.empty() || random.below(sharing) == 0) {
        prefixes.emplace_back();
        for (int64_t blocks = 1 + random.below(8); blocks > 0; --blocks)
          prefixes.back().push_back(nextBlock++);
      }
      request.blocks = prefixes[static_cast<size_t>(random.below(std::ssize(prefixes)))];
      request.context += static_cast<int32_t>(std::ssize(request.blocks)) * prefixBlock;
    }
    while (std::ssize(request.blocks) < blocksOf(request.context))
      request.blocks.push_back(nextBlock++);
    requests.push_back(std::move(request));
  }
  return requests;
}

WorkloadStep requestStep(std::span<const Request> requests, int32_t generated) {
  // A tree of blocks. A block that is not full is identified by its number of tokens as well.
  struct Node {
    int32_t tokens = 0;
    std::map<std::pair<int64_t, int32_t>, size_t> children;
    std::vector<size_t> inOrder;
    std::vector<int32_t> answers; ///< of requests whose context ends here
  };
  std::vector<Node> nodes(1);
  for (const Request &request : requests) {
    size_t here = 0;
    int32_t left = request.context;
    const auto descend = [&](std::pair<int64_t, int32_t> key) {
      const auto [found, isNew] = nodes[here].children.emplace(key, nodes.size());
      const size_t child = found->second;
      if (isNew) {
        nodes[here].inOrder.push_back(child);
        nodes.emplace_back();
        nodes.back().tokens = key.second;
      }
      here = child;
      left -= key.second;
    };
    for (int64_t block : request.blocks)
      descend({block, std::clamp(left, 0, prefixBlock)});
    if (left > 0) // tokens that no block describes are the request's own
      descend({-1 - (&request - requests.data()), left});
    nodes[here].answers.push_back(std::min(request.generated, generated));
  }

  WorkloadStep step;
  std::vector<std::pair<size_t, int32_t>> open; // nodes, each with its parent's index; the next node is last
  const auto push = [&](const Node &node, int32_t place) {
    for (auto child = node.inOrder.rbegin(); child != node.inOrder.rend(); ++child)
      open.emplace_back(*child, place);
  };
  push(nodes[0], -1);
  while (!open.empty()) {
    auto [index, parent] = open.back();
    open.pop_back();
    int32_t tokens = nodes[index].tokens;
    while (nodes[index].inOrder.size() == 1 &&
           nodes[index].answers.empty()) { // a chain of blocks is one node
      index = nodes[index].inOrder[0];
      tokens += nodes[index].tokens;
    }
    const Node &node = nodes[index];
    const auto place = static_cast<int32_t>(step.nodes.size());
    if (node.answers.size() == 1 && node.inOrder.empty()) {
      step.nodes.push_back({parent, tokens + node.answers[0], 1});
      continue;
    }
    step.nodes.push_back({parent, tokens, 0});
    for (int32_t answer : node.answers)
      step.nodes.push_back({place, answer, 1});
    push(node, place);
  }
  for (int32_t answer : nodes[0].answers) // answers to empty prompts
    step.nodes.push_back({-1, answer, 1});
  return step;
}

} // namespace attn::rt
