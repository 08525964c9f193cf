//===- ExpandGradients.cpp - What an update adds to gradients -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Of a tile of rows and tokens, and of sixteen lines of those that a warp holds:
//
//   rows are held                      tokens are held
//     s  = q k^T                         s  = k q^T
//     p  = exp(s - lse)                  p  = exp(s - lse)
//                                        dv += p do
//     dp = do v^T                        dp = v do^T
//     ds = p (dp - delta)                ds = p (dp - delta)
//     dq += ds k                         dk += ds q
//
// Where tokens are held and ds is added to rows, too (dq += ds^T k), warpgroups of 64 tokens each exchange
// ds by way of shared memory, and each adds half of the features of all rows of the tile, or all features of
// 64 of its 128 rows. How often they meet for that depends on how many tiles ds has (GradientTile.cpp).
//
// The two are each other's transpose, so that p and ds are left operands as they
// come and nothing is transposed in registers. The scale of scores is left to what
// is written.
//
// A row that sees nothing has an LSE of -inf, and exp(s - lse) would be anything: its
// LSE counts as +inf, so that its weights are zeros. So does that of lines behind the
// last row.
//
// Where a score region changes scores, s is what it makes of them, and ds is multiplied
// by its derivative at each (ScoreSlopes.cpp). So it is by that at what the region
// reads of a table whose gradient is asked for; where rows are held, the sum over a
// row's tokens is a number beside dq. It is written with its place in the table, which
// no token decides, and whoever launched adds up rows in their order.
//
// delta = <do, o> - dlse is made of an output that is rounded to 16 bits. Its error is
// multiplied by the mean of what a table's gradient is multiplied by, which may be
// thousands of times as large as that spreads. So kernels that make gradients of tables or
// sinks add up p and ds, too, and correct their sums when a row ends (RowSums).
//
//===----------------------------------------------------------------------===//
#include "AttnToTile/Kernel/Log2.h"
#include "GradientTile.h"
#include "OnlineModels.h"
#include "RowSums.h"

#include "AttnToTile/Kernel/TokenSlots.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Which copy of a staged part holds what.
static constexpr unsigned queryCopy = 0, outputGradientCopy = 1, outputCopy = 2;
/// The same where numbers of rows are staged.
static constexpr unsigned lseCopy = 2, deltaCopy = 3, positionCopy = 4, exchangeCopy = 5, sumsCopy = 6;
static constexpr unsigned keyCopy = 0, valueCopy = 1;

void FragmentExpansion::readFinished() {
  Type f32 = b.getF32Type(), i64 = b.getI64Type();
  auto load = [&](StringRef name, auto slotOf) -> Value {
    auto loaded = LoadVectorOp::create(b, rowsOf(f32), b.buffer(name, f32));
    b.fill(loaded.getIndex(), {b.getI32Type()}, [&](ValueRange line) { return slotOf(packedRow(line[0])); });
    return loaded;
  };
  if (chain.gradient && chain.holdsTokens()) {
    auto slotOf = [&](Value packed) { return numberSlot(packed, i64); };
    rowLse = lseOfLines(load(logLse, slotOf));
    rowDelta = load("delta", slotOf);
    return;
  }
  Value lse = load("lse", [&](Value packed) { return packedSlot(packed, i64); });
  rowLse = lseOfLines(b.map(rowsOf(f32), ValueRange{lse}, [&](ValueRange v) -> Value {
    Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, v[0], b.f32(-infinity));
    return b.select(some, arith::MulFOp::create(b, v[0], b.f32(log2e)), b.f32(infinity));
  }));
}

Value FragmentExpansion::readLseGradient() {
  auto ofLse = LoadVectorOp::create(b, rowsOf(b.getF32Type()), b.buffer("dlse", b.getF32Type()));
  b.fill(ofLse.getIndex(), {b.getI32Type()},
         [&](ValueRange line) { return packedSlot(packedRow(line[0]), b.getI64Type()); });
  return ofLse;
}

Value FragmentExpansion::lseOfLines(Value ofRows) {
  Type i32 = b.getI32Type();
  Value count = b.sub(packedCount, warpRow), lines = CoordinatesOp::create(b, rowsOf(i32), b.i32(0));
  return b.map(rowsOf(b.getF32Type()), ValueRange{ofRows, lines},
               [&](ValueRange v) { return b.select(b.less(v[1], count), v[0], b.f32(infinity)); });
}

namespace {

TokensOp tokensOf(Value part) { return GradientTile::tokensOf(part); }

struct InitGradientModel : OnlineOpInterface::ExternalModel<InitGradientModel, InitGradientOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto init = cast<InitGradientOp>(op);
    KernelBuilder &b = e.b;
    GradientTile tile(e);
    auto zeros = [&](int64_t features) { return b.splat(b.f32(0), tile.accumulator(features)); };
    if (init.getSummed()) {
      e.setRows(init.getPart());
      e.pieces.set(init.getGradient(), {tile.loadSums()});
      return success();
    }
    SmallVector<Value> sums{zeros(e.chain.paddedKeyDim())};
    if (e.chain.holdsTokens()) {
      sums.push_back(zeros(e.chain.paddedValueDim()));
    } else {
      e.setRows(init.getPart());
      readDelta(init, e);
      llvm::append_range(sums, RowSums(e).zeros());
    }
    e.pieces.set(init.getGradient(), sums);
    return success();
  }

  static void readDelta(InitGradientOp init, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    Type f32 = b.getF32Type();
    int64_t features = e.chain.paddedValueDim();
    unsigned skipped = e.chain.updates.empty() ? 1 : 0; // nobody multiplies queries
    auto load = [&](unsigned copy) -> Value {
      FragmentType type = b.fragment({Axis::Query, Axis::Feature}, {e.rows, features}, e.chain.element());
      return LoadOp::create(b, type, FragmentExpansion::copyOf(init.getPart(), copy), e.warpRow);
    };
    FragmentType type = b.fragment({Axis::Query, Axis::Feature}, {e.rows, features}, f32);
    Value products = b.map(type, ValueRange{load(outputGradientCopy - skipped), load(outputCopy - skipped)},
                           [&](ValueRange v) -> Value {
                             return arith::MulFOp::create(b, arith::ExtFOp::create(b, f32, v[0]),
                                                          arith::ExtFOp::create(b, f32, v[1]));
                           });
    e.rowDelta = ReduceOp::create(b, e.rowsOf(f32), Combine::Add, products);
    if (!init.getWithLse())
      return;
    e.rowDelta = b.map(e.rowsOf(f32), ValueRange{e.rowDelta, e.readLseGradient()},
                       [&](ValueRange v) -> Value { return arith::SubFOp::create(b, v[0], v[1]); });
  }
};

struct WriteGradientModel : OnlineOpInterface::ExternalModel<WriteGradientModel, WriteGradientOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto write = cast<WriteGradientOp>(op);
    ArrayRef<Value> sums = e.pieces.of(write.getGradient());
    if (e.chain.holdsTokens()) {
      writeTokens(write, sums[0], sums[1], e);
      return success();
    }
    e.setRows(write.getPart());
    KernelBuilder &b = e.b;
    Value lines = b.sub(e.packedCount, e.warpRow);
    auto slot = [&](Value line) { return e.slotOfRow(b.add(e.warpRow, line)); };
    if (write.getSums())
      store(sums[0], b.buffer(rowSums, b.getF32Type()), lines, e.chain.paddedKeyDim(), slot, e);
    else
      store(scaled(sums[0], e), b.buffer("dq", e.chain.element()), lines, e.chain.keyDim(), slot, e);
    if (e.chain.gradient.getSummed())
      return success();
    auto numberSlot = [&](Value line) {
      return e.numberSlot(b.add(e.packedBegin, b.add(e.warpRow, line)), b.getI64Type());
    };
    store(e.rowLse, b.buffer(logLse, b.getF32Type()), lines, 1, numberSlot, e);
    RowSums::Settled settled = RowSums(e).settle(sums.drop_front());
    store(settled.delta, b.buffer("delta", b.getF32Type()), lines, 1, numberSlot, e);
    if (e.chain.updates.empty())
      return success();
    for (auto [each, sum] : llvm::zip_equal(e.readsWithGradients(e.chain.updates.front()), settled.tables))
      writeTable(each, sum, lines, slot, e);
    return success();
  }

  /// What each row adds to a table, and where; stores take floats, so a place goes as its bits.
  static void writeTable(const TableRead &each, Value sum, Value lines, function_ref<Value(Value)> slot,
                         FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    Type f32 = b.getF32Type(), i32 = b.getI32Type();
    Value places = b.map(e.rowsOf(f32), ValueRange{e.queryHead, e.queryPosition}, [&](ValueRange v) -> Value {
      Value place = arith::TruncIOp::create(b, i32, e.tablePlace(each.read, v));
      return arith::BitcastOp::create(b, f32, place);
    });
    store(sum, b.buffer(each.sums, f32), lines, 1, slot, e);
    store(places, b.buffer(each.places, f32), lines, 1, slot, e);
  }

  static Value scaled(Value sum, FragmentExpansion &e) {
    return e.b.map(cast<FragmentType>(sum.getType()), ValueRange{sum},
                   [&](ValueRange v) -> Value { return arith::MulFOp::create(e.b, v[0], e.dotScale); });
  }

  /// Lines of so many features that exist; `slotOf` says where one lies among lines.
  static void store(Value fragment, Value buffer, Value lines, int64_t features,
                    function_ref<Value(Value)> slotOf, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    auto type = cast<FragmentType>(fragment.getType());
    bool padded = type.getRank() == 2 && type.getSizes()[1] != features;
    auto op = StoreOp::create(b, fragment, buffer, lines, Value(),
                              padded ? b.getI64IntegerAttr(features) : IntegerAttr(), features);
    b.fill(op.getSlot(), {b.getI32Type()}, [&](ValueRange line) { return slotOf(line[0]); });
  }

  /// Either as those of a part or as the whole's: of the other no line exists.
  static void writeTokens(WriteGradientOp write, Value keys, Value values, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    TokensOp tokens = tokensOf(write.getPart());
    UpdateOp update = e.chain.updates.front();
    Value lines = GradientTile(e).tokensLeft(tokens), ofKeys = scaled(keys, e), partial = write.getPartial();
    // Where an instance begins is read once, in front of all stores.
    Value firstSlot = GradientTile(e).slotOfToken(update, tokens, b.i32(0));
    Value apart = b.i64(TokenSlots(b, update).apart());
    auto storeBoth = [&](Value some, Value dk, Value dv, function_ref<Value(Value)> slot) {
      store(ofKeys, dk, some, e.chain.keyDim(), slot, e);
      store(values, dv, some, e.chain.valueDim(), slot, e);
    };
    if (partial) {
      Value isPart = b.less(b.i32(-1), partial), first = b.add(partial, e.warpToken);
      storeBoth(b.select(isPart, lines, b.i32(0)), planArray(b, PlanArray::PartialDk),
                planArray(b, PlanArray::PartialDv), [&](Value line) { return b.wide(b.add(first, line)); });
      lines = b.select(isPart, b.i32(0), lines);
    }
    auto gradientOf = [&](StringRef name) { return b.buffer(e.tensor(update, name), e.chain.element()); };
    storeBoth(lines, gradientOf("dk"), gradientOf("dv"),
              [&](Value line) { return b.add(firstSlot, b.mul(b.wide(line), apart)); });
    if (e.chain.addsToRows()) // when the last of them has left, the block may end
      FinishSendsOp::create(b);
  }
};

} // namespace

LogicalResult mlir::attn::expandGradient(UpdateOp update, std::optional<unsigned> operand, Value which,
                                         Value result, FragmentExpansion &e) {
  auto rows = update.getQuery().getDefiningOp<StagedOp>(), region = update.getKv().getDefiningOp<StagedOp>();
  TokensOp tokens = region ? tokensOf(region) : TokensOp();
  if (!rows || !tokens)
    return update.emitOpError("expected rows and tokens that are staged: --attn-stage-operands does it");
  e.setRows(rows);
  GradientTile tile(e);
  auto ofRows = [&](unsigned copy) { return FragmentExpansion::copyOf(rows, copy); };
  auto ofTokens = [&](unsigned copy) { return FragmentExpansion::copyOf(region, copy); };
  SmallVector<Value> sums(e.pieces.of(update.getState()));
  bool held = e.chain.holdsTokens();
  auto number = [&](unsigned copy, Type element) -> Value {
    return LoadColumnsOp::create(e.b, TypeRange{e.rowsOf(element)}, ofRows(copy)).getResult(0);
  };
  Type f32 = e.b.getF32Type();
  bool early = e.stagesNumbers() && e.readsNumbersEarly();
  auto readDelta = [&] { e.rowDelta = number(deltaCopy, f32); };
  // Of two launches dp begins with -delta: beside LSEs ptxas has no registers for deltas while the next
  // scores are under way. Fused kernels have, and start dp earlier without.
  bool beginsLess = early && !e.chain.addsToRows();
  auto multiply = [&] { return tile.dotPairs(ofRows(outputGradientCopy), ofTokens(valueCopy), beginsLess); };
  Value raw = tile.dotPairs(ofRows(queryCopy), ofTokens(keyCopy)), products;
  if (beginsLess)
    readDelta();
  if (tile.startsDots()) // it runs beside the exponentials
    products = multiply();
  // Behind the last row queries and gradients are zeros, and a weight of them adds nothing, unless the key is
  // no number. Under a causal mask positions of zero are there, and see what all rows see.
  auto readLse = [&] {
    Value lse = number(lseCopy, f32);
    e.rowLse = early ? lse : e.lseOfLines(lse);
  };
  if (e.stagesNumbers())
    e.queryPosition = number(positionCopy, e.b.getI32Type());
  if (early)
    readLse();
  SmallVector<TableRead> reads = e.readsWithGradients(update);
  SmallVector<Value> ofRegion = tile.regionScores(update, tokens, tile.finish(raw, 1).front(), reads);
  Value scores = tile.masked(update, tokens, operand, which, ofRegion[0]), slopes = ofRegion[1];
  if (e.stagesNumbers() && !early)
    readLse();
  Value weights = tile.weights(scores);
  if (early && !beginsLess)
    readDelta();
  if (held)
    sums[1] = tile.addDot(sums[1], weights, ofRows(outputGradientCopy));
  if (!products)
    products = multiply();
  products = tile.finish(products, held ? 1 : 0).front();
  if (e.stagesNumbers() && !early)
    readDelta();
  if (beginsLess)
    e.rowDelta = {};
  Value gradients = tile.scoreGradients(weights, products, slopes);
  if (!held)
    RowSums(e).addTile(MutableArrayRef(sums).drop_front(), tile, weights, products,
                       ValueRange(ofRegion).drop_front(2));
  Value piece;
  if (e.chain.addsToRows())
    piece = tile.startRowsPiece(gradients, ofRows(exchangeCopy), ofTokens(keyCopy));
  sums[0] = tile.addDot(sums[0], gradients, held ? ofRows(queryCopy) : ofTokens(keyCopy));
  if (piece)
    tile.addRowsPiece(tile.finish(piece, 1).front(), ofRows(sumsCopy));
  size_t dots = held ? 2 : 1; // other sums of rows are there at once
  SmallVector<Value> finished = tile.finish(ValueRange(sums).take_front(dots), 0);
  llvm::append_range(finished, ArrayRef(sums).drop_front(dots));
  e.pieces.set(result, finished);
  return success();
}

void mlir::attn::registerGradientModels(MLIRContext &context) {
  InitGradientOp::attachInterface<InitGradientModel>(context);
  WriteGradientOp::attachInterface<WriteGradientModel>(context);
}
