//===- FragmentExpansion.cpp - What stands for online values, and units ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "AttnToTile/Kernel/Log2.h"
#include "Expansion.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

ValueRange mlir::attn::piecesOf(Value online) {
  return online.getDefiningOp<UnrealizedConversionCastOp>().getInputs();
}

void mlir::attn::become(OpBuilder &builder, Value online, ValueRange pieces) {
  auto stands =
      UnrealizedConversionCastOp::create(builder, online.getLoc(), TypeRange{online.getType()}, pieces);
  online.replaceAllUsesWith(stands.getResult(0));
}

State FragmentExpansion::stateOf(Value state) {
  ValueRange pieces = piecesOf(state);
  return {pieces[0], pieces[1], pieces[2], pieces.size() > 4 ? pieces[3] : Value(), pieces.back()};
}

/// The unit of a state, and the deltas of a gradient of rows.
unsigned FragmentExpansion::invariants(Type online) {
  auto gradient = dyn_cast<GradientType>(online);
  return isa<StateType>(online) || (gradient && gradient.getOf() == Stationary::Rows);
}

Value FragmentExpansion::mmaScale(Value rows) {
  Value keyScale = copyOf(rows, Copy::KeyScale);
  if (!keyScale)
    return b.scale();
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(keyScale);
  return arith::MulFOp::create(b, b.scale(), keyScale);
}

Value FragmentExpansion::unitOf(Value rows) {
  OpBuilder::InsertionGuard guard(b);
  FloatAttr unit = form.getUnit();
  Value one = unit ? b.f32(unit.getValueAsDouble()) : mmaScale(rows);
  if (one.getDefiningOp())
    b.setInsertionPointAfterValue(one);
  else
    b.setInsertionPointToStart(&b.kernel.front());
  return b.createOrFold<arith::MulFOp>(one, b.f32(log2e));
}
