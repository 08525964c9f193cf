//===- KernelText.h - Helper kernels that are written as text ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A helper kernel is a public function in a file of tile text beside the sources, and
// private functions that it calls. Private functions without a body are what the kernel
// leaves open: sizes, and what an operation's regions say. They are defined, every call
// is inlined, and what is left is the kernel. What several kernels call is a text of
// its own, which stands behind theirs.
//
//   KernelText text(context, {reviseTokens, lists}, "ReviseTokens.mlir");
//   text.define("window", 64);
//   text.define("rank", op.getRank());
//   func::FuncOp kernel = text.instantiate(builder, "revise_tokens", "revise_lists");
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_KERNELTEXT_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_KERNELTEXT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir::attn {

class KernelText {
public:
  /// `file`: where locations point to.
  KernelText(MLIRContext *context, ArrayRef<StringRef> texts, StringRef file);
  /// The function gives this i32.
  void define(StringRef name, int64_t number);
  /// The function does what a region of one block does, and gives the operands of its terminator.
  void define(StringRef name, Region &region);
  /// The kernel that is written as the public function, where the builder stands.
  func::FuncOp instantiate(OpBuilder &builder, StringRef function, StringRef name);

private:
  func::FuncOp opened(StringRef name);

  OwningOpRef<ModuleOp> module;
};

} // namespace mlir::attn

#endif
