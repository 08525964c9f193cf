//===- ExpandGradients.cpp - What an update adds to gradients -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// For a tile of rows and tokens, and for a warp's sixteen stationary lines:
//
//   stationary rows                    stationary tokens
//     s  = q k^T                         s  = k q^T
//     p  = exp(s - lse)                  p  = exp(s - lse)
//                                        dv += p do
//     dp = do v^T                        dp = v do^T
//     ds = p (dp - delta)                ds = p (dp - delta)
//     dq += ds k                         dk += ds q
//
// If tokens are stationary and ds is also added to rows (dq += ds^T k),
// warpgroups of 64 tokens each exchange ds in shared memory. Each adds half of
// the features of all rows of the tile, or all features of 64 of its 128 rows.
// The number of tiles of ds decides how often they sync for that
// (GradientTile.cpp). Of tiles of 128 rows, dv is added to when ds lies there.
//
// The two are each other's transpose, so p and ds are left operands as they
// come, and nothing is transposed in registers. The scale of scores is applied
// when results are written.
//
// If the dk and dv of a head do not fit registers together, kernels of keys
// make dk and kernels of values make dv: the same steps without the other sum,
// and for values without dp and ds.
//
// A row that sees nothing has an LSE of -inf, and exp(s - lse) would be
// anything. Its LSE counts as +inf, so that its weights are zeros. Lines past
// the last row have queries, gradients, LSEs and deltas of zero, so their
// weights are finite and multiply zeros. A score region may make anything of
// their positions: there their LSEs count as +inf, too.
//
// If a score region changes scores, s is its result, and ds is multiplied by
// its derivative at each score (ScoreSlopes.cpp). The gradient of a table
// multiplies ds by the derivative with respect to the element that the region
// reads. With stationary rows, the sum over a row's tokens is one number beside
// dq. It is written with its index in the table, which no token decides, and
// the caller of the launch adds up rows in their order.
//
// delta = <do, o> - dlse is computed from an output that is rounded to 16 bits.
// Its error is multiplied by the mean of the factors of a table's gradient,
// which may be thousands of times as large as their spread. So kernels that
// make gradients of tables or sinks add up p and ds, too, and correct their
// sums when a row ends (RowSums).
//
//===----------------------------------------------------------------------===//
#include "GradientTile.h"
#include "OnlineModels.h"
#include "RowSums.h"

#include "AttnToTile/Kernel/EarlyNumbers.h"
#include "AttnToTile/Kernel/Log2.h"
#include "AttnToTile/Kernel/TokenSlots.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Returns the reads whose tables get gradients in this kernel.
SmallVector<TableRead> readsWithGradients(FragmentExpansion &e) {
  UpdateOp update;
  e.b.kernel.walk([&](UpdateOp op) { update = update ? update : op; });
  return update ? tableReads(update, tablesAttr.get(e.b.kernel)) : SmallVector<TableRead>();
}

/// A gradient of rows is a list of sums, followed by the rows' deltas.
struct InitGradientModel : OnlineOpInterface::ExternalModel<InitGradientModel, InitGradientOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto init = cast<InitGradientOp>(op);
    KernelBuilder &b = e.b;
    if (init.getSummed()) {
      become(b, init.getGradient(), loadSums(init, e));
      return success();
    }
    auto zeros = [&](int64_t features) { return b.splat(b.f32(0), gradientType(e, features)); };
    Stationary of = init.getGradient().getType().getOf();
    SmallVector<Value> pieces;
    if (of != Stationary::Values)
      pieces.push_back(zeros(e.form.getKeyFeatures()));
    if (of == Stationary::Tokens || of == Stationary::Values)
      pieces.push_back(zeros(e.form.getValueTile()));
    if (of == Stationary::Rows) {
      Value delta = makeDelta(init, e);
      IntegerAttr count = rowSumsAttr.get(init);
      llvm::append_range(pieces, RowSums(e).zeros(count ? count.getInt() : 0));
      pieces.push_back(delta);
    }
    become(b, init.getGradient(), pieces);
    return success();
  }

  /// Loads the sums of this warp's rows, to which other blocks have added.
  static Value loadSums(InitGradientOp init, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    RowsPart rows(b, e.form, init.getPart());
    int64_t features = e.form.getKeyFeatures();
    auto load = LoadSumsOp::create(b, gradientType(e, features), b.buffer(rowSums, b.getF32Type()),
                                   rows.left(), features);
    b.fill(load.getSlot(), {b.getI32Type()}, [&](ValueRange line) { return rows.slotOfLine(line[0]); });
    return load;
  }

  /// Returns <do, o> of each row from shared memory, or from memory if rows are not staged: as many features
  /// as values have, in the order that is read fastest.
  static Value outputProducts(RowsPart &rows, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    Type f32 = b.getF32Type(), element = e.form.getElement();
    const int64_t features = e.form.getValueDim();
    const bool staged = static_cast<bool>(rows.copy(Copy::Output));
    const int64_t columns = staged ? e.form.getValueTile() : llvm::alignTo(features, 16);
    auto of = [&](Type element) {
      return b.fragment({Axis::Query, Axis::Feature}, {e.form.getRows(), columns}, element);
    };
    auto load = [&](Copy copy, StringRef tensor) -> Value {
      if (staged) {
        Value loaded = LoadOp::create(b, of(element), rows.copy(copy), rows.first());
        return b.map(of(f32), ValueRange{loaded},
                     [&](ValueRange v) -> Value { return arith::ExtFOp::create(b, f32, v[0]); });
      }
      auto loaded =
          LoadFeaturesOp::create(b, of(f32), b.buffer(tensor, element), Value(),
                                 columns == features ? IntegerAttr() : b.getI64IntegerAttr(features));
      b.fill(loaded.getSlot(), {b.getI32Type()}, [&](ValueRange line) {
        return b.mul(rows.slotOf(rows.packedRow(line[0]), b.getI64Type()), b.i64(features));
      });
      return loaded;
    };
    SmallVector<Value> factors{load(Copy::OutputGradient, "do"), load(Copy::Output, "o")};
    if (!staged && columns != features)
      factors.push_back(
          CoordinatesOp::create(b, b.fragment({Axis::Feature}, {columns}, b.getI32Type()), b.i32(0)));
    Value products = b.map(of(f32), factors, [&](ValueRange v) -> Value {
      Value product = arith::MulFOp::create(b, v[0], v[1]);
      return v.size() == 2 ? product : b.select(b.less(v[2], b.i32(features)), product, b.f32(0));
    });
    return ReduceOp::create(b, e.rowsOf(f32), Combine::Add, products);
  }

  /// Computes <do, o> - dlse of each row.
  static Value makeDelta(InitGradientOp init, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    RowsPart rows(b, e.form, init.getPart());
    Value delta = outputProducts(rows, e);
    if (!init.getWithLse())
      return delta;
    return b.map(e.rowsOf(b.getF32Type()), ValueRange{delta, lseGradient(e, rows)},
                 [&](ValueRange v) -> Value { return arith::SubFOp::create(b, v[0], v[1]); });
  }
};

struct WriteGradientModel : OnlineOpInterface::ExternalModel<WriteGradientModel, WriteGradientOp> {
  LogicalResult expandOnFragments(Operation *op, FragmentExpansion &e) const {
    auto write = cast<WriteGradientOp>(op);
    e.form.keepsTokens() ? writeTokens(write, e) : writeRows(write, e);
    return success();
  }

  static void writeRows(WriteGradientOp write, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    Type f32 = b.getF32Type();
    ValueRange pieces = piecesOf(write.getGradient());
    RowsPart rows(b, e.form, write.getPart());
    Value lines = rows.left();
    auto slot = [&](Value line) { return rows.slotOfLine(line); };
    if (write.getSums())
      store(pieces[0], b.buffer(rowSums, f32), lines, e.form.getKeyFeatures(), slot, e);
    else
      store(scaled(pieces[0], e), b.buffer("dq", e.form.getElement()), lines, e.form.getKeyDim(), slot, e);
    if (write.getSummed())
      return;
    auto numberSlot = [&](Value line) {
      return rows.numberSlotOf(b.add(rows.begin(), b.add(rows.first(), line)), b.getI64Type());
    };
    store(rows.copy(Copy::Lse), b.buffer(logLse, f32), lines, 1, numberSlot, e);
    RowSums::Settled settled =
        RowSums(e).settle(rows, pieces.drop_front().drop_back(), pieces.back(), beginningOf(b).getWithLse());
    store(settled.delta, b.buffer("delta", f32), lines, 1, numberSlot, e);
    for (auto [each, sum] : llvm::zip_equal(readsWithGradients(e), settled.tables))
      writeTable(each, sum, rows, e);
  }

  /// Writes the term of each row in a table's gradient, and its index in the table. Stores take floats, so
  /// the index is stored as its bits.
  static void writeTable(const TableRead &each, Value sum, RowsPart &rows, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    Type f32 = b.getF32Type(), i32 = b.getI32Type();
    SmallVector<Value> ofRow{rows.copy(Copy::Head), rows.copy(Copy::Position)};
    Value places = b.map(e.rowsOf(f32), ofRow, [&](ValueRange v) -> Value {
      Value place = arith::TruncIOp::create(b, i32, e.tablePlace(each.read, v));
      return arith::BitcastOp::create(b, f32, place);
    });
    auto slot = [&](Value line) { return rows.slotOfLine(line); };
    store(sum, b.buffer(each.sums, f32), rows.left(), 1, slot, e);
    store(places, b.buffer(each.places, f32), rows.left(), 1, slot, e);
  }

  static Value scaled(Value sum, FragmentExpansion &e) {
    Value scale = e.b.scale();
    return e.b.map(cast<FragmentType>(sum.getType()), ValueRange{sum},
                   [&](ValueRange v) -> Value { return arith::MulFOp::create(e.b, v[0], scale); });
  }

  /// Stores lines of `features` features; `slotOf` gives the index of a line.
  static void store(Value fragment, Value buffer, Value lines, int64_t features,
                    function_ref<Value(Value)> slotOf, FragmentExpansion &e) {
    auto type = cast<FragmentType>(fragment.getType());
    bool padded = type.getRank() == 2 && type.getSizes()[1] != features;
    e.storeLines(fragment, buffer, lines, /*column=*/Value(),
                 padded ? e.b.getI64IntegerAttr(features) : IntegerAttr(), features, slotOf);
  }

  /// Writes the lines either as partial results or as the final ones: the other store gets no lines.
  static void writeTokens(WriteGradientOp write, FragmentExpansion &e) {
    KernelBuilder &b = e.b;
    Stationary of = write.getGradient().getType().getOf();
    Value keys = of == Stationary::Values ? Value() : piecesOf(write.getGradient()).front();
    Value values = of == Stationary::Keys ? Value() : piecesOf(write.getGradient()).back();
    TokensOp tokens = tokensOf(write.getPart());
    Value first = firstToken(b, tokens), lines = b.sub(tokens.getEnd(), first);
    Value ofKeys = keys ? scaled(keys, e) : Value(), partial = write.getPartial();
    // The start of an instance is read once, before all stores.
    TokenSlots slots(b, tokens, e.form.getKvHeads());
    Value firstSlot = slots.slotOf(tokens.getInstance(), tokens.getHead(), first);
    Value apart = b.i64(slots.apart());
    auto storeAll = [&](Value some, function_ref<Value(bool)> place, function_ref<Value(Value)> slot) {
      if (keys)
        store(ofKeys, place(/*ofKeys=*/true), some, e.form.getKeyDim(), slot, e);
      if (values)
        store(values, place(/*ofKeys=*/false), some, e.form.getValueDim(), slot, e);
    };
    if (partial) {
      Value isPart = b.less(b.i32(-1), partial), line = b.add(partial, tokens.getWarp());
      storeAll(
          b.select(isPart, lines, b.i32(0)),
          [&](bool ofKeys) { return planArray(b, ofKeys ? PlanArray::PartialDk : PlanArray::PartialDv); },
          [&](Value number) { return b.wide(b.add(line, number)); });
      lines = b.select(isPart, b.i32(0), lines);
    }
    storeAll(
        lines,
        [&](bool ofKeys) { return b.buffer(tensorOf(tokens, ofKeys ? "dk" : "dv"), e.form.getElement()); },
        [&](Value line) { return b.add(firstSlot, b.mul(b.wide(line), apart)); });
    if (beginningOf(b).getAddsRows())
      waitForPieces(b);
  }
};

} // namespace

void mlir::attn::expandGradient(const OneUpdate &one, Value result, FragmentExpansion &e) {
  UpdateOp update = one.front();
  RowsPart rows = one.rows(e.b, e.form);
  Stationary of = cast<GradientType>(result.getType()).getOf();
  GradientTile tile(e, one, of);
  bool held = e.form.keepsTokens(), addsValues = of == Stationary::Tokens || of == Stationary::Values;
  bool addsPairs = of != Stationary::Values; // gradients of scores
  Value queries = rows.copy(Copy::Query), outputGradients = rows.copy(Copy::OutputGradient);
  Value keys = copyOf(update.getKv(), Copy::Keys), values = copyOf(update.getKv(), Copy::Values);
  Value exchange = rows.copy(Copy::Exchange);
  SmallVector<Value> sums(piecesOf(update.getState()));
  Value delta = held ? Value() : sums.pop_back_val();
  // Numbers of rows that lie in tiles are read where that is fastest, early or late.
  bool staged = isa<SharedType>(rows.copy(Copy::Lse).getType());
  const bool wide = exchange && tile.isWide();
  bool early = staged && !wide && readsNumbersEarly(update, e.form);
  // In two launches, dp begins with -delta: beside LSEs ptxas has no registers for deltas while the next
  // scores are computed. Fused kernels have the registers, unless keys are wide, and start dp earlier without
  // it.
  bool beginsLess = wide || (early && !exchange);
  auto multiply = [&] {
    return tile.mmaPairs(outputGradients, values,
                         e.featuresIfPadded(e.form.getValueDim(), e.form.getValueTile()),
                         beginsLess ? tile.number(Copy::Delta) : Value());
  };
  Value raw = tile.mmaPairs(queries, keys, e.featuresIfPadded(e.form.getKeyDim(), e.form.getKeyTile())),
        products;
  if (tile.startsMmas() && addsPairs && !wide) // it runs beside the exponentials
    products = multiply();
  // Queries and gradients past the last row are zeros, so the weights of such a row add nothing, unless the
  // key is NaN. Under a causal mask these rows have position zero, and see the tokens that all rows see.
  Value position = tile.number(Copy::Position), lse;
  auto readLse = [&] {
    lse = tile.number(Copy::Lse);
    // In two launches ptxas spills 4 bytes of heads of 192 without it.
    if (staged && !early && (!exchange || !update.getScore().empty()))
      lse = lseOfRows(e.b, rows, lse);
  };
  if (early || !staged)
    readLse();
  SmallVector<TableRead> reads = tableReads(update, tablesAttr.get(e.b.kernel));
  SmallVector<Value> ofRegion =
      tile.regionScores(tile.finish(raw, products ? 1 : 0).front(), position, reads);
  Value scores = tile.masked(ofRegion[0], position), slopes = ofRegion[1];
  if (!lse)
    readLse();
  Value weights = tile.weights(scores, lse);
  if (held && early && !beginsLess && addsPairs)
    delta = tile.number(Copy::Delta);
  // The sum of values of a long or wide tile runs while the warpgroups sync. At other tiles the next scores
  // do (StartEarly.cpp), and the sum runs while gradients of scores are computed.
  const bool late = exchange && addsValues && tile.startsValuesLate();
  auto addValues = [&] { sums.back() = tile.addMma(sums.back(), weights, outputGradients); };
  if (addsValues && !late)
    addValues();
  if (!addsPairs)
    return become(e.b, result, tile.finish(sums, 0));
  if (!products)
    products = multiply();
  products = tile.finish(products, addsValues && !late ? 1 : 0).front();
  if (held && !early && !beginsLess)
    delta = tile.number(Copy::Delta);
  assert((delta || !slopes) && "a score region's kernels read deltas");
  Value gradients = ScoreGradOp::create(e.b, weights.getType(), weights, products, delta, slopes);
  if (!held)
    RowSums(e).addTile(MutableArrayRef(sums).drop_front(), weights, products, delta,
                       ValueRange(ofRegion).drop_front(2));
  // Without values' gradients, those of keys run while the warpgroups sync. Queries are released when they
  // end, and the next tile arrives beside the sums of rows.
  const bool keysFirst = exchange && !addsValues;
  if (keysFirst)
    sums.front() = tile.addMma(sums.front(), gradients, queries);
  SmallVector<Value> ofRows;
  bool endsKeys = keysFirst;
  if (exchange) {
    tile.stage(gradients, exchange, rows.copy(Copy::Sums));
    if (late)
      addValues();
    tile.syncExchange(rows.copy(Copy::Sums));
    if (wide)
      sums.back() = tile.finish(sums.back(), 0).front();
    ofRows = tile.startRows(exchange, keys);
  }
  if (keysFirst)
    sums.front() = tile.finish(sums.front(), ofRows.size()).front();
  else
    sums.front() = tile.addMma(sums.front(), gradients, held ? queries : keys);
  if (exchange)
    endsKeys |= tile.addRows(ofRows, sums.front(), exchange, keys, rows.copy(Copy::Sums));
  // MMAs in flight; other sums of rows need no wait.
  size_t mmas = endsKeys ? 0 : addsValues ? 2 : 1;
  SmallVector<Value> finished;
  if (mmas > 0)
    finished = tile.finish(ValueRange(sums).take_front(mmas), 0);
  llvm::append_range(finished, ArrayRef(sums).drop_front(mmas));
  if (!held)
    finished.push_back(delta);
  become(e.b, result, finished);
}

void mlir::attn::registerGradientModels(MLIRContext &context) {
  InitGradientOp::attachInterface<InitGradientModel>(context);
  WriteGradientOp::attachInterface<WriteGradientModel>(context);
}
