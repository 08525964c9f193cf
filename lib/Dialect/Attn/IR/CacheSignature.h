//===- CacheSignature.h - The tensors of a cache function -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_DIALECT_ATTN_IR_CACHESIGNATURE_H
#define ATTN_LIB_DIALECT_ATTN_IR_CACHESIGNATURE_H

#include "attn/Dialect/Attn/IR/Signature.h"

namespace mlir::attn::detail {

/// Reads the signature of a function that holds an operation on a cache.
FailureOr<Signature> readCacheSignature(func::FuncOp func);
/// Reads the signature of a function that holds an operation on page tables.
FailureOr<Signature> readPageSignature(func::FuncOp func);

} // namespace mlir::attn::detail

#endif
