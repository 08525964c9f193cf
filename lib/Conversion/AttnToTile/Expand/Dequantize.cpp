//===- Dequantize.cpp - Keys and values that are stored as codes ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tile of codes comes into shared memory as it is. On the way to a dot it is
// loaded into registers and widened to 16 bits, which is exact; what is missing
// then is metadata. Of keys it stays outside of the dot, where there is one number
// for each score and not for each element: with q of a row, k of a token and its
// features in groups g,
//
//   per head, per tensor   q . k = scale * (q . codes)
//   per token              q . k = scale[t] * (q . codes)
//   groups                 q . k = sum over g of scale[t, g] * (q_g . codes_g) + zero[t, g] * sum(q_g)
//
// where sum(q_g) is computed in front of the loop over tiles. Codes of values are
// multiplied as f16, whatever the queries are: it holds scales and zeros of integers
// as they are stored, and weights, which are below 2^8, more exactly than bf16 does.
// The metadata of a token cannot wait for the dot. Integers become code * scale + zero
// in registers, in pairs. What a whole head shares is left to the division by the sum
// of weights.
//
// Scales of floats are numbers of f32, which f16 need not hold: those of values of 1e-3
// are below its normal numbers. So weights take them, and values are codes alone. What
// keeps products with weights in the range of f16 is the unit of weights: it follows the
// largest score and scale of a tile, instead of the largest score. Where rows are few,
// that is quicker for integers, too; the zeros' share of the result is one number for a
// row, and is added last.
//
// A task reads one KV head. If all its tokens lie in one region, what a head or a
// tensor shares becomes a part of the scores' unit and of that division, and costs
// nothing per tile. Else each region's tiles take their own.
//
//===----------------------------------------------------------------------===//
#include "Expansion.h"

#include "AttnToTile/Kernel/Log2.h"

#include "attn/Conversion/TokenTiles.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

using Scales = rt::Format::Scales;

static rt::StorePart partOf(UpdateOp update, bool keys) {
  return storeOf(update.getKv().getType()).part(keys);
}

static bool hasSharedScale(const rt::Format &format) {
  return format.scales == Scales::Tensor || format.scales == Scales::Head;
}

bool FragmentExpansion::foldsScale(bool keys) {
  if (chain.updates.empty() || !chain.hasOneRegion())
    return false;
  UpdateOp update = chain.updates.front();
  return hasSharedScale(partOf(update, keys).format) && !update.getKv().getType().isOfClass();
}

Value FragmentExpansion::sharedScale(UpdateOp update, bool keys, Value place) {
  rt::StorePart part = partOf(update, keys);
  Value index = part.format.scales == Scales::Head ? b.wide(place) : b.i64(0);
  return b.read(b.buffer(tensor(update, rt::Store::metaName(part)), b.getF32Type()), index);
}

void FragmentExpansion::readScales() {
  auto folded = [&](bool keys) {
    return foldsScale(keys) ? sharedScale(chain.updates.front(), keys, kvHead) : Value();
  };
  Value keyScale = folded(true);
  valueScale = folded(false);
  setUnits(keyScale);
}

/// The scale of a region's keys or values that units do not have; computed in front of the loop over tiles.
Value FragmentExpansion::regionScale(UpdateOp update, bool keys, const Segment &segment) {
  if (!hasSharedScale(partOf(update, keys).format) || foldsScale(keys))
    return {};
  OpBuilder::InsertionGuard guard(b);
  auto loop = update->getParentOfType<scf::ForOp>();
  b.setInsertionPoint(loop);
  Value place = placeOf(update, segment);
  if (!update.getKv().getType().isOfClass() || partOf(update, keys).format.scales != Scales::Head)
    return sharedScale(update, keys, place);
  // A head of another class, which has no tiles of this store, is not in it either; it may have no heads at
  // all.
  Value isThere = b.compare(arith::CmpIPredicate::slt, loop.getLowerBound(), loop.getUpperBound());
  if (segment.operand) { // a loop over tiles of several stores
    auto number = llvm::find(chain.updates, update) - chain.updates.begin();
    Value isOwn = b.compare(arith::CmpIPredicate::eq, segment.operand, b.i32(number));
    isThere = b.createOrFold<arith::AndIOp>(isThere, isOwn);
  }
  auto read = scf::IfOp::create(b, TypeRange{b.getF32Type()}, isThere, /*withElseRegion=*/true);
  b.setInsertionPointToEnd(read.thenBlock());
  scf::YieldOp::create(b, sharedScale(update, keys, place));
  b.setInsertionPointToEnd(read.elseBlock());
  scf::YieldOp::create(b, b.f32(1));
  return read.getResult(0);
}

/// Metadata by line of a staged tile: one fragment over its tokens for each number of a line.
SmallVector<Value> FragmentExpansion::lineMeta(StagedOp staged, bool keys) {
  auto region = cast<KVType>(staged.getType());
  TokenTiles tiles = TokenTiles::of(region, this->keys, chain.paddedKeyDim(), chain.paddedValueDim());
  unsigned codes = chain.significance ? 1 : 2; // of keys alone, or of values, too
  ValueRange copies = staged.getCopies().drop_front(keys ? codes : codes + tiles.keyMeta.size());
  SmallVector<Value> meta;
  for (Value tile : copies.take_front((keys ? tiles.keyMeta : tiles.valueMeta).size())) {
    auto type = cast<SharedType>(tile.getType());
    FragmentType column = b.fragment({Axis::Key}, {type.getRows()}, type.getElement());
    auto columns = LoadColumnsOp::create(b, SmallVector<Type>(type.getCols(), column), tile);
    llvm::append_range(meta, columns.getColumns());
  }
  return meta;
}

/// Codes of a tile as the factor of a product, of which it keeps `kept`, in an order of features that has
/// groups apart where there are several.
Value FragmentExpansion::dequantized(Value tile, Axis kept, const rt::StorePart &part, Type element,
                                     ValueRange scales, ValueRange zeros, bool tiny) {
  auto shared = cast<SharedType>(tile.getType());
  bool lines = kept == shared.getRowAxis();
  Axis contracted = lines ? shared.getColAxis() : shared.getRowAxis();
  int64_t width = lines ? shared.getRows() : shared.getCols(),
          depth = lines ? shared.getCols() : shared.getRows();
  return DequantizeOp::create(b, b.fragment({kept, contracted}, {width, depth}, element), tile, scales, zeros,
                              groupOf(part), tiny);
}

/// Features of a group where there are several.
IntegerAttr FragmentExpansion::groupOf(const rt::StorePart &part) {
  return part.format.groups(part.dim) > 1 ? b.getI64IntegerAttr(part.format.group) : IntegerAttr();
}

Value FragmentExpansion::rowsDotTokens(UpdateOp update, StagedOp staged, const Segment &segment) {
  rt::StorePart part = partOf(update, /*keys=*/true);
  Value query = copyOf(update.getQuery(), 0), tile = staged.getCopies()[0];
  if (part.format.isPlain())
    return scores(query, tile);
  // Where queries stay in registers they become f16, which codes become with less work than bf16.
  Value factor, scale = regionScale(update, true, segment);
  if (auto type = dyn_cast<FragmentType>(query.getType()); type && type.getElement().isBF16()) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(query); // where it is staged: once, in front of the loop over tiles
    auto narrow = NarrowOp::create(b, type.withElement(b.getF16Type()), b.getF32Type(), query);
    query = narrow.getResult(), factor = narrow.getFactor();
  }
  if (factor)
    scale = scale ? arith::MulFOp::create(b, scale, factor).getResult() : factor;
  Type element = factor ? Type(b.getF16Type()) : chain.element();
  Value keys = dequantized(tile, Axis::Key, part, element, {}, {}, /*tiny=*/false);
  if (part.format.isInteger())
    return groupScores(update, query, keys, lineMeta(staged, true), part, scale);
  Value ofTokens = part.format.scales == Scales::Token ? lineMeta(staged, true).front() : Value();
  return scores(query, keys, scale, ofTokens);
}

/// A fragment of queries, of which groups of features are parts.
Value FragmentExpansion::queryFragment(Value query) {
  return isa<SharedType>(query.getType()) ? LoadOp::create(b, queryType(), query, warpRow).getResult()
                                          : query;
}

Value FragmentExpansion::groupScores(UpdateOp update, Value query, Value keys, ArrayRef<Value> meta,
                                     const rt::StorePart &part, Value scale) {
  int64_t groups = part.format.groups(part.dim);
  SmallVector<Value> sums, scales, zeros;
  {
    // Held rows are staged in front of the loop over tiles, and their sums are computed there.
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(isa<SharedType>(query.getType()) ? update.getQuery() : query);
    SmallVector<Type> types(groups, rowsOf(b.getF32Type()));
    llvm::append_range(sums, GroupSumsOp::create(b, types, queryFragment(query), groupOf(part)).getSums());
  }
  for (int64_t group = 0; group < groups; ++group)
    scales.push_back(meta[2 * group]), zeros.push_back(meta[2 * group + 1]);
  return GroupScoresOp::create(b, scoresType(), queryFragment(query), keys, scales, zeros, sums, scale,
                               groupOf(part));
}

Value FragmentExpansion::valuesOf(UpdateOp update, StagedOp staged) {
  rt::StorePart part = partOf(update, /*keys=*/false);
  Value tile = staged.getCopies()[1];
  if (part.format.isPlain())
    return tile;
  SmallVector<Value> scales, zeros;
  if (part.format.isInteger() && !weighsIntegers()) {
    SmallVector<Value> meta = lineMeta(staged, false);
    int64_t groups = part.format.groups(part.dim);
    // Features that pad a line are of the last group.
    int64_t all = groups == 1 ? 1 : chain.paddedValueDim() / part.format.group;
    for (int64_t group = 0; group < all; ++group) {
      scales.push_back(meta[2 * std::min(group, groups - 1)]);
      zeros.push_back(meta[2 * std::min(group, groups - 1) + 1]);
    }
  }
  return dequantized(tile, Axis::Feature, part, b.getF16Type(), scales, zeros, /*tiny=*/weighsIntegers());
}

//===----------------------------------------------------------------------===//
// Weights that take what scales values
//===----------------------------------------------------------------------===//

bool FragmentExpansion::weighsIntegers() {
  if (!schedule.hasFewRows() || chain.updates.empty())
    return false;
  rt::StorePart first = partOf(chain.updates.front(), /*keys=*/false);
  return llvm::all_of(chain.updates, [&](UpdateOp update) {
    rt::StorePart part = partOf(update, /*keys=*/false);
    return part.format.isInteger() && part.format.groups(part.dim) == 1 &&
           part.format.bits == first.format.bits;
  });
}

FragmentExpansion::TokenMeta FragmentExpansion::weighedMeta(UpdateOp update, StagedOp staged,
                                                            const Segment &segment) {
  const rt::Format format = partOf(update, /*keys=*/false).format;
  if (weighsIntegers()) {
    SmallVector<Value> meta = lineMeta(staged, /*keys=*/false);
    return {meta[0], meta[1]};
  }
  if (format.isPlain() || format.isInteger())
    return {};
  if (format.scales == Scales::Token)
    return {lineMeta(staged, /*keys=*/false)[0], {}};
  if (Value scale = regionScale(update, /*keys=*/false, segment))
    return {b.splat(scale, b.fragment({Axis::Key}, {keys}, b.getF32Type())), {}};
  return {};
}

bool FragmentExpansion::weighsFloats(UpdateOp update) {
  rt::StorePart part = partOf(update, /*keys=*/false);
  return !part.format.isPlain() && !part.format.isInteger() &&
         (part.format.scales == Scales::Token || !foldsScale(/*keys=*/false));
}

/// A row has one unit. Where the values of another region are codes with small scales, weights that take
/// these would be too small for f16 in the unit of weights that take none. So those leave as much room as
/// their own type has.
Value FragmentExpansion::liftBesideScales(UpdateOp update) {
  if (llvm::none_of(chain.updates, [&](UpdateOp each) { return weighsFloats(each); }))
    return {};
  Type f32 = b.getF32Type();
  const bool isWide = partOf(update, /*keys=*/false).format.isPlain() &&
                      elementOf(chain.element()).exponentBits >= elementOf(f32).exponentBits;
  return b.splat(arith::MulFOp::create(b, b.f32(isWide ? -30 : -6), unitsPerLog2(b, toLog2)), rowsOf(f32));
}

Value FragmentExpansion::addZeros(Value zeros, Value decay, Value weights, Value zero) {
  FragmentType type = rowsOf(b.getF32Type(), /*partial=*/true);
  Value ofTile =
      ReduceOp::create(b, type, Combine::Add, ScaleWeightsOp::create(b, weights.getType(), weights, zero));
  return b.map(type, ValueRange{zeros, decay, ofTile},
               [&](ValueRange v) -> Value { return math::FmaOp::create(b, v[0], v[1], v[2]); });
}

State FragmentExpansion::settled(const State &state) {
  if (!state.zeros)
    return state;
  Type codes = codesOf(chain.updates.front().getKv().getType().getValue());
  Value zeros = CompleteOp::create(b, rowsOf(b.getF32Type()), state.zeros);
  Value acc = RestoreOp::create(b, accType(), state.acc, TypeAttr::get(codes));
  acc = b.map(accType(), ValueRange{acc, zeros},
              [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
  return {state.max, state.sum, acc, {}};
}
