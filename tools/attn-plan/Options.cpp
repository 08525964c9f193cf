//===- Options.cpp - The command line of attn-plan ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Options.h"

#include <charconv>

namespace attn::plan {

rt::Result<Options> parseOptions(const std::vector<std::string> &arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      continue;
    }
    if (argument == "--version") {
      options.version = true;
      continue;
    }
    if (argument.empty() || argument[0] != '-' || argument == "-") {
      if (!options.file.empty())
        return rt::inputError("expected one file, got '" + options.file + "' and '" + argument + "'");
      options.file = argument;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (name != "--strategy" && name != "--blocks" && name != "--json" && name != "--svg")
      return rt::inputError("there is no option '" + name +
                            "', expected one of --strategy, --blocks, --json, --svg, --version, --help");
    if (equals == std::string::npos && i + 1 == arguments.size())
      return rt::inputError(name + " expects a value");
    const std::string value = equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
    if (value.empty())
      return rt::inputError(name + " expects a value, got nothing");
    if (name == "--json")
      options.json = value;
    if (name == "--svg")
      options.svg = value;
    if (name == "--strategy") {
      options.strategy = rt::parseStrategy(value);
      if (!options.strategy)
        return rt::inputError("--strategy expects one of by-query, by-node, by-node-chunk, flatten, got '" +
                              value + "'");
    }
    if (name == "--blocks") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options.blocks);
      if (error != std::errc() || end != value.data() + value.size() || options.blocks < 1 ||
          options.blocks > 1 << 20)
        return rt::inputError("--blocks expects a whole number of at least 1 and at most 1048576, got '" +
                              value + "'");
    }
  }
  if (!options.help && !options.version && options.file.empty())
    return rt::inputError("expected a file with a workload; --help shows the usage");
  if (options.json == "-" && options.svg == "-")
    return rt::inputError("--json and --svg cannot both go to standard output");
  return options;
}

std::string helpText() {
  return R"(usage: attn-plan WORKLOAD.json [OPTIONS]

Plans decoding steps over forests without running them: bytes read, balance of the work, and a
lower bound of the time. - reads the workload from standard input.

  --strategy NAME   by-query, by-node, by-node-chunk or flatten; all four are compared without it
  --blocks N        thread blocks that share the work (132)
  --json F          write the figures, of each step, too; - is standard output, without the table
  --svg F           draw the longest step's work by block; of flatten unless --strategy is given
  --version         print the version of attn

Strategies (the ablation of DeFT, arXiv 2404.00242):
  by-query          each query row reads its whole path: Radix attention, Flash-Decoding
  by-node           a node is one item for all rows below it, assigned whole, longest first
  by-node-chunk     the same in chunks of 512 tokens
  flatten           all nodes laid end to end, cut into equal shares on tile boundaries

Tiles have 64 keys and up to 128 packed rows (rows x query heads per KV head); a node's keys and
values are read once for each 128. The workload:
  {"q_heads": 32, "kv_heads": 8, "dim": 128, "bytes_per_token_per_head": 512, "layers": 32,
   "steps": [{"nodes": [{"parent": -1, "tokens": 4000, "rows": 0},
                        {"parent": 0, "tokens": 17, "rows": 1}, ...], "repeat": 1}, ...]}
Nodes are in depth-first order; results are summed over steps, layers and repeats. The figures:
  kv_bytes          keys and values read
  partial_bytes     partial results (f32), written and read again
  metadata_bytes    the plan's tasks, segments and merge lists, as kernels read them
  balance           tiles of the block with the most over the mean of the blocks in use; for all
                    steps, the sum of the former over the sum of the latter
  roofline_seconds  all bytes (Q and O too, 16 bits) at an H200's 4.8 TB/s, or all FLOPs at its
                    989 TFLOP/s (dense bf16; NVIDIA's data sheet), whichever takes longer

Exit status: 0 right, 2 bad usage or bad input.
)";
}

} // namespace attn::plan
