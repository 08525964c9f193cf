//===- Stores.h - The store of a KV type ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_STORES_H
#define ATTN_DIALECT_ATTN_IR_STORES_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Support/Elements.h"

#include "attn_rt/tensor/Store.h"

namespace mlir::attn {

/// Returns the runtime's Store of a KV type: tensors, addresses, boxes, formats.
rt::Store storeOf(KVType type);
/// Returns the format of keys or values of this type.
rt::Format formatOf(Type stored);
/// Returns the kind of blocks with scales of this type, if any.
rt::Format::Blocks blocksOf(Type scale);
/// Returns the type of elements in memory: the quantized element, or the type itself.
Type codesOf(Type stored);
/// Returns the factor from the results of `tile.widen tiny` on this type to quantized values before scales.
float widenedUnit(Type stored);

} // namespace mlir::attn

#endif
