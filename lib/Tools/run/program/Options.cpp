//===- Options.cpp - The command line of attn-run -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One table drives parsing, the help text and the suggestions for misspelt options. LLVM's command line
// library is not used: its options are global to the process, and the options of every linked backend would
// appear here.
//
//===----------------------------------------------------------------------===//
#include "Options.h"

#include "attn_rt/support/Chips.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <charconv>
#include <functional>

using namespace attn;
using namespace attn::run;

namespace {

struct Option {
  const char *name;
  const char *value; ///< name of the value in the help; null for a switch
  std::string help;
  std::function<rt::Status(Options &, const std::string &)> set;
};

template <typename T> rt::Status setNumber(const char *name, const std::string &text, T least, T &out) {
  T value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= least) {
    out = value;
    return {};
  }
  return rt::inputError(std::string(name) + " expects a whole number of at least " + std::to_string(least) +
                        ", got '" + text + "'");
}

rt::Status setOneOf(const char *name, const std::string &text, const std::vector<std::string> &legal,
                    std::string &out) {
  std::string list;
  for (const std::string &choice : legal) {
    if (text == choice) {
      out = text;
      return {};
    }
    list += (list.empty() ? "" : ", ") + choice;
  }
  return rt::inputError(std::string(name) + " expects one of " + list + ", got '" + text + "'");
}

Option stringOption(const char *name, const char *value, const char *help, std::string Options::*member) {
  return {name, value, help, [=](Options &options, const std::string &text) -> rt::Status {
            if (text.empty())
              return rt::inputError(std::string(name) + " expects " + value + ", got nothing");
            options.*member = text;
            return {};
          }};
}

Option switchOption(const char *name, const char *help, bool Options::*member) {
  return {name, nullptr, help, [=](Options &options, const std::string &) -> rt::Status {
            options.*member = true;
            return {};
          }};
}

const std::vector<Option> &table() {
  static const std::vector<Option> options = {
      stringOption("--entry", "NAME", "the attention function to run; needed if the file has several",
                   &Options::entry),
      {"--device", "host|cuda", "where to run; cuda if there is a driver, else host",
       [](Options &o, const std::string &text) {
         return setOneOf("--device", text, {"host", "cuda"}, o.device);
       }},
      {"--target", "CHIP", "one of " + rt::listChips() + "; the GPU's own, or sm_90a on host",
       [](Options &o, const std::string &text) {
         std::vector<std::string> names;
         for (const rt::Chip &chip : rt::allChips())
           names.emplace_back(chip.name);
         return setOneOf("--target", text, names, o.target);
       }},
      {"--schedule", "auto|mma|wgmma", "the family of instructions to build on",
       [](Options &o, const std::string &text) {
         return setOneOf("--schedule", text, {"auto", "mma", "wgmma"}, o.schedule);
       }},
      {"--strategy", "NAME",
       "how shared tokens are read: by-query, by-node, by-node-chunk, flatten (the default); auto: "
       "whichever is predicted to be faster",
       [](Options &o, const std::string &text) -> rt::Status {
         std::optional<rt::Strategy> strategy = rt::parseStrategy(text);
         o.quickest = text == "auto";
         o.strategy = strategy.value_or(rt::Strategy::Flatten);
         if (strategy || o.quickest)
           return {};
         return rt::inputError("--strategy expects one of " +
                               llvm::join(llvm::ArrayRef(rt::strategyNames), ", ") + ", auto, got '" + text +
                               "'");
       }},
      {"--fixed-split", "TOKENS", "split only at multiples of this: bits depend on no other sequence",
       [](Options &o, const std::string &text) {
         return setNumber<int64_t>("--fixed-split", text, 1, o.fixedSplit);
       }},
      {"--blocks", "N", "thread blocks for the work; by default enough to fill the device",
       [](Options &o, const std::string &text) {
         int64_t blocks = 0;
         rt::Status status = setNumber<int64_t>("--blocks", text, 1, blocks);
         o.blocks = blocks;
         return status;
       }},
      {"--dim", "NAME=VALUE", "a dimension, see below; may be given many times",
       [](Options &o, const std::string &text) -> rt::Status {
         o.dims.push_back(text);
         return {};
       }},
      {"--strides", "NAME",
       "memory layout of queries, keys, values and output: dense (the default), heads-first, interleaved, "
       "halves, padded",
       [](Options &o, const std::string &text) {
         return setOneOf("--strides", text, {"dense", "heads-first", "interleaved", "halves", "padded"},
                         o.strides);
       }},
      {"--seed", "N", "seeds the generated data and the host device's scheduler (0)",
       [](Options &o, const std::string &text) { return setNumber<uint64_t>("--seed", text, 0, o.seed); }},
      stringOption("--workload", "F.json", "generate tensors for a forest, as attn-workload writes them",
                   &Options::workload),
      {"--step", "N", "which step of the workload (0)",
       [](Options &o, const std::string &text) {
         return setNumber<int64_t>("--step", text, 0, o.step.emplace());
       }},
      stringOption("--inputs", "F.safetensors", "read the tensors instead of generating them",
                   &Options::inputs),
      stringOption("--save-inputs", "F", "write the tensors that were used", &Options::saveInputs),
      stringOption("--outputs", "F", "write o and lse", &Options::outputs),
      switchOption("--check", "compare with the float64 reference; exit 1 past the tolerance",
                   &Options::check),
      stringOption("--json", "F", "write errors, counters and times; - is standard output", &Options::json),
      stringOption("--svg", "F", "draw the plan: the tokens that rows see, and the work of each block",
                   &Options::svg),
      switchOption("--shuffle", "host: shuffle the order in which threads and blocks run", &Options::shuffle),
      {"--repeat", "N", "run N times; every run must give the same bits (1)",
       [](Options &o, const std::string &text) { return setNumber<int64_t>("--repeat", text, 1, o.repeat); }},
      switchOption("--replay", "record the launch (on a GPU as a graph) and let every run replay it",
                   &Options::replay),
      switchOption("--version", "print the versions of attn and of its LLVM", &Options::version),
      switchOption("--help", "this text", &Options::help),
  };
  return options;
}

std::string nearest(llvm::StringRef given) {
  const Option *best = nullptr;
  unsigned distance = 4;
  for (const Option &option : table())
    if (unsigned d = given.edit_distance(option.name, true, distance); d < distance)
      best = &option, distance = d;
  return best ? std::string("; did you mean ") + best->name + "?" : "; --help lists them";
}

} // namespace

rt::Result<Options> run::parseOptions(const std::vector<std::string> &arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    if (argument.empty() || argument[0] != '-' || argument == "-") {
      if (!options.file.empty())
        return rt::inputError("expected one file, got '" + options.file + "' and '" + argument + "'");
      options.file = argument;
      continue;
    }
    size_t equals = argument.find('=');
    std::string name = argument == "-h" ? "--help" : argument.substr(0, equals);
    const Option *option = nullptr;
    for (const Option &candidate : table())
      if (name == candidate.name)
        option = &candidate;
    if (!option)
      return rt::inputError("there is no option '" + name + "'" + nearest(name));
    std::string value;
    if (!option->value && equals != std::string::npos)
      return rt::inputError(name + " takes no value, got '" + argument.substr(equals + 1) + "'");
    if (option->value) {
      if (equals == std::string::npos && i + 1 == arguments.size())
        return rt::inputError(name + " expects " + option->value);
      value = equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
    }
    if (rt::Status status = option->set(options, value); !status)
      return status.error();
  }
  if (!options.workload.empty() && !options.inputs.empty())
    return rt::inputError("--workload generates tensors, and --inputs reads them: give one of the two");
  if (options.step && options.workload.empty())
    return rt::inputError("--step chooses a step of a --workload, and there is none");
  if (options.file.empty() && !options.help && !options.version)
    return rt::inputError("expected a file of MLIR; --help shows the usage");
  return options;
}

std::string run::helpText() {
  std::string text = "usage: attn-run FILE [OPTIONS]\n\n"
                     "Compiles the attention function of FILE, or loads it if attn-opt --emit=artifact made\n"
                     "the file, runs it on given or generated tensors and prints a report. - reads a text\n"
                     "from standard input.\n\n";
  for (const Option &option : table()) {
    std::string left =
        std::string("  ") + option.name + (option.value ? std::string(" ") + option.value : "");
    left.resize(std::max<size_t>(left.size() + 2, 30), ' ');
    text += left + option.help + "\n";
  }
  text += R"(
Dimensions of generated tensors:
  --dim batch=8                    sequences (4)
  --dim q_len=1                    query rows of each sequence (1); they are its last rows
  --dim kv_len=512                 tokens of each sequence (512)
  --dim kv_len=100..2000           drawn for each sequence; in ragged stores for each of its KV heads
  --dim kv_len=@FILE.csv:COLUMN    read from the file, which repeats if it is too short
  --dim NAME=...                   any dimension that the file names in attn.dims
  --dim CLASS=2                    KV heads of a head class; the rest are assigned to the other classes in turn

A workload has steps of nodes, see attn-plan --help; a node's rows are its last tokens. A
function with one KV argument has an instance per node in it. With two, the second has the
new nodes: those below another node whose tokens are all rows, as drafts and responses. Only
dimensions that do not follow from the workload may be given, such as CLASS=2.

Page tables are scattered and shuffled; unlisted pages and the tails of listed ones hold NaN.
Exit status: 0 right, 1 wrong result or failed check, 2 bad usage or bad input.
)";
  return text;
}
