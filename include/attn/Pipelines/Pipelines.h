//===- Pipelines.h - The order of passes ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one place that says which pass follows which. The programs, the tests and
// every embedding build their pass managers here; test/Pipelines pins the text.
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
  /// Adds passes that lower steps of updates (AttnStepOps.td) in ways of their own, in front of attn's
  /// lowerings, which take what is left.
  std::function<void(OpPassManager &kernels)> steps = {};
};

/// Adds the passes that take a module from the level before `stage` to `stage`.
void addStage(OpPassManager &manager, Stage stage, const PipelineOptions &options);

/// Adds all passes up to and including `stage`.
void addStagesUpTo(OpPassManager &manager, Stage stage, const PipelineOptions &options);

/// Makes the dialects, passes and the pipeline `attn-pipeline` known to MLIR's command line.
void registerEverything(DialectRegistry &registry);

/// Dialects that attn reads and produces.
void registerDialects(DialectRegistry &registry);

/// They alone: made at the first call, for the contexts of a whole process.
const DialectRegistry &allDialects();

} // namespace mlir::attn

#endif
