//===- Compile.h - From a problem to a launchable kernel --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PIPELINES_COMPILE_H
#define ATTN_PIPELINES_COMPILE_H

#include "attn/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace llvm {
class SourceMgr;
}

namespace mlir::attn {

struct CompileOptions {
  std::string target = "sm_90a";
  std::string schedule = "auto"; ///< auto, mma or wgmma
  bool ptx = true;               ///< false: stop at the machine level, which is all the host device needs
};

/// Everything a launch needs, and the levels it came from. Modules belong to the context of the input.
struct CompiledKernel {
  std::string entry;
  OwningOpRef<ModuleOp> problem; ///< the normalised problem: what the reference computes
  OwningOpRef<ModuleOp> machine; ///< one gpu.module at the machine level: what the host device executes
  std::string ptx;
  std::string manifest; ///< JSON, see attn_rt/artifact/Artifact.h
};

/// Whether CompileOptions::schedule may be `name`, and what it may be, for messages.
bool isKnownSchedule(StringRef name);
std::string listSchedules();

/// The attention functions of a module, in order: those with an `attn.attend` or an operation on a cache.
SmallVector<func::FuncOp> attentionFunctions(ModuleOp module);

/// Says that a module has none.
InFlightDiagnostic emitNoFunction(ModuleOp module);

/// The attention function of that name, or the only one where no name is given. Errors are diagnostics.
FailureOr<func::FuncOp> findEntry(ModuleOp module, StringRef entry);

/// Compiles the function `entry` (the only one when empty). Errors are diagnostics.
FailureOr<CompiledKernel> compileProblem(ModuleOp module, StringRef entry, const CompileOptions &options);

/// Parses a file as programs do: `-` is the standard input, `&` is accepted, every error is a diagnostic. The
/// text lives in `sources`, where a diagnostic handler finds the lines it quotes.
OwningOpRef<ModuleOp> parseProblemFile(StringRef path, llvm::SourceMgr &sources, MLIRContext *context);

} // namespace mlir::attn

#endif
