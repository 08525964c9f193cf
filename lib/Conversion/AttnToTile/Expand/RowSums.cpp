//===- RowSums.cpp - Exact gradients of tables and sinks ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RowSums.h"
#include "AttnToTile/Kernel/Log2.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Whether the function that the kernel came from has an argument of this name.
static bool hasArgument(func::FuncOp kernel, StringRef name) {
  for (unsigned i = 0; i < kernel.getNumArguments(); ++i)
    if (auto each = kernel.getArgAttrOfType<StringAttr>(i, "attn.name"); each && each == name)
      return true;
  return false;
}

Value mlir::attn::lseGradient(FragmentExpansion &e, RowsPart &rows) {
  KernelBuilder &b = e.b;
  auto ofLse = LoadVectorOp::create(b, e.rowsOf(b.getF32Type()), b.buffer("dlse", b.getF32Type()));
  b.fill(ofLse.getIndex(), {b.getI32Type()},
         [&](ValueRange line) { return rows.slotOf(rows.packedRow(line[0]), b.getI64Type()); });
  return ofLse;
}

SmallVector<Value> RowSums::zeros(size_t count) {
  return SmallVector<Value>(count, count ? b.splat(b.f32(0), share) : Value());
}

void RowSums::addShares(Value &sum, Value ofTile) {
  Value shares = ReduceOp::create(b, share, Combine::Add, ofTile);
  sum = b.map(share, ValueRange{sum, shares},
              [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
}

void RowSums::addTile(MutableArrayRef<Value> sums, Value weights, Value products, Value delta,
                      ValueRange slopes) {
  if (sums.empty())
    return;
  addShares(sums[0], weights);
  // This sum tells the correct delta. Losses that passes add to attn.score_grad do not change that.
  addShares(sums[1], b.map(cast<FragmentType>(weights.getType()), ValueRange{weights, products, delta},
                           [&](ValueRange v) -> Value {
                             return arith::MulFOp::create(b, v[0], arith::SubFOp::create(b, v[1], v[2]));
                           }));
  auto gradients = [&](Value products, Value delta, Value slope) -> Value {
    return ScoreGradOp::create(b, weights.getType(), weights, products, delta, slope);
  };
  for (auto [i, slope] : llvm::enumerate(slopes)) {
    addShares(sums[2 + 2 * i], gradients(products, delta, slope));
    addShares(sums[3 + 2 * i], gradients(Value(), Value(), slope));
  }
}

Value RowSums::sinkWeights(RowsPart &rows) {
  if (!hasArgument(b.kernel, sinkLogits))
    return {};
  auto logits = LoadVectorOp::create(b, whole, b.buffer(sinkLogits, b.getF32Type()));
  b.fill(logits.getIndex(), {b.getI32Type()},
         [&](ValueRange line) { return rows.unpack(rows.packedRow(line[0])).second; });
  return b.map(whole, ValueRange{logits, rows.copy(Copy::Lse)}, [&](ValueRange v) -> Value {
    return math::Exp2Op::create(b,
                                math::FmaOp::create(b, v[0], b.f32(log2e), arith::NegFOp::create(b, v[1])));
  });
}

RowSums::Settled RowSums::settle(RowsPart &rows, ValueRange sums, Value delta, bool withLse) {
  if (sums.empty())
    return {delta, {}};
  auto complete = [&](Value sum) -> Value { return CompleteOp::create(b, whole, sum); };
  SmallVector<Value> inputs{complete(sums[0]), complete(sums[1]), delta};
  Value ofLse = withLse ? lseGradient(e, rows) : Value(), ofSink = sinkWeights(rows);
  for (Value each : {ofLse, ofSink})
    if (each)
      inputs.push_back(each);
  Value error = b.map(whole, inputs, [&](ValueRange v) -> Value {
    Value weight = v[0], gradient = v[1];
    if (ofSink) {
      Value sink = v.back();
      gradient = arith::SubFOp::create(b, gradient, arith::MulFOp::create(b, sink, v[2]));
      weight = arith::AddFOp::create(b, weight, sink);
    }
    Value error = arith::NegFOp::create(b, arith::DivFOp::create(b, gradient, weight));
    if (ofLse)
      error = arith::AddFOp::create(b, v[3], error);
    // A row that sees nothing has no weights.
    Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, weight, b.f32(0));
    return b.select(some, error, b.f32(0));
  });
  Settled settled{b.map(whole, ValueRange{delta, error},
                        [&](ValueRange v) -> Value { return arith::SubFOp::create(b, v[0], v[1]); }),
                  {}};
  for (size_t i = 0; i < sums.size() / 2 - 1; ++i)
    settled.tables.push_back(
        b.map(whole, ValueRange{complete(sums[2 + 2 * i]), complete(sums[3 + 2 * i]), error},
              [&](ValueRange v) -> Value { return math::FmaOp::create(b, v[1], v[2], v[0]); }));
  return settled;
}
