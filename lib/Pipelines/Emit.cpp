//===- Emit.cpp - Any level of a problem as text --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Pipelines/Emit.h"

#include "attn/Target/Ptxas.h"

using namespace mlir;
using namespace mlir::attn;

static constexpr std::pair<StringLiteral, Level> names[] = {
    {"problem", Level::Problem},  {"online", Level::Online}, {"tile", Level::Tile},
    {"machine", Level::Machine},  {"ptx", Level::Ptx},       {"cubin", Level::Cubin},
    {"manifest", Level::Manifest}};

std::optional<Level> mlir::attn::parseLevel(StringRef name) {
  for (const auto &[known, level] : names)
    if (known == name)
      return level;
  return std::nullopt;
}

std::string mlir::attn::listLevels() {
  std::string list;
  for (const auto &[name, level] : names)
    list += (list.empty() ? "" : ", ") + name.str();
  return list;
}

/// Emits a level that is one module with all attention functions of the input.
static FailureOr<std::string> emitModule(ModuleOp module, Stage stage, StringRef entry,
                                         const CompileOptions &options) {
  if (attentionFunctions(module).empty())
    return emitNoFunction(module);
  if (!entry.empty() || options.asks.any()) {
    FailureOr<func::FuncOp> chosen = findEntry(module, entry);
    if (failed(chosen) || failed(askFor(*chosen, options.asks)))
      return failure();
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function != *chosen)
        function.erase();
  }
  PassManager manager(module.getContext());
  (void)applyPassManagerCLOptions(
      manager); // --mlir-print-ir-after and similar options, if the program has them
  addStagesUpTo(manager, stage, {options.target, options.schedule});
  if (failed(manager.run(module)))
    return failure();
  std::string text;
  llvm::raw_string_ostream(text) << module << "\n";
  return text;
}

FailureOr<std::string> mlir::attn::emitLevel(ModuleOp module, Level level, StringRef entry,
                                             const CompileOptions &given, std::string *log) {
  if (level == Level::Problem || level == Level::Online || level == Level::Tile)
    return emitModule(module,
                      level == Level::Problem  ? Stage::Problem
                      : level == Level::Online ? Stage::Online
                                               : Stage::Tile,
                      entry, given);
  CompileOptions options = given;
  options.ptx = level == Level::Ptx || level == Level::Cubin;
  FailureOr<CompiledKernel> kernel = compileProblem(module, entry, options);
  if (failed(kernel))
    return failure();
  if (level == Level::Ptx)
    return std::move(kernel->ptx);
  if (level == Level::Manifest)
    return kernel->manifest + "\n";
  if (level == Level::Machine) {
    std::string text;
    llvm::raw_string_ostream(text) << *kernel->machine << "\n";
    return text;
  }
  llvm::Expected<Cubin> cubin = assemble(kernel->ptx, *findChip(options.target));
  if (!cubin)
    return module.emitError(llvm::toString(cubin.takeError()));
  if (log)
    *log = std::move(cubin->log);
  return std::string(cubin->bytes.begin(), cubin->bytes.end());
}
