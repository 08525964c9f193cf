//===- PageOps.h - Operations on tables of pages ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_PAGEOPS_H
#define ATTN_DIALECT_ATTN_IR_PAGEOPS_H

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnPageOps.h.inc"

namespace mlir::attn {

/// Operands of an attn.manage_pages have fixed names, those of the operation's arguments.
inline constexpr StringLiteral pageTensors[] = {"table", "counts", "tokens", "free", "span", "status"};

/// The first such operation of a function, or null. `readSignature` sees to it that it is all there is.
ManagePagesOp findManagePages(func::FuncOp func);

} // namespace mlir::attn

#endif
