//===- Compile.h - From a problem to a launchable kernel --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PIPELINES_COMPILE_H
#define ATTN_PIPELINES_COMPILE_H

#include "attn/Pipelines/Pipelines.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>
#include <string>
#include <vector>

namespace llvm {
class SourceMgr;
}

namespace mlir::attn {

/// The order in which gradients are added up: one in every run, any, or one in two launches (AttnOrder).
enum class Order { Fixed, Any, Apart };

/// Requests for the entry function beside its text (AttnDialect.td, "Requests of a function").
struct Asks {
  std::optional<std::vector<std::string>> backward; ///< gradients, including those of these tables
  std::optional<Order> ordered;                     ///< of sums of gradients
  std::optional<std::string> significance;          ///< max, mean or sum
  std::optional<int32_t> significanceRows;          ///< none: all rows
  bool devicePlan = false;
  std::optional<std::string> numerics; ///< row

  /// Whether there is any request.
  bool any() const {
    return backward || ordered || significance || significanceRows || devicePlan || numerics;
  }
};

struct CompileOptions {
  std::string target = "sm_90a";
  std::string schedule = "auto"; ///< auto, mma or wgmma
  bool ptx = true;               ///< false: stop at the machine level, which suffices for the host device
  Asks asks = {};
};

/// All inputs of a launch, and the levels they came from. Modules belong to the context of the input.
struct CompiledKernel {
  std::string entry;
  OwningOpRef<ModuleOp> problem; ///< the normalised problem, input of the reference
  OwningOpRef<ModuleOp> machine; ///< one gpu.module at the machine level, executed by the host device
  std::string ptx;
  std::string manifest; ///< JSON, see attn_rt/artifact/Artifact.h
};

/// Whether CompileOptions::schedule may be `name`, and the legal names, for messages.
bool isKnownSchedule(StringRef name);
std::string listSchedules();

/// The attention functions of a module, in order: those with an `attn.attend` or an operation on a cache.
SmallVector<func::FuncOp> attentionFunctions(ModuleOp module);

/// Reports that a module has no attention function.
InFlightDiagnostic emitNoFunction(ModuleOp module);

/// Returns the attention function of that name, or the only one if no name is given. Errors are diagnostics.
FailureOr<func::FuncOp> findEntry(ModuleOp module, StringRef entry);

/// Puts the requests on the function, as the attributes that a text would have. Fails if the function has
/// such an attribute with another value, or is no attention.
LogicalResult askFor(func::FuncOp function, const Asks &asks);

/// Compiles the function `entry` (the only one if empty). Errors are diagnostics.
FailureOr<CompiledKernel> compileProblem(ModuleOp module, StringRef entry, const CompileOptions &options);

/// Parses a file as programs do: `-` is the standard input, `&` is accepted, every error is a diagnostic. The
/// text lives in `sources`, where a diagnostic handler finds the lines it quotes.
OwningOpRef<ModuleOp> parseProblemFile(StringRef path, llvm::SourceMgr &sources, MLIRContext *context);

} // namespace mlir::attn

#endif
