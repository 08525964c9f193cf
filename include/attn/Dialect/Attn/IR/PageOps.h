//===- PageOps.h - Operations on tables of pages ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_PAGEOPS_H
#define ATTN_DIALECT_ATTN_IR_PAGEOPS_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnPageOps.h.inc"

namespace mlir::attn {

/// A tensor that an operation on page tables reads or changes. Its name in files is fixed.
struct PageTensor {
  StringRef name;
  unsigned bits; ///< bits of an element
  /// Sizes, or the names of sizes that a run decides.
  SmallVector<std::pair<int64_t, StringRef>, 2> dims;
  bool isFloat = false; ///< floats; otherwise integers

  Type element(MLIRContext *context) const;
  RankedTensorType type(MLIRContext *context) const;
};
/// Returns the tensors of the operation, in the order of its operands.
SmallVector<PageTensor> pageTensorsOf(Operation *op);

/// Whether it is an operation on page tables.
bool isPageOp(Operation *op);

/// Returns the first such operation of a function, or null. `readSignature` checks that there is no other.
Operation *findPageOp(func::FuncOp func);

} // namespace mlir::attn

#endif
