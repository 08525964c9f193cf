//===- TokenSource.cpp - Copies of tokens of several regions --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A loop's tiles may belong to one of several regions. Each copy branches on
// the region, and the branch is moved out of the loop later.
//
// Memory past a box's last token holds anything, perhaps NaN, and 0 * NaN would
// reach a sum over these tokens: their lines are cleared. (Keys that are only
// multiplied with queries need no such care: their scores are masked. Gathers
// fill with zeros.)
//
//===----------------------------------------------------------------------===//
#include "Source.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

TokenSource::TokenSource(StagedKernel &kernel, ArrayRef<UpdateOp> updates, int64_t behind)
    : Source(kernel), behind(behind) {
  UpdateOp one = updates.front();
  TokensOp tokens = tokensOf(one.getKv());
  if (updates.size() > 1) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(tokens->getParentOp());
    Value region = cast<OneOfOp>(*one->user_begin()).getOperand();
    for (size_t number = 0; number + 1 < updates.size(); ++number)
      isRegion.push_back(b.compare(arith::CmpIPredicate::eq, region, b.i32(number)));
  }
  first = tokens.getFirst();
  if (k.significance) // each warp has its own tokens
    first = b.add(first, tokens.getWarp());
  for (UpdateOp update : updates)
    regions.emplace_back(k, update, fromHere(first));
}

SmallVector<Value>
TokenSource::inRegion(TypeRange types, function_ref<SmallVector<Value>(StoredTokens &)> body, size_t number) {
  if (number + 1 == regions.size())
    return body(regions[number]);
  auto branch = scf::IfOp::create(b, types, isRegion[number], /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  auto fill = [&](Block *block, function_ref<SmallVector<Value>()> values) {
    if (!block->empty())
      block->back().erase();
    b.setInsertionPointToStart(block);
    scf::YieldOp::create(b, values());
  };
  fill(branch.thenBlock(), [&] { return body(regions[number]); });
  fill(branch.elseBlock(), [&] { return inRegion(types, body, number + 1); });
  return SmallVector<Value>(branch.getResults());
}

/// The boxes of tiles that are walked may be looked up one ahead, and so may pages of lines that producers
/// load to registers. Other stores have no page numbers to wait for.
void TokenSource::locate(Scope copiers) {
  const bool tma = isLoadedByTma(), widens = k.widensOnTheWay();
  auto needsSlots = [&](StoredTokens &region) { return tma || widens || region.hasTable(); };
  if (llvm::none_of(regions, needsSlots))
    return;
  Type i32 = b.getI32Type();
  auto slotsIn = [&](StoredTokens &region) -> Value {
    if (!needsSlots(region))
      return b.i32(0);
    auto lookUp = [&](Value from) { return tma ? region.lookUpBoxes(from) : region.lookUp(copiers, from); };
    const bool runsAhead = tma ? !k.form.keepsTokens() : widens && region.isPaged();
    if (!runsAhead)
      return lookUp(region.first);
    auto ahead = AheadOp::create(b, i32, first);
    b.fill(ahead.getBody(), {i32}, [&](ValueRange at) { return lookUp(fromHere(at[0])); });
    return ahead;
  };
  where = inRegion({i32}, [&](StoredTokens &region) { return SmallVector<Value>{slotsIn(region)}; }).front();
}

void TokenSource::gather(ArrayRef<Copy> names, ValueRange tiles, Scope copiers) {
  inRegion({}, [&](StoredTokens &region) -> SmallVector<Value> {
    region.gather(names, tiles, copiers, region.hasTable() ? where : Value());
    return {};
  });
}

void TokenSource::tmaLoad(Copy name, Value tile) {
  inRegion({}, [&](StoredTokens &region) -> SmallVector<Value> {
    region.tmaLoad(name, tile, where);
    return {};
  });
  bool summed = k.form.keepsTokens() ? k.gradient.getAddsRows()
                                     : k.gradient || areValues(name) || regions.front().isLatent();
  if (!summed)
    return;
  Value left = regions.front().left();
  ClearOp::create(b, tile, behind > 0 ? b.max(left, b.i32(0)) : left); // the tile may end in front of them
}
