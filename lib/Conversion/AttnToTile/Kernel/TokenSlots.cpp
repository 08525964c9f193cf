//===- TokenSlots.cpp - Where numbers of tokens lie -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TokenSlots.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

TokenSlots::TokenSlots(KernelBuilder &b, Value kv, int64_t kvHeads)
    : b(b), name(argumentName(kv).str() + "."), store(storeOf(cast<KVType>(kv.getType()))), kvHeads(kvHeads) {
}

Value TokenSlots::size(rt::StoreSize size) { return b.dimension(name + std::string(rt::sizeName(size))); }

Value TokenSlots::slotOf(Value instance, Value kvHead, Value token) {
  if (store.isPaged()) {
    Value capacity = b.mul(size(rt::StoreSize::MaxPages), b.i32(store.tokensOf(1)));
    Value list = b.add(b.mul(instance, b.i32(store.heads)), kvHead);
    return b.add(b.mul(b.wide(list), b.wide(capacity)), b.wide(token));
  }
  Value begin; // of the instance's tokens
  if (store.kind == rt::StoreKind::Packed)
    begin = b.read(b.buffer(name + std::string(rt::tableName(rt::StoreTable::Start)), b.getI32Type()),
                   b.wide(instance));
  else
    begin = b.mul(instance, size(rt::StoreSize::Tokens));
  return b.add(b.mul(b.wide(b.add(begin, token)), b.i64(kvHeads)), b.wide(kvHead));
}

Value TokenSlots::count() {
  Value lists = b.i64(kvHeads);
  if (store.kind != rt::StoreKind::Packed)
    lists = b.mul(lists, b.wide(size(rt::StoreSize::Instances)));
  Value tokens = store.isPaged() ? b.mul(size(rt::StoreSize::MaxPages), b.i32(store.tokensOf(1)))
                                 : size(rt::StoreSize::Tokens);
  return b.mul(lists, b.wide(tokens));
}

Value mlir::attn::tokenSlotsBefore(KernelBuilder &b, ArrayRef<UpdateOp> updates) {
  Value before = b.i64(0);
  for (UpdateOp update : updates)
    before = b.add(before, TokenSlots(b, update.getKv(), update.getKVHeads()).count());
  return before;
}
