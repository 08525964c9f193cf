//===- Problem.h - A user's text, in a context of its own -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_CAPI_PROBLEM_H
#define ATTN_LIB_CAPI_PROBLEM_H

#include "ForkGuard.h"

#include "attn-c/Compiler.h"
#include "attn/Pipelines/Compile.h"
#include "attn_rt/support/Status.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/SourceMgr.h"

namespace attn::capi {

/// The state of one compiler call, shared with no other call. Diagnostics are collected.
class Problem {
public:
  Problem(const AttnSource &source, const AttnAsks *asks);
  rt::Status parse();
  /// Returns the error, in the compiler's words.
  rt::Error error();

  mlir::attn::CompileOptions options;
  std::string entry;
  std::vector<std::string> remarks;

private:
  ForkGuard guard_;
  AttnSource source_;
  std::string said_;
  llvm::raw_string_ostream stream_{said_};
  llvm::SourceMgr sources_;
  mlir::MLIRContext context_;
  mlir::SourceMgrDiagnosticHandler handler_;

public:
  mlir::OwningOpRef<mlir::ModuleOp> module; ///< destroyed before its context
};

/// Checks that pointers are not null, and that the target and the schedule are known.
rt::Status checkSource(const AttnSource *source);
/// Checks that pointers and numbers are legal, and that each request has the requests it needs. Null is
/// legal.
rt::Status checkAsks(const AttnAsks *asks);

} // namespace attn::capi

#endif
