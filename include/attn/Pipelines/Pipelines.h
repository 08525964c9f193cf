//===- Pipelines.h - The order of passes ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The only place that orders the passes. The programs, the tests and every embedding build their pass
// managers here; test/Pipelines pins the text.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_PIPELINES_PIPELINES_H
#define ATTN_PIPELINES_PIPELINES_H

#include "mlir/Pass/PassManager.h"

#include <functional>
#include <string>

namespace mlir::attn {

/// The levels a module passes through, each printable with --emit.
enum class Stage { Problem, Online, Tile, Machine };

struct PipelineOptions {
  std::string target = "sm_90a";
  std::string schedule = "auto"; ///< auto, mma or wgmma
  /// Adds passes that lower steps of updates (AttnStepOps.td) in other ways, before attn's own lowerings,
  /// which take the remaining steps.
  std::function<void(OpPassManager &kernels)> steps = {};
};

/// Adds the passes that take a module from the level before `stage` to `stage`.
void addStage(OpPassManager &manager, Stage stage, const PipelineOptions &options);

/// Adds all passes up to and including `stage`.
void addStagesUpTo(OpPassManager &manager, Stage stage, const PipelineOptions &options);

/// Registers the dialects, passes and the pipeline `attn-pipeline` for MLIR's command line.
void registerEverything(DialectRegistry &registry);

/// Registers the dialects that attn reads and produces.
void registerDialects(DialectRegistry &registry);

/// Returns a registry of these dialects, made at the first call and shared by the contexts of a process.
const DialectRegistry &allDialects();

} // namespace mlir::attn

#endif
