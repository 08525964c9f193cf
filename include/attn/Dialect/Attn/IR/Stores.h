//===- Stores.h - The store of a KV type ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_STORES_H
#define ATTN_DIALECT_ATTN_IR_STORES_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Support/Elements.h"

#include "attn_rt/tensor/Store.h"

namespace mlir::attn {

/// What the runtime's Store says of a KV type: tensors, addresses, boxes, formats.
rt::Store storeOf(KVType type);
/// How elements of keys or values of this type are stored.
rt::Format formatOf(Type stored);
/// The blocks whose scales are of this type, if there are some.
rt::Format::Blocks blocksOf(Type scale);
/// Elements of the memory that holds them: codes, or the type itself.
Type codesOf(Type stored);
/// The factor from what `tile.widen tiny` makes of a code of this type to the code's number, before scales.
float widenedUnit(Type stored);

} // namespace mlir::attn

#endif
