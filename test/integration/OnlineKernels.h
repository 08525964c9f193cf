//===- OnlineKernels.h - Kernels of text at the online level ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_INTEGRATION_ONLINEKERNELS_H
#define ATTN_TEST_INTEGRATION_ONLINEKERNELS_H

#include "attn/Host/Host.h"
#include "attn/Reference/Reference.h"
#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/plan/Plan.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"

namespace attn::test {

/// What kernels on the host device made of generated tensors, and what the reference makes of them.
struct OnlineResults {
  rt::TensorMap outputs;
  mlir::attn::ReferenceResult reference;
};

/// Compiles and runs functions at the online level, which no command does: as they stand, without
/// canonicalization. Failures are GoogleTest's.
class OnlineKernels {
public:
  /// With the dialects of attn and `Dialects`.
  template <typename... Dialects> static std::unique_ptr<OnlineKernels> with() {
    mlir::DialectRegistry registry;
    (registry.insert<Dialects>(), ...);
    return std::make_unique<OnlineKernels>(registry);
  }
  explicit OnlineKernels(mlir::DialectRegistry &registry);

  /// Makes kernels of the one function of `text` for `schedule`: mma, wgmma or auto.
  void compile(const std::string &text, const std::string &schedule);
  /// What a GPU of target sm_90a gets.
  std::string ptx();
  /// Runs the kernels on tensors for the one function of `problem`, at the problem level, which is what the
  /// reference evaluates. `dims` is as in `attn-run --dim`.
  void run(const std::string &problem, const std::string &dims, const rt::PlanOptions &options,
           OnlineResults &results);

  /// What lowers steps in ways of its own (PipelineOptions).
  std::function<void(mlir::OpPassManager &)> steps;

private:
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> machine;
  rt::Manifest manifest;
  std::unique_ptr<rt::host::LoadedCode> code;
};

/// Expects outputs that are the reference's, as close as bf16 is.
void expectNear(const OnlineResults &results);

} // namespace attn::test

#endif
