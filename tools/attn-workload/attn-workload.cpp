//===- attn-workload.cpp - Workloads for attn-plan ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Options.h"
#include "attn_rt/support/File.h"
#include "attn_rt/support/Version.h"
#include "attn_rt/workload/DecodingTree.h"
#include "attn_rt/workload/DeepTrees.h"
#include "attn_rt/workload/Requests.h"
#include "attn_rt/workload/Speculation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace attn;
using workload::Options;
using Steps = rt::Result<std::vector<rt::WorkloadStep>>;

namespace {

/// Checks an index: FILE may hold fewer items than --tree or --record name.
template <typename T>
rt::Status expectOne(const std::vector<T> &list, const Options &options, const char *name) {
  if (static_cast<size_t>(options[name]) < list.size())
    return {};
  return rt::inputError(std::string(name) + " expects a number below " + std::to_string(list.size()) +
                        ", the number in '" + options.file + "', got " + std::to_string(options[name]));
}

Steps reasoning(const Options &options) {
  if (options.file.empty())
    return rt::generateDecodingTree(static_cast<uint64_t>(options["--seed"]), 1104,
                                    {{10, 0, 1400}, {5, 3, 1400}, {10, 2, 1400}})
        .steps(options["--every"]);
  const rt::Result<std::string> text = rt::readFile(options.file);
  if (!text)
    return text.error();
  const auto trees = rt::readDecodingTrees(*text, options.file);
  if (!trees)
    return trees.error();
  if (rt::Status status = expectOne(*trees, options, "--tree"); !status)
    return status.error();
  return (*trees)[static_cast<size_t>(options["--tree"])].steps(options["--every"]);
}

Steps tokens(const Options &options) {
  if (options.file.empty()) {
    const rt::TokenTree tree = rt::generateTokenTree(options["--tokens"]);
    const std::vector<int32_t> accepted =
        rt::generateAccepted(static_cast<uint64_t>(options["--seed"]), tree, options["--steps"]);
    return rt::speculationSteps(tree, accepted, options["--context"]);
  }
  const rt::Result<std::string> text = rt::readFile(options.file);
  if (!text)
    return text.error();
  const auto run = rt::readVerification(*text, options.file);
  if (!run)
    return run.error();
  if (rt::Status status = expectOne(run->accepted, options, "--record"); !status)
    return status.error();
  return rt::speculationSteps(run->tree, run->accepted[static_cast<size_t>(options["--record"])],
                              options["--context"]);
}

Steps requests(const Options &options) {
  const int64_t first = options["--first"], count = options["--count"];
  std::vector<rt::Request> all;
  if (options.file.empty()) {
    all = rt::generateRequests(static_cast<uint64_t>(options["--seed"]), static_cast<int32_t>(first + count),
                               options["--sharing"]);
  } else {
    const rt::Result<std::string> text = rt::readFile(options.file);
    if (!text)
      return text.error();
    auto read = options.file.ends_with(".csv") ? rt::readRequestsCsv(*text, options.file)
                                               : rt::readRequestsJsonl(*text, options.file);
    if (!read)
      return read.error();
    all = std::move(*read);
  }
  if (first + count > std::ssize(all))
    return rt::inputError("expected --first and --count within the " + std::to_string(all.size()) +
                          " requests of '" + options.file + "', got " + std::to_string(first) + " and " +
                          std::to_string(count));
  return std::vector{
      rt::requestStep(std::span(all).subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
                      options["--generated"])};
}

Steps composed(const Options &options) {
  const auto number = [&](const char *name) { return static_cast<int32_t>(options[name]); };
  const rt::DeepTrees shape{number("--trees"),  number("--depth"),   number("--width"),
                            number("--prompt"), number("--longest"), number("--draft")};
  constexpr double mostLeaves = 1 << 16;
  if (const double leaves = shape.trees * std::pow(shape.width, shape.depth); leaves > mostLeaves)
    return rt::inputError("expected --trees x --width ^ --depth of at most 65536 leaves, got " +
                          std::to_string(shape.trees) + " x " + std::to_string(shape.width) + " ^ " +
                          std::to_string(shape.depth));
  return std::vector{rt::generateDeepTrees(static_cast<uint64_t>(options["--seed"]), shape)};
}

rt::Status run(const Options &options) {
  Steps steps = options.kind == "few-shot"
                    ? rt::fewShotSteps(options["--branches"], options["--prompt"], options["--iterations"])
                : options.kind == "reasoning" ? reasoning(options)
                : options.kind == "tokens"    ? tokens(options)
                : options.kind == "composed"  ? composed(options)
                                              : requests(options);
  if (!steps)
    return steps.error();
  if (steps->empty())
    return rt::inputError("nothing is generated in '" + options.file + "': there is no step to write");
  rt::scaleDown(*steps, static_cast<int32_t>(options["--scale"]));
  const rt::Workload workload{options["--q-heads"], options["--kv-heads"], options["--dim"],
                              options["--layers"],  options["--bytes"],    std::move(*steps)};
  const std::string text = rt::writeWorkload(workload);
  // A workload that attn-plan could not read is not written.
  if (const auto again = rt::readWorkload(text, "the workload"); !again)
    return again.error();
  if (options.out != "-")
    return rt::writeFile(options.out, text);
  if (fwrite(text.data(), 1, text.size(), stdout) == text.size() && fflush(stdout) == 0)
    return {};
  return rt::inputError("cannot write to standard output");
}

} // namespace

int main(int argc, char **argv) {
  const rt::Result<Options> options = workload::parseOptions({argv + 1, argv + argc});
  rt::Status status;
  if (!options)
    status = options.error();
  else if (options->help)
    fputs(workload::helpText().c_str(), stdout);
  else if (options->version)
    printf("attn-workload %s\n", rt::version());
  else
    status = run(*options);
  if (status)
    return 0;
  fprintf(stderr, "attn-workload: error: %s\n", status.error().message.c_str());
  return status.error().kind == rt::ErrorKind::Input ? 2 : 1;
}
