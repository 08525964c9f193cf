//===- Dims.h - Sizes of generated tensors ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_INPUTS_DIMS_H
#define ATTN_TOOLS_RUN_INPUTS_DIMS_H

#include "attn_rt/support/Status.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace attn::run {

/// The --dim options: NAME=8, NAME=100..2000 or NAME=@FILE.csv:COLUMN.
class Dims {
public:
  /// Adds the text of one option. Reads the CSV file, if it names one.
  rt::Status add(std::string_view text);

  bool has(const std::string &name) const { return specs.count(name) != 0; }

  /// Returns the one size called `name`, or `fallback` if not given. A range or a column is an error.
  rt::Result<int64_t> one(const std::string &name, int64_t fallback);

  /// Returns `count` sizes called `name`: equal, drawn, or read from a file and repeated. Draws depend on the
  /// seed and the name only, so that adding a dimension changes no other.
  std::vector<int64_t> many(const std::string &name, int64_t count, int64_t fallback, uint64_t seed);

  /// Returns given names that nothing has requested.
  std::vector<std::string> unused() const;

private:
  struct Spec {
    int64_t low, high;
    std::vector<int64_t> column; ///< empty unless the sizes come from a file
  };
  std::map<std::string, Spec> specs;
  std::set<std::string> used;
};

} // namespace attn::run

#endif
