//===- ExpandSignificance.cpp - What rows add to tokens' significance -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// For a tile of packed rows and the sixteen stationary tokens of a warp:
//
//     s = k q^T,   p = exp(s - lse),   w += p
//
// or, for quantized keys, which an MMA takes as its right operand, s = q k^T. w
// is a fragment like p, and lanes combine their shares only when it is written:
// no tile of rows costs an exchange. Every tile begins with the first head of a
// group, so that its row r is of head r modulo the group.
//
//===----------------------------------------------------------------------===//
#include "GradientTile.h"
#include "OnlineModels.h"

#include "AttnToTile/Kernel/TokenSlots.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct InitSignificanceModel : OnlineOpInterface::ExternalModel<InitSignificanceModel, InitSignificanceOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    become(e.b, op->getResult(0), e.b.splat(e.b.f32(0), e.pairs()));
    return success();
  }
};

struct WriteSignificanceModel
    : OnlineOpInterface::ExternalModel<WriteSignificanceModel, WriteSignificanceOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto write = cast<WriteSignificanceOp>(op);
    KernelBuilder &b = e.b;
    Type f32 = b.getF32Type();
    TokensOp tokens = tokensOf(write.getTokens());
    Together of = write.getSignificance().getType().getOf();
    int64_t group = e.form.getGroup();
    Value weights = piecesOf(write.getSignificance()).front();
    Value found = of == Together::Max && group > 1 ? largestOfHeads(weights, e) : sum(weights, e);
    if (of == Together::Mean && group > 1)
      found = b.map(e.perToken(f32), ValueRange{found}, [&](ValueRange v) -> Value {
        return arith::MulFOp::create(b, v[0], b.f32(1.0 / group));
      });
    Value first = firstToken(b, tokens);
    TokenSlots slots(b, tokens, e.form.getKvHeads());
    auto store = StoreOp::create(b, found, b.buffer(tensorOf(tokens, "significance"), f32),
                                 b.sub(tokens.getEnd(), first), Value(), IntegerAttr(), 1);
    b.fill(store.getSlot(), {b.getI32Type()}, [&](ValueRange line) {
      return slots.slotOf(tokens.getInstance(), tokens.getHead(), b.add(first, line[0]));
    });
    return success();
  }

  static Value sum(Value weights, FragmentExpansion &e) {
    return ReduceOp::create(e.b, e.perToken(e.b.getF32Type()), Combine::Add, weights);
  }

  static Value largestOfHeads(Value weights, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    Type i32 = b.getI32Type();
    FragmentType perToken = e.perToken(b.getF32Type());
    int64_t group = e.form.getGroup();
    Value zeros = b.splat(b.f32(0), perToken);
    auto loop = scf::ForOp::create(b, b.i32(0), b.i32(group), b.i32(1), zeros);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value columns = CoordinatesOp::create(b, e.rowsOf(i32), b.i32(0)), head = loop.getInductionVar();
    Value ofHead = b.map(e.pairs(), ValueRange{weights, columns}, [&](ValueRange v) -> Value {
      Value mine = b.compare(arith::CmpIPredicate::eq, b.rem(v[1], group), head);
      return b.select(mine, v[0], b.f32(0));
    });
    Value largest = b.map(perToken, ValueRange{loop.getRegionIterArg(0), sum(ofHead, e)},
                          [&](ValueRange v) -> Value { return arith::MaxNumFOp::create(b, v[0], v[1]); });
    scf::YieldOp::create(b, largest);
    return loop.getResult(0);
  }
};

} // namespace

void mlir::attn::expandSignificance(const OneUpdate &one, Value result, FragmentExpansion &e) {
  UpdateOp update = one.front();
  KernelBuilder &b = e.b;
  GradientTile tile(e, one);
  Value position = tile.number(Copy::Position);
  Value products = e.rowsMmaTokens(update);
  Value scores = tile.masked(tile.regionScores(products, position, /*reads=*/{}).front(), position);
  Value sum =
      b.map(e.pairs(),
            ValueRange{piecesOf(update.getState()).front(), tile.weights(scores, tile.number(Copy::Lse))},
            [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
  become(b, result, sum);
}

void mlir::attn::registerSignificanceModels(MLIRContext &context) {
  InitSignificanceOp::attachInterface<InitSignificanceModel>(context);
  WriteSignificanceOp::attachInterface<WriteSignificanceModel>(context);
}
