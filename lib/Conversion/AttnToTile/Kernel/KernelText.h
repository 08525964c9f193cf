//===- KernelText.h - Helper kernels that are written as text ---*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A helper kernel is a public function in a .mlir file of tile IR, with private
// functions that it calls. Private functions without a body are parameters:
// sizes, or regions of an operation. define() gives them bodies; instantiate()
// clones the public function and inlines every call. Functions that several
// kernels share are a text of their own, appended to the kernel's. A text that
// does not parse, or an unknown parameter, is a fatal error.
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
  /// Parses the texts. `file`: the name that locations point to.
  KernelText(MLIRContext *context, ArrayRef<StringRef> texts, StringRef file);
  /// Lets the function return this i32.
  void define(StringRef name, int64_t number);
  /// Gives the function the body of a region of one block. It returns the operands of the region's
  /// terminator.
  void define(StringRef name, Region &region);
  /// Clones `function` at the builder as `name`, with every call inlined.
  func::FuncOp instantiate(OpBuilder &builder, StringRef function, StringRef name);

private:
  func::FuncOp opened(StringRef name);

  OwningOpRef<ModuleOp> module;
};

} // namespace mlir::attn

#endif
