//===- Parts.cpp - The rows and tokens that an operation names ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Parts.h"

#include "Log2.h"

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

std::pair<Value, Value> RowsPart::unpack(Value packed) {
  int64_t group = form.getGroup();
  return {b.div(packed, group), b.add(b.mul(head(), b.i32(group)), b.rem(packed, group))};
}

Value RowsPart::slotOf(Value packed, Type type) {
  if (op.getAllHeads())
    return type.isInteger(64) ? b.wide(packed) : packed;
  return PackedSlotOp::create(b, type, packed, head(), b.getI64IntegerAttr(form.getGroup()),
                              b.getI64IntegerAttr(form.getHeads()), ValueRange(), IntegerAttr());
}

Value RowsPart::numberSlotOf(Value packed, Type type) {
  int64_t group = form.getGroup();
  Value of = head();
  if (op.getAllHeads()) {
    Value row = b.div(packed, form.getHeads()), queryHead = b.rem(packed, form.getHeads());
    of = b.div(queryHead, group);
    packed = b.add(b.mul(row, b.i32(group)), b.rem(queryHead, group));
  }
  Value slot = b.add(b.mul(of, b.mul(b.dimension("rows"), b.i32(group))), packed);
  return type.isInteger(64) ? b.wide(slot) : slot;
}

Value RowsPart::outputIndex(Value row) {
  return b.stridedSlot("o", b.add(begin(), row), head(), form.getGroup(),
                       form.getElement().getIntOrFloatBitWidth() / 8, b.getI64Type());
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
