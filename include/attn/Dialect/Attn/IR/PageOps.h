//===- PageOps.h - Operations on tables of pages ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_PAGEOPS_H
#define ATTN_DIALECT_ATTN_IR_PAGEOPS_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnPageOps.h.inc"

namespace mlir::attn {

/// A tensor that such an operation reads or changes. Its name in files is fixed.
struct PageTensor {
  StringRef name;
  unsigned bits; ///< of its numbers
  /// Numbers, or the names of what a run decides.
  SmallVector<std::pair<int64_t, StringRef>, 2> dims;
  bool isFloat = false; ///< else they are integers

  Type element(MLIRContext *context) const;
  RankedTensorType type(MLIRContext *context) const;
};
/// Those of the operation, in the order of its operands.
SmallVector<PageTensor> pageTensorsOf(Operation *op);

/// Whether it is one of these.
bool isPageOp(Operation *op);

/// The first such operation of a function, or null. `readSignature` sees to it that it is all there is.
Operation *findPageOp(func::FuncOp func);

} // namespace mlir::attn

#endif
