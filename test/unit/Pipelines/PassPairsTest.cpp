//===- PassPairsTest.cpp - Every pass on the result of every other --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass alone is a flag of attn-opt, and the file may be of any level. A pass changes its input, leaves it
// unchanged, or reports a fault. Its output is valid, and is text that can be read again.
//
//===----------------------------------------------------------------------===//
#include "attn/Dialect/Attn/IR/Source.h"
#include "attn/Pipelines/Pipelines.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/SourceMgr.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>

using namespace mlir;

namespace {

/// `anchor(name{options})`, the syntax of parsePassPipeline.
using Passes = std::vector<std::string>;

/// Returns the passes of a pipeline by their names in a textual pipeline, each in the operation that it runs
/// on.
Passes passesOf(OpPassManager &manager) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  manager.printAsTextualPipeline(stream);
  Passes passes;
  std::vector<std::string> anchors;
  std::string word;
  int options = 0;
  const auto end = [&] {
    if (!word.empty()) // the first anchor is the manager's own
      passes.push_back(anchors.size() > 1 ? anchors.back() + "(" + word + ")" : word);
    word.clear();
  };
  for (const char c : text) {
    options += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (options || c == '}') {
      word += c;
    } else if (c == '(') {
      anchors.push_back(std::exchange(word, {}));
    } else if (c == ')') {
      end();
      anchors.pop_back();
    } else if (c == ',') {
      end();
    } else {
      word += c;
    }
  }
  return passes;
}

struct Laboratory {
  DialectRegistry registry;
  Passes order; ///< all passes, in the order of the pipeline

  Laboratory() {
    mlir::attn::registerEverything(registry);
    MLIRContext context(registry, MLIRContext::Threading::DISABLED);
    PassManager manager(&context);
    mlir::attn::addStagesUpTo(manager, mlir::attn::Stage::Machine, {});
    order = passesOf(manager);
  }
  static const Laboratory &get() {
    static const Laboratory laboratory;
    return laboratory;
  }
};

OwningOpRef<ModuleOp> parse(MLIRContext &context, const std::string &text) {
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text), llvm::SMLoc());
  return mlir::attn::parseSource(sources, &context);
}

std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream(text) << module;
  return text;
}

/// Runs one pass alone, with the verifier after it, as attn-opt does.
LogicalResult run(ModuleOp module, const std::string &pass) {
  PassManager manager(module.getContext());
  if (failed(parsePassPipeline(pass, manager)))
    return failure();
  return manager.run(module);
}

/// Returns the result of each pass on a text, under its name; the text itself under "".
std::vector<std::pair<std::string, std::string>> levelsOf(const std::string &text) {
  MLIRContext context(Laboratory::get().registry, MLIRContext::Threading::DISABLED);
  std::vector<std::pair<std::string, std::string>> levels;
  OwningOpRef<ModuleOp> module = parse(context, text);
  EXPECT_TRUE(module) << text;
  if (!module)
    return levels;
  levels.emplace_back("", print(*module));
  for (const std::string &pass : Laboratory::get().order) {
    EXPECT_TRUE(succeeded(run(*module, pass))) << pass;
    std::string printed = print(*module);
    if (printed != levels.back().second)
      levels.emplace_back(pass, std::move(printed));
  }
  return levels;
}

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> found = {ATTN_SOURCE "/test/Dialect/Attn/page-ops.mlir",
                                              ATTN_SOURCE "/test/Conversion/choose-schedule-backward.mlir"};
  for (const auto &entry : std::filesystem::recursive_directory_iterator(ATTN_SOURCE "/examples"))
    if (entry.path().extension() == ".mlir")
      found.push_back(entry.path());
  std::sort(found.begin(), found.end()); // samples would not repeat in the order of the file system
  return found;
}

TEST(PassPairs, AChangeOrNothingOrAnError) {
  const char *full = getenv("ATTN_FULL");
  const size_t step =
      full && *full ? 1 : 47; // one in this many of all pairs: a prime, so that all passes are sampled
  size_t number = 0, changed = 0, refused = 0;
  std::set<std::string> passes(Laboratory::get().order.begin(), Laboratory::get().order.end());
  for (const std::filesystem::path &path : files()) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const auto &[made, level] : levelsOf(text)) {
      MLIRContext context(Laboratory::get().registry, MLIRContext::Threading::DISABLED);
      OwningOpRef<ModuleOp> module = parse(context, level);
      ASSERT_TRUE(module) << path << " behind " << made << ":\n" << level;
      for (const std::string &pass : passes) {
        if (number++ % step)
          continue;
        const std::string what = path.filename().string() + ": " + pass + " behind " + made;
        llvm::PrettyStackTraceString crash(what.c_str());
        int errors = 0;
        ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
          errors += diagnostic.getSeverity() == DiagnosticSeverity::Error && !diagnostic.str().empty();
          return success();
        });
        OwningOpRef<ModuleOp> given = module->clone();
        const bool ok = succeeded(run(*given, pass));
        EXPECT_EQ(ok, errors == 0) << what;
        refused += !ok;
        if (!ok)
          continue;
        const std::string printed = print(*given);
        changed += printed != level;
        if (printed != level)
          EXPECT_TRUE(parse(context, printed)) << what << ":\n" << printed;
      }
    }
  }
  EXPECT_GT(changed, number / step / 40);
  EXPECT_GT(refused, 0u);
}

} // namespace
