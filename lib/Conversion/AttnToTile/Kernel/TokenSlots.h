//===- TokenSlots.h - Where numbers of tokens lie ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_TOKENSLOTS_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_TOKENSLOTS_H

#include "Kernel.h"

#include "attn_rt/tensor/Store.h"

namespace mlir::attn {

/// The layout of one number for each token and KV head of a region: as keys lie, without their features, or,
/// for a paged store, by instance, head and token.
class TokenSlots {
public:
  /// `kv`: the region, or an attn.tokens of it.
  TokenSlots(KernelBuilder &b, Value kv, int64_t kvHeads);

  Value slotOf(Value instance, Value kvHead, Value token);
  /// The distance from a token's slot to that of the next token in the same list.
  int64_t apart() const { return store.isPaged() ? 1 : kvHeads; }
  /// The number of slots.
  Value count();

private:
  Value size(::attn::rt::StoreSize size);

  KernelBuilder &b;
  std::string name;
  ::attn::rt::Store store;
  int64_t kvHeads;
};

/// The number of slots of these regions, which stand before another region.
Value tokenSlotsBefore(KernelBuilder &b, ArrayRef<UpdateOp> updates);

} // namespace mlir::attn

#endif
