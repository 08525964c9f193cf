//===- MakeArtifact.h - Artifacts of compiled kernels -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_ARTIFACT_MAKEARTIFACT_H
#define ATTN_ARTIFACT_MAKEARTIFACT_H

#include "attn/Pipelines/Compile.h"

#include "attn_rt/artifact/Artifact.h"

namespace mlir::attn {

/// The forms of code of an artifact.
struct ArtifactForms {
  bool host = false;        ///< native code for the host device,
  bool hostChecked = false; ///< instrumented for its detectors; needs `host`
  bool ptx = false, cubin = false;
};

/// Facts about the making of an artifact.
struct ArtifactReport {
  std::string refusal;  ///< why ptxas made no cubins; empty if it made them
  std::string ptxasLog; ///< the output of ptxas -v
  double hostSeconds = 0, ptxSeconds = 0;
  double cubinSeconds =
      0; ///< from the PTX of the last kernel on; earlier cubins are assembled during the PTX
};

/// Makes code of a kernel compiled for `target` (CompileOptions::ptx is not needed). Errors are diagnostics;
/// if ptxas fails, the artifact has no cubins and the report says why.
FailureOr<::attn::rt::Artifact> makeArtifact(const CompiledKernel &kernel, StringRef target,
                                             const ArtifactForms &forms, ArtifactReport &report);

} // namespace mlir::attn

#endif
