//===- Dims.cpp - Sizes of generated tensors ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Dims.h"

#include "attn_rt/support/Csv.h"
#include "attn_rt/support/Random.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

using namespace attn;
using namespace attn::run;

namespace {

/// Sizes stay in i32 because lengths, tables and positions are i32.
constexpr int64_t largestSize = std::numeric_limits<int32_t>::max();

std::optional<int64_t> parseSize(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ')
    text.remove_suffix(1);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > largestSize)
    return std::nullopt;
  return value;
}

} // namespace

rt::Status Dims::add(std::string_view text) {
  size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return rt::inputError("--dim expects NAME=VALUE, got '" + std::string(text) + "'");
  std::string name(text.substr(0, equals));
  std::string_view value = text.substr(equals + 1);
  if (specs.count(name))
    return rt::inputError("--dim " + name + " is given twice");

  if (!value.empty() && value.front() == '@') {
    auto column = rt::readCsvReference(value);
    if (!column)
      return rt::inputError("--dim " + name + ": " + column.error().message);
    for (int64_t size : *column)
      if (size < 0 || size > largestSize)
        return rt::inputError("--dim " + name + ": expected sizes from 0 to " + std::to_string(largestSize) +
                              " in " + std::string(value.substr(1)) + ", got " + std::to_string(size));
    if (column->empty())
      return rt::inputError("--dim " + name + ": " + std::string(value.substr(1)) + " has no rows");
    auto [low, high] = std::minmax_element(column->begin(), column->end());
    specs[name] = {*low, *high, *column};
    return {};
  }

  size_t mmas = value.find("..");
  auto low = parseSize(value.substr(0, mmas));
  auto high = mmas == std::string_view::npos ? low : parseSize(value.substr(mmas + 2));
  if (!low || !high)
    return rt::inputError("--dim " + name + " expects a whole number from 0 to " +
                          std::to_string(largestSize) + ", a range LOW..HIGH or @FILE.csv:COLUMN, got '" +
                          std::string(value) + "'");
  if (*low > *high)
    return rt::inputError("--dim " + name + ": the range " + std::string(value) + " is empty; did you mean " +
                          std::to_string(*high) + ".." + std::to_string(*low) + "?");
  specs[name] = {*low, *high, {}};
  return {};
}

rt::Result<int64_t> Dims::one(const std::string &name, int64_t fallback) {
  used.insert(name);
  auto found = specs.find(name);
  if (found == specs.end())
    return fallback;
  if (!found->second.column.empty() || found->second.low != found->second.high)
    return rt::inputError("--dim " + name + " is one size of the whole problem: expected a single number");
  return found->second.low;
}

std::vector<int64_t> Dims::many(const std::string &name, int64_t count, int64_t fallback, uint64_t seed) {
  used.insert(name);
  auto found = specs.find(name);
  if (found == specs.end())
    return std::vector<int64_t>(count, fallback);
  const Spec &spec = found->second;
  std::vector<int64_t> sizes(count);
  rt::Random random(seed, name);
  for (int64_t i = 0; i < count; ++i)
    sizes[i] = spec.column.empty() ? spec.low + random.below(spec.high - spec.low + 1)
                                   : spec.column[i % spec.column.size()];
  return sizes;
}

std::vector<std::string> Dims::unused() const {
  std::vector<std::string> names;
  for (const auto &[name, spec] : specs)
    if (!used.count(name))
      names.push_back(name);
  return names;
}
