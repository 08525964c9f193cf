//===- Options.h - The command line of attn-run -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_PROGRAM_OPTIONS_H
#define ATTN_TOOLS_RUN_PROGRAM_OPTIONS_H

#include "attn_rt/plan/Plan.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attn::run {

struct Options {
  std::string file;
  std::string entry;
  std::string device; ///< "host", "cuda", or empty: cuda if there is a driver
  std::string target; ///< empty: the GPU's own, or sm_90a for host
  std::string schedule = "auto";
  rt::Strategy strategy = rt::Strategy::Flatten;
  bool quickest = false; ///< flatten, or by query if the prediction is faster
  int64_t fixedSplit = 0;
  std::optional<int64_t> blocks;
  std::vector<std::string> dims; ///< the texts NAME=VALUE, in order
  uint64_t seed = 0;
  std::string workload; ///< a file of forests; `step` is generated
  std::optional<int64_t> step;
  std::string inputs, saveInputs, outputs, json, svg;
  std::string strides = "dense"; ///< memory layout of the tensors, a word of layoutWords
  bool check = false;
  bool shuffle = false;
  int64_t repeat = 1;
  bool replay = false;
  bool help = false;
  bool version = false;
};

/// Parses the arguments after the program's name. `--name value` and `--name=value` are the same.
rt::Result<Options> parseOptions(const std::vector<std::string> &arguments);

/// Returns the text of --help.
std::string helpText();

} // namespace attn::run

#endif
