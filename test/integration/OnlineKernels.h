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

/// Results of kernels on the host device for generated tensors, and those of the reference.
struct OnlineResults {
  rt::TensorMap outputs;
  mlir::attn::ReferenceResult reference;
};

/// Compiles and runs functions at the online level, which no command does: unchanged, without
/// canonicalization. Failures are GoogleTest's.
class OnlineKernels {
public:
  /// Makes it with the dialects of attn and `Dialects`.
  template <typename... Dialects> static std::unique_ptr<OnlineKernels> with() {
    mlir::DialectRegistry registry;
    (registry.insert<Dialects>(), ...);
    return std::make_unique<OnlineKernels>(registry);
  }
  explicit OnlineKernels(mlir::DialectRegistry &registry);

  /// Compiles the one function of `text` to kernels for `schedule`: mma, wgmma or auto.
  void compile(const std::string &text, const std::string &schedule);
  /// Returns the PTX for target sm_90a.
  std::string ptx();
  /// Runs the kernels on tensors for the one function of `problem`, at the problem level, which the reference
  /// evaluates. `dims` is as in `attn-run --dim`.
  void run(const std::string &problem, const std::string &dims, const rt::PlanOptions &options,
           OnlineResults &results);

  /// Lowers steps in other ways (PipelineOptions).
  std::function<void(mlir::OpPassManager &)> steps;

private:
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> machine;
  rt::Manifest manifest;
  std::unique_ptr<rt::host::LoadedCode> code;
};

/// Expects outputs equal to the reference's, within bf16.
void expectNear(const OnlineResults &results);

} // namespace attn::test

#endif
