//===- StoreScores.cpp - Scores of few rows, for their weights ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Expansion.h"
#include "GradientTile.h"
#include "StoredScores.h"

#include "AttnToTile/Kernel/TokenSlots.h"

#include "attn/Dialect/Tile/IR/CacheHint.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

void FragmentExpansion::storeScores(Value scores, UpdateOp update, TokensOp tokens) {
  unsigned operand = llvm::find(chain.updates, update) - chain.updates.begin();
  Value unit = arith::MulFOp::create(b, toLog2, b.f32(storedScoreSteps));
  Value left = b.select(scoresStay, b.sub(tokens.getEnd(), tokens.getFirst()), b.i32(0));
  Value before = tokenSlotsBefore(b, chain, operand);
  auto store = StoreScoresOp::create(b, scores, unit, storedScores(b, b.getI16Type()), left, chain.group(),
                                     TokenSlots(b, update).apart());
  setCacheHint(store, evictLast); // keys and values stream past before they are read
  b.fill(store.getSlot(), {b.getI32Type()}, [&](ValueRange line) -> Value {
    return b.add(before, GradientTile(*this).slotOfToken(update, tokens, line[0]));
  });
}
