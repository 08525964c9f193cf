//===- Options.h - The command line of attn-plan ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_PLAN_OPTIONS_H
#define ATTN_TOOLS_PLAN_OPTIONS_H

#include "attn_rt/forest/Forest.h"

#include <string>

namespace attn::plan {

struct Options {
  std::string file, json, svg;
  std::optional<rt::Strategy> strategy; ///< none: all four are compared
  int blocks = 132;
  bool help = false, version = false;
};

/// Parses the arguments after the program's name. `--name value` and `--name=value` are the same.
rt::Result<Options> parseOptions(const std::vector<std::string> &arguments);
std::string helpText();

} // namespace attn::plan

#endif
