//===- CheckSignature.cpp - Names that files and kernels need -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/PageOps.h"
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_CHECKSIGNATUREPASS
#include "attn/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {
struct CheckSignaturePass : mlir::attn::impl::CheckSignaturePassBase<CheckSignaturePass> {
  using CheckSignaturePassBase::CheckSignaturePassBase;

  void runOnOperation() override {
    WalkResult found = getOperation().walk([](Operation *op) {
      return isa<AttendOp, FinishOp>(op) || isPageOp(op) || rowCopyOf(op) ? WalkResult::interrupt()
                                                                          : WalkResult::advance();
    });
    if (found.wasInterrupted() && failed(readSignature(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
