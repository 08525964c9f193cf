//===- TokenSlots.h - Where numbers of tokens lie ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_TOKENSLOTS_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_TOKENSLOTS_H

#include "Kernel.h"

#include "attn_rt/tensor/Store.h"

namespace mlir::attn {

/// A number for each token and KV head of a region, as keys lie without their features or, of a paged store,
/// by instance, head and token.
class TokenSlots {
public:
  /// `kv`: the region, or tokens of it.
  TokenSlots(KernelBuilder &b, Value kv, int64_t kvHeads);

  Value slotOf(Value instance, Value kvHead, Value token);
  /// From a token's slot to the next one's, of the same list.
  int64_t apart() const { return store.isPaged() ? 1 : kvHeads; }
  /// How many there are.
  Value count();

private:
  Value size(::attn::rt::StoreSize size);

  KernelBuilder &b;
  std::string name;
  ::attn::rt::Store store;
  int64_t kvHeads;
};

/// Of the regions in front of one.
Value tokenSlotsBefore(KernelBuilder &b, ArrayRef<UpdateOp> updates);

} // namespace mlir::attn

#endif
