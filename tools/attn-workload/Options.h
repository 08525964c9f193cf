//===- Options.h - The command line of attn-workload ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_WORKLOAD_OPTIONS_H
#define ATTN_TOOLS_WORKLOAD_OPTIONS_H

#include "attn_rt/workload/Workload.h"

#include <map>
#include <string>

namespace attn::workload {

struct Options {
  std::string kind, file; ///< file: empty where data is generated
  std::string out = "-";
  std::map<std::string, int64_t> numbers; ///< every option of the kind and of the model, by name
  bool help = false, version = false;

  int32_t operator[](const std::string &name) const { return static_cast<int32_t>(numbers.at(name)); }
};

/// Parses the arguments after the program's name. `--name value` and `--name=value` are the same.
rt::Result<Options> parseOptions(const std::vector<std::string> &arguments);
std::string helpText();

} // namespace attn::workload

#endif
