//===- SharedScales.cpp - Scales of a whole head or tensor ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// If a task reads tokens of one region only, that region's scales are a part of
// its rows' unit and results (#attn.form), and copies of its rows. Otherwise
// they are copies of the tokens, read before the loop over tiles.
//
//===----------------------------------------------------------------------===//
#include "SharedScales.h"

using namespace mlir;
using namespace mlir::attn;

static rt::StorePart partOf(UpdateOp update, bool keys) {
  return storeOf(update.getKv().getType()).part(keys);
}

Value mlir::attn::readScale(KernelBuilder &b, UpdateOp update, bool keys, Value head, bool tiny) {
  rt::StorePart part = partOf(update, keys);
  Value index = part.format.scales == rt::Format::Scales::Head ? b.wide(head) : b.i64(0);
  std::string name = tensorOf(update.getKv(), rt::Store::sharedName(part));
  Value scale = b.read(b.buffer(name, b.getF32Type()), index);
  KVType kv = update.getKv().getType();
  float unit = tiny ? widenedUnit(keys ? kv.getKey() : kv.getValue()) : 1;
  return unit == 1 ? scale : arith::MulFOp::create(b, scale, b.f32(unit)).getResult();
}

/// Reads the scale if the loop has tiles of this store. A head of another class has none, and the store may
/// have no heads at all. `which`: the region of the loop's tiles, if there are several updates.
static Value readIfThere(KernelBuilder &b, UpdateOp update, bool keys, Value head, scf::ForOp loop,
                         Value which) {
  Value isThere = b.compare(arith::CmpIPredicate::slt, loop.getLowerBound(), loop.getUpperBound());
  if (which) {
    Value isFirst = b.compare(arith::CmpIPredicate::eq, which, b.i32(0));
    isThere = b.createOrFold<arith::AndIOp>(isThere, isFirst);
  }
  auto read = scf::IfOp::create(b, TypeRange{b.getF32Type()}, isThere, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(read.thenBlock());
  scf::YieldOp::create(b, readScale(b, update, keys, head, /*tiny=*/keys));
  b.setInsertionPointToEnd(read.elseBlock());
  scf::YieldOp::create(b, b.f32(1));
  return read.getResult(0);
}

void mlir::attn::addRegionScales(StagedKernel &k, ArrayRef<UpdateOp> updates, SmallVector<Copy> &names,
                                 SmallVector<Value> &copies) {
  KernelBuilder &b = k.b;
  UpdateOp update = updates.front();
  TokensOp tokens = tokensOf(update.getKv());
  RowsPart rows(b, k.form, update.getQuery());
  OpBuilder::InsertionGuard guard(b);
  auto loop = k.form.keepsTokens() ? scf::ForOp() : cast<scf::ForOp>(tokens->getParentOp());
  if (loop)
    b.setInsertionPoint(loop);
  for (bool keys : {true, false}) {
    const rt::Format format = partOf(update, keys).format;
    if (!format.hasSharedScale() || k.form.has(keys ? FormTraits::KeyScale : FormTraits::ValueScale) ||
        (k.significance && !keys))
      continue;
    bool ofClass = tokens.getType().isOfClass() && format.scales == rt::Format::Scales::Head;
    Value head = placeOf(b, rows, tokens);
    Value which = updates.size() > 1 ? cast<OneOfOp>(*update->user_begin()).getOperand() : Value();
    names.push_back(keys ? Copy::KeyScale : Copy::ValueScale);
    copies.push_back(ofClass && loop ? readIfThere(b, update, keys, head, loop, which)
                                     : readScale(b, update, keys, head, /*tiny=*/keys));
  }
}
