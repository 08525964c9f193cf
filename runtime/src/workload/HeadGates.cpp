//===- HeadGates.cpp - Which KV heads need the whole context --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/workload/HeadGates.h"
#include "attn_rt/support/Random.h"
#include "support/Json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace attn::rt {

namespace {

constexpr int64_t sizeLimit = 1 << 16;

/// The next word of a line, which loses it.
std::string_view takeWord(std::string_view &line) {
  const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  line.remove_prefix(begin);
  const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
  line.remove_prefix(word.size());
  return word;
}

std::string sizeText(int64_t layers, int64_t kvHeads) {
  return std::to_string(layers) + " layers of " + std::to_string(kvHeads) + " KV heads";
}

} // namespace

Result<HeadGates> readHeadGates(std::string_view text, std::string_view name, int32_t layers,
                                int32_t kvHeads) {
  const std::string prefix = "head gates '" + std::string(name) + "': ";
  HeadGates result;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string where = prefix + "line " + std::to_string(number) + ": ";
    int64_t heads = 0;
    for (std::string_view word = takeWord(line); !word.empty(); word = takeWord(line)) {
      double gate = 0;
      const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), gate);
      if (code != std::errc() || end != word.data() + word.size() || !std::isfinite(gate))
        return inputError(where + "head " + std::to_string(heads) + ": expected a number, got '" +
                          std::string(word.substr(0, 40)) + "'");
      result.gates.push_back(gate);
      ++heads;
    }
    if (heads == 0)
      continue;
    if (result.layers == 0)
      result.kvHeads = static_cast<int32_t>(std::min(heads, sizeLimit + 1));
    if (heads != result.kvHeads)
      return inputError(where + "expected a gate for each of " + std::to_string(result.kvHeads) +
                        " heads, as in the first line, got " + std::to_string(heads));
    if (++result.layers > sizeLimit || heads > sizeLimit)
      return inputError(where + "expected at most " + sizeText(sizeLimit, sizeLimit));
  }
  if (result.layers == 0)
    return inputError(prefix + "expected a line for each layer, got none");
  const int32_t wantedLayers = layers ? layers : result.layers,
                wantedHeads = kvHeads ? kvHeads : result.kvHeads;
  if (result.layers != wantedLayers || result.kvHeads != wantedHeads)
    return inputError(prefix + "expected " + sizeText(wantedLayers, wantedHeads) + ", got " +
                      sizeText(result.layers, result.kvHeads));
  return result;
}

Result<StreamingSizes> readStreamingSizes(std::string_view text, std::string_view name) {
  Result<Json> json = parseJson(text, name);
  if (!json)
    return json.error();
  std::optional<Error> error;
  const Cursor root(*json, "config", error);
  constexpr int64_t limit = 1 << 30;
  // Where a model is to run with other sizes than the gates were found with, the file says so.
  const auto size = [&](const char *deployed, const char *found) {
    const bool given = root.has(deployed) && !root[deployed].isNull();
    return static_cast<int32_t>(root[given ? deployed : found].integer(0, limit));
  };
  const StreamingSizes sizes{size("deploy_sink_size", "sink_size"),
                             size("deploy_recent_size", "recent_size")};
  if (error)
    return inputError(std::string(name) + ": " + error->message);
  return sizes;
}

LayerClasses classesAtLeast(const HeadGates &gates, double threshold) {
  LayerClasses classes(static_cast<size_t>(gates.layers));
  for (int32_t layer = 0; layer < gates.layers; ++layer)
    for (int32_t head = 0; head < gates.kvHeads; ++head)
      classes[static_cast<size_t>(layer)].push_back(
          std::clamp(gates.at(layer, head), 0.0, 1.0) >= threshold ? 0 : 1);
  return classes;
}

LayerClasses classesByShare(const HeadGates &gates, double retrievalShare) {
  std::vector<size_t> order(gates.gates.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return gates.gates[a] != gates.gates[b] ? gates.gates[a] > gates.gates[b] : a < b;
  });
  const double wanted = std::clamp(retrievalShare, 0.0, 1.0) * static_cast<double>(order.size());
  LayerClasses classes(static_cast<size_t>(gates.layers),
                       std::vector<int32_t>(static_cast<size_t>(gates.kvHeads), 1));
  for (size_t i = 0; i < static_cast<size_t>(std::llround(wanted)); ++i)
    classes[order[i] / static_cast<size_t>(gates.kvHeads)][order[i] % static_cast<size_t>(gates.kvHeads)] = 0;
  return classes;
}

HeadGates generateHeadGates(uint64_t seed, int32_t layers, int32_t kvHeads, double retrievalShare) {
  Random random(seed, "head gates");
  HeadGates result{layers, kvHeads, {}};
  for (int64_t i = 0; i < int64_t{layers} * kvHeads; ++i) {
    const bool retrieves = random.uniform() < retrievalShare;
    const double distance = 0.5 * std::pow(random.uniform(), 3); // most are at an end
    result.gates.push_back(retrieves ? 1 - distance : distance);
  }
  return result;
}

} // namespace attn::rt
