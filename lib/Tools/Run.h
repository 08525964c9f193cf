//===- Run.h - One run of attn-run ------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_H
#define ATTN_TOOLS_RUN_H

#include "attn/Pipelines/Compile.h"

#include "attn_rt/device/HostDevice.h"
#include "attn_rt/host/CodeObject.h"
#include "attn_rt/session/Session.h"

#include "run/inputs/Inputs.h"
#include "run/program/Options.h"
#include "run/program/Progress.h"
#include "run/report/Report.h"

#include "llvm/Support/SourceMgr.h"

namespace attn::run {

/// One run of the program. Members are in the order in which the steps make them.
class Run {
public:
  explicit Run(Options given)
      : options(std::move(given)), context(mlir::attn::allDialects(), mlir::MLIRContext::Threading::DISABLED),
        diagnostics(sources, &context) {
    context.printOpOnDiagnostic(false); // the file's own text is quoted instead
    // The compiler explains the choice of a schedule; the summary names the one that ran.
    context.getDiagEngine().registerHandler([this](mlir::Diagnostic &diagnostic) {
      return mlir::success(diagnostic.getSeverity() == mlir::DiagnosticSeverity::Remark &&
                           options.schedule == "auto");
    });
  }

  rt::Result<int> run();

private:
  rt::Status openDevice();
  rt::Status compile();
  /// Loads a file of artifacts instead of compiling.
  rt::Status load(const std::string &bytes);
  rt::Status makeTensors();
  rt::Result<rt::TensorMap> generateFromWorkload(const Arguments &arguments);
  rt::ModuleSource moduleSource() const;
  rt::Status execute();
  rt::Result<std::unique_ptr<rt::Recording>> recordLaunch(rt::Session &session);
  rt::Status launch(rt::Session &session);
  rt::Status compareWithReference();
  rt::Status checkGradients();
  rt::Status write();

  Options options;
  Dims dims;
  mlir::MLIRContext context;
  llvm::SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler diagnostics;
  Progress progress{"attn-run"};

  std::unique_ptr<rt::Device> device;
  rt::HostDevice *host = nullptr; ///< the device, if it is the host
  std::string target;

  mlir::attn::CompiledKernel kernel;
  rt::Manifest manifest;
  std::unique_ptr<rt::host::LoadedCode> hostCode;
  std::vector<std::vector<uint8_t>> cubins; ///< from a file of artifacts
  bool isChecked = false; ///< whether the host device's code is instrumented for its detectors
  double compileMs = 0, hostCodeMs = 0;
  double loadMs = 0; ///< for a file of artifacts

  rt::TensorMap tensors;
  std::optional<RunRecord> record;
  rt::TensorMap outputs;
};

} // namespace attn::run

#endif
