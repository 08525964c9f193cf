//===- StoreValues.h - Addresses of tokens in a kernel ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The algebra over which kernels evaluate the address of a token
// (attn_rt/tensor/Store.h): numbers are values, and arithmetic is emitted.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_STOREVALUES_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_STOREVALUES_H

#include "Kernel.h"

#include "attn_rt/tensor/Store.h"

namespace mlir::attn {

struct StoreValues {
  using Value = mlir::Value;

  KernelBuilder &b;
  StringRef operand;                   ///< the operand whose sizes and tables are read
  function_ref<mlir::Value()> placeOf; ///< emits the index of the head within the store

  Value number(int64_t n) { return b.i32(n); }
  Value add(Value x, Value y) { return b.add(x, y); }
  Value mul(Value x, Value y) { return b.mul(x, y); }
  Value div(Value x, int64_t y) { return b.div(x, y); }
  Value rem(Value x, int64_t y) { return b.rem(x, y); }
  Value wide(Value x) { return b.wide(x); }
  Value size(::attn::rt::StoreSize size) { return b.dimension(nameOf(::attn::rt::sizeName(size))); }
  Value read(::attn::rt::StoreTable table, Value index) {
    return b.read(b.buffer(nameOf(::attn::rt::tableName(table)), b.getI32Type()), index);
  }
  Value place() { return placeOf(); }
  Value unifiedSlots(const ::attn::rt::Store &store) { return b.i32(store.gatheredSlots()); }
  Value outerSlots(int64_t) { return size(::attn::rt::StoreSize::OuterSlots); }
  Value pagedSlot(Value row, Value token, int64_t page, std::optional<Value> apart, bool start) {
    Value columns = size(::attn::rt::StoreSize::MaxPages);
    Value table = b.buffer(nameOf(::attn::rt::tableName(::attn::rt::StoreTable::BlockTable)), b.getI32Type());
    return tile::PagedSlotOp::create(b, table, row, token, columns, page, apart.value_or(Value()), start);
  }

private:
  std::string nameOf(std::string_view what) { return (operand + "." + StringRef(what)).str(); }
};

} // namespace mlir::attn

#endif
