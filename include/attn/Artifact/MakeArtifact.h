//===- MakeArtifact.h - A compiled kernel as what is kept -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_ARTIFACT_MAKEARTIFACT_H
#define ATTN_ARTIFACT_MAKEARTIFACT_H

#include "attn/Pipelines/Compile.h"

#include "attn_rt/artifact/Artifact.h"

namespace mlir::attn {

/// The forms of code that an artifact is to have.
struct ArtifactForms {
  bool host = false;        ///< native code for the host device,
  bool hostChecked = false; ///< instrumented for its detectors, with `host` alone
  bool ptx = false, cubin = false;
};

/// What else there is to say of an artifact that was made.
struct ArtifactReport {
  std::string refusal;  ///< why ptxas made no cubins; empty where it did
  std::string ptxasLog; ///< what ptxas -v printed
  double hostSeconds = 0, ptxSeconds = 0;
  double cubinSeconds = 0; ///< after the last kernel was PTX: others are being assembled while it is not
};

/// Makes code of a kernel compiled for `target` (CompileOptions::ptx is not needed). Errors are diagnostics;
/// where ptxas refuses, the artifact is without cubins and the report says why.
FailureOr<::attn::rt::Artifact> makeArtifact(const CompiledKernel &kernel, StringRef target,
                                             const ArtifactForms &forms, ArtifactReport &report);

} // namespace mlir::attn

#endif
