//===- Lines.cpp - Updates one after the other ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Lines.h"

using namespace mlir;
using namespace mlir::attn;

Lines mlir::attn::findLines(Chain &chain) {
  Lines lines;
  for (auto [number, update] : llvm::enumerate(chain.updates)) {
    Value state = update.getState();
    auto known = lines.lastOf.find(state);
    if (known != lines.lastOf.end() && goesOnOnce(state)) {
      unsigned line = known->second;
      lines.all[line].updates.push_back(number);
      lines.lastOf.erase(known);
      lines.lastOf[update.getResult()] = line;
      continue;
    }
    bool begins = state.hasOneUse() && isa_and_nonnull<InitOp>(state.getDefiningOp());
    lines.lastOf[update.getResult()] = lines.all.size();
    lines.all.push_back({begins ? state : Value(), {static_cast<unsigned>(number)}, {}});
  }
  return lines;
}
