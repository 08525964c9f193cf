//===- StoreScores.cpp - Scores of few rows, for their weights ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expansion.h"
#include "StoredScores.h"

#include "AttnToTile/Kernel/TokenSlots.h"

#include "attn/Dialect/Tile/IR/CacheHint.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

void FragmentExpansion::storeScores(UpdateOp update, Value scores, Value unit) {
  RowsPart rows(b, form, update.getQuery());
  TokensOp tokens = tokensOf(update.getKv());
  Value inSteps = arith::MulFOp::create(b, unit, b.f32(storedScoreSteps));
  Value left = b.select(rows.op.getScores(), b.sub(tokens.getEnd(), tokens.getFirst()), b.i32(0));
  TokenSlots slots(b, tokens, form.getKvHeads());
  auto store = StoreScoresOp::create(b, scores, inSteps, storedScores(b, b.getI16Type()), left,
                                     form.getGroup(), slots.apart());
  setCacheHint(store, evictLast); // keys and values stream through the L2 before they are read
  b.fill(store.getSlot(), {b.getI32Type()}, [&](ValueRange line) -> Value {
    Value slot = slots.slotOf(tokens.getInstance(), rows.head(), b.add(tokens.getFirst(), line[0]));
    return b.add(tokens.getScoresBehind(), slot);
  });
}
