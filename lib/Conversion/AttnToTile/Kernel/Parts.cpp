//===- Parts.cpp - The rows and tokens that an operation names ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Parts.h"

#include "Log2.h"

#include "attn_rt/artifact/Artifact.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

Value mlir::attn::unstaged(Value part) {
  while (auto staged = part.getDefiningOp<StagedOp>())
    part = staged.getPart();
  return part;
}

Value mlir::attn::copyOf(Value part, Copy name) {
  auto staged = part.getDefiningOp<StagedOp>();
  return staged ? staged.copy(name) : Value();
}

RowsPart::RowsPart(KernelBuilder &b, FormAttr form, Value rows)
    : op(unstaged(rows).getDefiningOp<RowsOp>()), b(b), form(form), value(rows) {}

Value RowsPart::headsNumber() {
  return op.getPart() ? b.add(b.mul(head(), b.i32(form.getGroup() / heads())), op.getPart()) : head();
}

std::pair<Value, Value> RowsPart::unpack(Value packed) {
  if (op.getAllHeads())
    return {b.div(packed, form.getHeads()), b.rem(packed, form.getHeads())};
  return {b.div(packed, heads()), b.add(b.mul(headsNumber(), b.i32(heads())), b.rem(packed, heads()))};
}

Value RowsPart::slotOf(Value packed, Type type) {
  if (op.getAllHeads())
    return type.isInteger(64) ? b.wide(packed) : packed;
  return PackedSlotOp::create(b, type, packed, headsNumber(), b.getI64IntegerAttr(heads()),
                              b.getI64IntegerAttr(form.getHeads()), ValueRange(), IntegerAttr());
}

Value RowsPart::numberSlotOf(Value packed, Type type) {
  int64_t together = ::attn::rt::evenHeads(form.getGroup());
  Value of;
  if (!op.getAllHeads() && heads() == together) {
    of = headsNumber();
  } else {
    auto [row, queryHead] = unpack(packed);
    of = b.div(queryHead, together);
    packed = b.add(b.mul(row, b.i32(together)), b.rem(queryHead, together));
  }
  Value slot = b.add(b.mul(of, b.mul(b.dimension("rows"), b.i32(together))), packed);
  return type.isInteger(64) ? b.wide(slot) : slot;
}

Value RowsPart::lineOf(StringRef tensor, Value packed, Type element) {
  return b.stridedSlot(tensor, packed, headsNumber(), heads(), element.getIntOrFloatBitWidth() / 8,
                       b.getI64Type());
}

Value mlir::attn::lseOfRows(KernelBuilder &b, RowsPart &rows, Value lse) {
  auto type = cast<FragmentType>(lse.getType());
  Value count = rows.left(), lines = CoordinatesOp::create(b, type.withElement(b.getI32Type()), b.i32(0));
  return b.map(type, ValueRange{lse, lines},
               [&](ValueRange v) { return b.select(b.less(v[1], count), v[0], b.f32(infinity)); });
}

TokensOp mlir::attn::tokensOf(Value part) { return unstaged(part).getDefiningOp<TokensOp>(); }

Value mlir::attn::placeOf(KernelBuilder &b, RowsPart &rows, TokensOp tokens) {
  bool ofClass = cast<KVType>(tokens.getType()).isOfClass();
  return ofClass ? b.sub(rows.op.getOrdinal(), tokens.getFirstOrdinal()) : rows.head();
}

std::string mlir::attn::tensorOf(Value kv, StringRef part) { return (argumentName(kv) + "." + part).str(); }
