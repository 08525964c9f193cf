//===- attn-plan.cpp - Plans of forests, without running them -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Report.h"
#include "attn_rt/support/File.h"
#include "attn_rt/support/Version.h"

#include <cstdio>
#include <iostream>
#include <iterator>

using namespace attn;

namespace {

rt::Result<std::string> readInput(const std::string &file) {
  if (file != "-")
    return rt::readFile(file);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

rt::Status writeOutput(const std::string &file, const std::string &text) {
  if (file != "-")
    return rt::writeFile(file, text);
  if (fwrite(text.data(), 1, text.size(), stdout) == text.size() && fflush(stdout) == 0)
    return {};
  return rt::inputError("cannot write to standard output");
}

/// Computes everything before it writes anything.
rt::Status run(const plan::Options &options) {
  const rt::Result<std::string> text = readInput(options.file);
  if (!text)
    return text.error();
  const rt::Result<rt::Workload> workload = rt::readWorkload(*text, options.file);
  if (!workload)
    return workload.error();
  std::vector<plan::Figures> all;
  size_t main = 0;
  for (size_t i = 0; i < std::size(rt::strategyNames); ++i) {
    const auto strategy = static_cast<rt::Strategy>(i);
    if (options.strategy && *options.strategy != strategy)
      continue;
    if (strategy == options.strategy.value_or(rt::Strategy::Flatten))
      main = all.size();
    rt::Result<plan::Figures> figures = plan::measure(*workload, {strategy, options.blocks});
    if (!figures)
      return rt::inputError(options.file + ": " + figures.error().message);
    all.push_back(*std::move(figures));
  }
  const std::string table = plan::tableText(*workload, all, options.blocks);
  const std::string json = options.json.empty() ? "" : plan::jsonText(*workload, all, main, options.blocks);
  const std::string svg =
      options.svg.empty() ? ""
                          : plan::svgText(*workload, all[main].longest, {all[main].strategy, options.blocks});
  if (!options.json.empty())
    if (rt::Status status = writeOutput(options.json, json); !status)
      return status;
  if (!options.svg.empty())
    if (rt::Status status = writeOutput(options.svg, svg); !status)
      return status;
  return options.json == "-" || options.svg == "-" ? rt::Status() : writeOutput("-", table);
}

} // namespace

int main(int argc, char **argv) {
  const rt::Result<plan::Options> options = plan::parseOptions({argv + 1, argv + argc});
  rt::Status status;
  if (!options)
    status = options.error();
  else if (options->help)
    fputs(plan::helpText().c_str(), stdout);
  else if (options->version)
    printf("attn-plan %s\n", rt::version());
  else
    status = run(*options);
  if (status)
    return 0;
  fprintf(stderr, "attn-plan: error: %s\n", status.error().message.c_str());
  return status.error().kind == rt::ErrorKind::Input ? 2 : 1;
}
