//===- ExpandSignificance.cpp - What rows add to tokens' significance -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Of a tile of packed rows, and of the sixteen tokens that a warp holds:
//
//     s = k q^T,   p = exp(s - lse),   w += p
//
// or, of codes, which dots take from the right, s = q k^T. w is a fragment as p is, and
// lanes meet when it is written: no tile of rows costs an exchange. Every tile begins
// with the first head of a group, so that its row r is of the head r modulo the group.
//
//===----------------------------------------------------------------------===//
#include "GradientTile.h"
#include "OnlineModels.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct InitSignificanceModel : OnlineOpInterface::ExternalModel<InitSignificanceModel, InitSignificanceOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    e.pieces.set(op->getResult(0), {e.b.splat(e.b.f32(0), GradientTile(e).pairs())});
    return success();
  }
};

struct WriteSignificanceModel
    : OnlineOpInterface::ExternalModel<WriteSignificanceModel, WriteSignificanceOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto write = cast<WriteSignificanceOp>(op);
    KernelBuilder &b = e.b;
    UpdateOp update = e.chain.updates.front();
    TokensOp tokens = GradientTile::tokensOf(write.getTokens());
    Together of = write.getSignificance().getType().getOf();
    Value weights = e.pieces.of(write.getSignificance()).front();
    Value found = of == Together::Max && e.chain.group() > 1 ? largestOfHeads(weights, e) : sum(weights, e);
    if (of == Together::Mean && e.chain.group() > 1)
      found = b.map(ofTokens(e), ValueRange{found}, [&](ValueRange v) -> Value {
        return arith::MulFOp::create(b, v[0], b.f32(1.0 / e.chain.group()));
      });
    Value buffer = b.buffer(e.tensor(update, "significance"), b.getF32Type());
    auto store =
        StoreOp::create(b, found, buffer, GradientTile(e).tokensLeft(tokens), Value(), IntegerAttr(), 1);
    b.fill(store.getSlot(), {b.getI32Type()},
           [&](ValueRange line) { return GradientTile(e).slotOfToken(update, tokens, line[0]); });
    return success();
  }

  static FragmentType ofTokens(FragmentExpansion &e) {
    return e.b.fragment({Axis::Key}, {e.keys}, e.b.getF32Type());
  }
  static Value sum(Value weights, FragmentExpansion &e) {
    return ReduceOp::create(e.b, ofTokens(e), Combine::Add, weights);
  }

  static Value largestOfHeads(Value weights, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    Type i32 = b.getI32Type();
    int64_t group = e.chain.group();
    Value zeros = b.splat(b.f32(0), ofTokens(e));
    auto loop = scf::ForOp::create(b, b.i32(0), b.i32(group), b.i32(1), zeros);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value columns = CoordinatesOp::create(b, e.rowsOf(i32), b.i32(0)), head = loop.getInductionVar();
    Value ofHead = b.map(GradientTile(e).pairs(), ValueRange{weights, columns}, [&](ValueRange v) -> Value {
      Value mine = b.compare(arith::CmpIPredicate::eq, b.rem(v[1], group), head);
      return b.select(mine, v[0], b.f32(0));
    });
    Value largest = b.map(ofTokens(e), ValueRange{loop.getRegionIterArg(0), sum(ofHead, e)},
                          [&](ValueRange v) -> Value { return arith::MaxNumFOp::create(b, v[0], v[1]); });
    scf::YieldOp::create(b, largest);
    return loop.getResult(0);
  }
};

} // namespace

LogicalResult mlir::attn::expandSignificance(UpdateOp update, Value result, FragmentExpansion &e) {
  auto rows = update.getQuery().getDefiningOp<StagedOp>(), region = update.getKv().getDefiningOp<StagedOp>();
  TokensOp tokens = region ? GradientTile::tokensOf(region) : TokensOp();
  if (!rows || !tokens)
    return update.emitOpError("expected rows and tokens that are staged: --attn-stage-operands does it");
  e.setRows(rows);
  KernelBuilder &b = e.b;
  GradientTile tile(e);
  Value products = e.rowsDotTokens(update, region, TaskView::segmentOf(tokens));
  Value scores = tile.masked(update, tokens, 0, Value(),
                             tile.regionScores(update, tokens, products, /*reads=*/{}).front());
  Value sum = b.map(tile.pairs(), ValueRange{e.pieces.of(update.getState()).front(), tile.weights(scores)},
                    [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
  e.pieces.set(result, {sum});
  return success();
}

void mlir::attn::registerSignificanceModels(MLIRContext &context) {
  InitSignificanceOp::attachInterface<InitSignificanceModel>(context);
  WriteSignificanceOp::attachInterface<WriteSignificanceModel>(context);
}
