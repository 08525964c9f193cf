//===- Options.cpp - The command line of attn-workload --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Options.h"

#include <algorithm>
#include <charconv>

namespace attn::workload {

namespace {

constexpr std::string_view kinds[] = {"few-shot", "reasoning", "tokens", "requests", "composed"};
constexpr std::string_view kindNames = "few-shot, reasoning, tokens, requests or composed";

struct Number {
  const char *kind, *name; ///< kind: empty for all
  int64_t least, most, otherwise;
};

constexpr int64_t large = 1 << 24;
constexpr Number numbers[] = {
    {"few-shot", "--branches", 1, large, 20},
    {"few-shot", "--prompt", 0, large, 4000},
    {"few-shot", "--iterations", 1, 1 << 16, 400},
    {"reasoning", "--tree", 0, large, 0},
    {"reasoning", "--every", 1, large, 1},
    {"tokens", "--record", 0, large, 0},
    {"tokens", "--context", 0, large, 1000},
    {"tokens", "--tokens", 1, 1024, 63},
    {"tokens", "--steps", 1, 1 << 16, 100},
    {"requests", "--first", 0, large, 0},
    {"requests", "--count", 1, large, 64},
    {"requests", "--generated", 0, large, 16},
    {"requests", "--sharing", 1, large, 1},
    {"composed", "--trees", 1, 1 << 12, 2},
    {"composed", "--depth", 1, 16, 4},
    {"composed", "--width", 1, 64, 2},
    {"composed", "--prompt", 1, large, 2000},
    {"composed", "--longest", 1, large, 500},
    {"composed", "--draft", 0, 1024, 16},
    {"", "--scale", 1, large, 1},
    {"", "--seed", 0, large, 1},
    {"", "--q-heads", 1, 1 << 16, 32},
    {"", "--kv-heads", 1, 1 << 16, 32},
    {"", "--dim", 1, 1 << 16, 128},
    {"", "--layers", 1, 1 << 16, 32},
    {"", "--bytes", 1, large, 0},
};

bool belongs(const Number &number, const std::string &kind) { return !*number.kind || kind == number.kind; }

rt::Status setNumber(Options &options, const std::string &name, const std::string &value) {
  std::string legal;
  for (const Number &number : numbers) {
    if (!belongs(number, options.kind))
      continue;
    legal += std::string(number.name) + ", ";
    if (name != number.name)
      continue;
    int64_t &to = options.numbers[name];
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), to);
    if (error == std::errc() && end == value.data() + value.size() && to >= number.least && to <= number.most)
      return {};
    return rt::inputError(name + " expects a whole number of " + std::to_string(number.least) + " to " +
                          std::to_string(number.most) + ", got '" + value + "'");
  }
  return rt::inputError("there is no option '" + name + "' of " + options.kind + ", expected one of " +
                        legal + "-o, --version, --help");
}

} // namespace

rt::Result<Options> parseOptions(const std::vector<std::string> &arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      return options;
    }
    if (argument == "--version") {
      options.version = true;
      return options;
    }
    if (options.kind.empty()) {
      options.kind = argument;
      if (std::find(std::begin(kinds), std::end(kinds), argument) == std::end(kinds))
        return rt::inputError("expected " + std::string(kindNames) + ", got '" + argument + "'");
      for (const Number &number : numbers)
        if (belongs(number, argument))
          options.numbers[number.name] = number.otherwise;
      continue;
    }
    if (argument.empty() || argument[0] != '-') {
      const bool none = options.kind == "few-shot" || options.kind == "composed";
      if (none || !options.file.empty())
        return rt::inputError("expected " + std::string(none ? "no" : "one") + " file, got '" + argument +
                              "'");
      options.file = argument;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (equals == std::string::npos && i + 1 == arguments.size())
      return rt::inputError(name + " expects a value");
    const std::string value = equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
    if (name == "-o")
      options.out = value;
    else if (rt::Status status = setNumber(options, name, value); !status)
      return status.error();
  }
  if (options.kind.empty())
    return rt::inputError("expected " + std::string(kindNames) + "; --help shows the usage");
  if (options["--bytes"] == 0)
    options.numbers["--bytes"] = 4 * options["--dim"];
  return options;
}

std::string helpText() {
  return R"(usage: attn-workload KIND [FILE] [OPTIONS]

Writes workloads for attn-plan and attn-run: decoding steps over forests. Without FILE the data is generated, the
same for a --seed everywhere.

  few-shot            a prompt and branches that grow by a token in each iteration (DeFT, Table 17)
    --branches N (20)  --prompt N (4000 tokens)  --iterations N (400)
  reasoning [FILE]    trees of thoughts: a list of trees of {id, tokens, start, end, children}
    --tree N (0)  --every N (1: take every so many iterations, each standing for that many)
  tokens [FILE]       speculated token trees: {tree, size, records}, verified after a growing context
    --record N (0)  --context N (1000 tokens)  --tokens N, --steps N (63, 100: of generated ones)
  requests [FILE]     one step of many requests: FILE.csv with ContextTokens and GeneratedTokens, or
                      FILE.jsonl with input_length, output_length and hash_ids (512-token prefixes)
    --first N (0)  --count N (64)  --generated N (16: tokens each has by now, or all of its own)
    --sharing N (1: of generated ones, about so many share a prefix)
  composed            one step of deep trees with a draft after each leaf
    --trees N (2)  --depth N (4: levels below the prompt)  --width N (2: a node has 1 to so many children)
    --prompt N (2000 tokens)  --longest N (500: tokens of other nodes)  --draft N (16 tokens)

  --scale N (1)       every node's tokens over N, rounded up, but no fewer than its rows
  -o F                output file (-, standard output)
  --seed N (1)  --q-heads N (32)  --kv-heads N (32)  --dim N (128)  --layers N (32)
  --bytes N           bytes of K and V per token and KV head (4 x dim: 16 bits each)
  --version           print the version of attn

Exit status: 0 right, 2 bad usage or bad input.
)";
}

} // namespace attn::workload
