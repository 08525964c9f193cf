//===- Compile.cpp - From a problem to a launchable kernel ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Pipelines/Compile.h"

#include "attn/Dialect/Attn/IR/PageOps.h"
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Attn/IR/Source.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Target/GpuCode.h"
#include "attn/Target/Manifest.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

bool mlir::attn::isKnownSchedule(StringRef name) {
  return name == "auto" || name == "mma" || name == "wgmma";
}
std::string mlir::attn::listSchedules() { return "auto, mma, wgmma"; }

SmallVector<func::FuncOp> mlir::attn::attentionFunctions(ModuleOp module) {
  SmallVector<func::FuncOp> functions;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.getOps<AttendOp>().empty() || findRowCopy(function) || findPageOp(function))
      functions.push_back(function);
  return functions;
}

InFlightDiagnostic mlir::attn::emitNoFunction(ModuleOp module) {
  return module.emitError(
      "no attention function: expected a func.func with an attn.attend, an operation on a cache "
      "(attn.append, attn.move, attn.gather, attn.requantize) or on a table of pages (attn.manage_pages, "
      "attn.compact_tokens, attn.revise_tokens), or on states of ranks (attn.merge_states, "
      "attn.exchange_states)");
}

FailureOr<func::FuncOp> mlir::attn::findEntry(ModuleOp module, StringRef entry) {
  SmallVector<func::FuncOp> functions = attentionFunctions(module);
  if (functions.empty())
    return emitNoFunction(module);
  auto names = [&] {
    std::string list;
    for (func::FuncOp function : functions)
      list += (list.empty() ? "'" : ", '") + function.getName().str() + "'";
    return list;
  };
  if (entry.empty()) {
    if (functions.size() == 1)
      return functions.front();
    return functions[1].emitError("more than one attention function; choose one with --entry: ") << names();
  }
  for (func::FuncOp function : functions)
    if (function.getName() == entry)
      return function;
  return module.emitError("no attention function named '") << entry << "'; there is " << names();
}

/// Returns the schedule's name in the manifest: that of the kernel for many rows.
static std::string scheduleOf(gpu::GPUModuleOp kernels) {
  for (auto kernel : kernels.getOps<LLVM::LLVMFuncOp>())
    if (auto schedule = tile::scheduleAttr.get(kernel))
      if (schedule.getKind() == tile::ScheduleKind::Wgmma)
        return "wgmma";
  return "mma";
}

static LogicalResult runStage(ModuleOp module, Stage stage, const PipelineOptions &options) {
  PassManager manager(module.getContext());
  (void)applyPassManagerCLOptions(
      manager);                  // --mlir-print-ir-after and similar options, if the program has them
  manager.enableVerifier(false); // tests verify each level; the parser verifies users' input
  addStage(manager, stage, options);
  return manager.run(module);
}

FailureOr<CompiledKernel> mlir::attn::compileProblem(ModuleOp module, StringRef entry,
                                                     const CompileOptions &options) {
  const Chip *chip = findChip(options.target);
  if (!chip)
    return module.emitError("unknown target '") << options.target << "'; known are " << listChips();
  if (!isKnownSchedule(options.schedule))
    return module.emitError("unknown schedule '") << options.schedule << "'; known are " << listSchedules();
  FailureOr<func::FuncOp> function = findEntry(module, entry);
  if (failed(function))
    return failure();

  CompiledKernel kernel;
  kernel.entry = function->getName().str();
  kernel.problem = ModuleOp::create(module.getLoc());
  func::FuncOp asked = function->clone();
  kernel.problem->getBody()->push_back(asked);
  if (failed(askFor(asked, options.asks)))
    return failure();
  PipelineOptions pipeline{options.target, options.schedule};
  if (failed(runStage(*kernel.problem, Stage::Problem, pipeline)))
    return failure();

  kernel.machine = kernel.problem->clone();
  if (failed(runStage(*kernel.machine, Stage::Online, pipeline)))
    return failure();
  FailureOr<rt::Manifest> manifest = describeProblem(*kernel.machine->getOps<func::FuncOp>().begin());
  if (failed(manifest))
    return failure();
  if (failed(runStage(*kernel.machine, Stage::Tile, pipeline)) ||
      failed(runStage(*kernel.machine, Stage::Machine, pipeline)))
    return failure();

  auto kernels = *kernel.machine->getOps<gpu::GPUModuleOp>().begin();
  if (failed(describeKernels(kernels, *chip, *manifest)))
    return failure();
  manifest->schedule = manifest->hasPlan() ? scheduleOf(kernels) : "copy";
  llvm::raw_string_ostream(manifest->problem) << *kernel.problem;
  manifest->contentHash = rt::computeContentHash(*manifest);
  kernel.manifest = rt::writeManifest(*manifest);
  if (options.ptx) {
    FailureOr<GpuCode> code = emitGpuCode(kernels, *chip, /*assembles=*/false);
    if (failed(code))
      return failure();
    kernel.ptx = code->ptx();
  }
  return kernel;
}

OwningOpRef<ModuleOp> mlir::attn::parseProblemFile(StringRef path, llvm::SourceMgr &sources,
                                                   MLIRContext *context) {
  auto file = llvm::MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/true);
  if (std::error_code error = file.getError()) {
    emitError(UnknownLoc::get(context)) << "cannot read '" << path << "': " << error.message();
    return {};
  }
  if (auto fault = findSourceFault((*file)->getBuffer())) {
    emitError(FileLineColLoc::get(context, path, fault->line, fault->column)) << fault->message;
    return {};
  }
  sources.AddNewSourceBuffer(std::move(*file), SMLoc());
  return parseSource(sources, context);
}
