//===- Dequantize.cpp - Keys and values that are quantized ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tile of quantized values comes into shared memory as it is. On the way to
// an MMA it is loaded into registers and widened to 16 bits, which is exact.
// Metadata is applied elsewhere. That of keys stays outside of the MMA, where
// there is one number for each score and not for each element. With q of a row,
// x the quantized key of a token and its features in groups g,
//
//   per head, per tensor   q . k = scale * (q . x)
//   per token              q . k = scale[t] * (q . x)
//   groups                 q . k = sum over g of scale[t, g] * (q_g . x_g) + zero[t, g] * sum(q_g)
//
// where sum(q_g) is computed before the loop over tiles. Integers stay tiny
// numbers of f16 if queries stay in registers (tile.balance). Quantized
// elements of V are multiplied as f16, whatever the type of queries: f16 holds
// scales and zero points of integers as they are stored, and weights, which are
// below 2^8, more exactly than bf16 does. An MMA sums over tokens, so it cannot
// leave their metadata for later. Integers become x * scale + zero in registers, in
// pairs. A scale of a whole head is left to the division by the sum of weights.
//
// Scales of floats are f32, whose range f16 need not hold: scales of values
// around 1e-3 are below its normal numbers. So weights take the scales, and
// values stay quantized. The unit of weights keeps their products in the range
// of f16: it follows the largest score and the largest scale of a tile, instead
// of the largest score. Under a numerics contract it follows the largest product
// of a score and its scale that a row sees. With few rows this is quicker for
// integers, too; the zero points add one number to all features of a row, which
// is added last.
//
// Scales of blocks multiply quantized values on the way to an MMA, where a lane
// converts the scales of its own features only. f16 holds products of e2m1 and
// e4m3 exactly, from 2^-10 to 2,688, also when their bits are read 2^14 too
// small, so no lane multiplies each by 2^14. Powers of two reach further. The
// largest scale of a token's values is a scale of the token, which weights
// take; the others are divided by it, so they are at most 1 and fit f16. Powers
// of two of keys scale the scores of their block.
//
// wgmma has no right operand in registers. Its producers widen tiles in shared
// memory, to f16. Values become x * scale + zero there, and scores take the
// scales and zero points of keys, which producers widen to f32.
//
// Values that are a part of their keys come out of the keys' tile, and share its
// scales (DequantizeLatents.cpp).
//
// A task reads one KV head. If all its tokens lie in one region, the scale of a
// head or a tensor becomes a part of the scores' unit and of the final
// division, and costs nothing per tile. Otherwise each region's tiles take
// their own.
//
//===----------------------------------------------------------------------===//
#include "Expansion.h"

#include "AttnToTile/Kernel/Log2.h"

#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

using Scales = rt::Format::Scales;

static rt::StorePart partOf(UpdateOp update, bool keys) {
  return storeOf(update.getKv().getType()).part(keys);
}

/// Whether values are the first features of their keys.
static bool isLatent(UpdateOp update) { return update.getKv().getType().getLatent(); }

/// Whether a tile of quantized values is one of f16 already: producers have widened it.
static bool isWidened(Value tile) { return !cast<SharedType>(tile.getType()).holdsCodes(); }

/// Whether quantized values, read as 16-bit floats, are too small by a power of two.
static bool isTiny(KVType kv, bool keys) { return widenedUnit(keys ? kv.getKey() : kv.getValue()) != 1; }

/// Loads the metadata of a staged tile's lines: for each number of a line, one fragment over the tile's
/// tokens.
SmallVector<Value> FragmentExpansion::lineMeta(UpdateOp update, bool keys) {
  SmallVector<Value> meta;
  auto staged = update.getKv().getDefiningOp<StagedOp>();
  for (Value tile : staged.all(keys ? Copy::KeyMeta : Copy::ValueMeta)) {
    auto type = cast<SharedType>(tile.getType());
    FragmentType column = b.fragment({Axis::Key}, {type.getRows()}, type.getElement());
    auto columns = LoadColumnsOp::create(b, SmallVector<Type>(type.getCols(), column), tile);
    llvm::append_range(meta, columns.getColumns());
  }
  return meta;
}

/// The bits of the scale of block `group`, a byte of a 32-bit word; for powers of two, the exponent bits of
/// an f32.
static Value scaleBits(KernelBuilder &b, Value word, int64_t group) {
  Value byte = arith::ShRUIOp::create(b, word, b.i32(static_cast<int32_t>(group % 4 * 8)));
  return arith::AndIOp::create(b, byte, b.i32(255));
}

static Value powerOf(KernelBuilder &b, Value bits) {
  return arith::BitcastOp::create(b, b.getF32Type(), arith::ShLIOp::create(b, bits, b.i32(23)));
}

/// The scales of blocks that are powers of two, one fragment for each block.
SmallVector<Value> FragmentExpansion::blockPowers(ValueRange words, int64_t groups) {
  SmallVector<Value> scales;
  for (int64_t group = 0; group < groups; ++group)
    scales.push_back(b.map(perToken(b.getF32Type()), ValueRange{words[group / 4]},
                           [&](ValueRange v) -> Value { return powerOf(b, scaleBits(b, v[0], group)); }));
  return scales;
}

/// The largest exponent of a token's blocks. Each exponent is compared as the upper byte of a word; the lower
/// bytes decide only between equal exponents.
Value FragmentExpansion::largestPower(ValueRange words, int64_t groups) {
  return b.map(perToken(b.getI32Type()), words, [&](ValueRange v) -> Value {
    Value most;
    for (int64_t group = groups; group-- > 0;) {
      Value word = v[group / 4], shift = b.i32(static_cast<int32_t>((3 - group % 4) * 8));
      Value upper = group % 4 == 3 ? word : arith::ShLIOp::create(b, word, shift).getResult();
      most = most ? arith::MaxUIOp::create(b, most, upper).getResult() : upper;
    }
    return arith::ShRUIOp::create(b, most, b.i32(24));
  });
}

/// The quantized values of a tile as the factor of a product that keeps the axis `kept`. If there are several
/// groups of features, their order keeps groups apart.
Value FragmentExpansion::dequantized(Value tile, Axis kept, const rt::StorePart &part, Type element,
                                     ValueRange scales, ValueRange zeros, bool tiny) {
  return DequantizeOp::create(b, factorType(tile, kept, element), tile, scales, zeros, ValueRange(), Value(),
                              BlocksAttr(), groupOf(part), tiny);
}

/// The quantized values of a tile times the scales of their blocks. Powers of two are divided by the largest
/// one of the token, 2^most.
Value FragmentExpansion::dequantizedBlocks(UpdateOp update, bool keys, Type element, Value most) {
  rt::StorePart part = partOf(update, keys);
  KVType kv = update.getKv().getType();
  Value tile = copyOf(update.getKv(), keys ? Copy::Keys : Copy::Values);
  SmallVector<Value> words = lineMeta(update, keys);
  int64_t count = part.format.groups(part.dim);
  Type scale = cast<QuantizedType>(keys ? kv.getKey() : kv.getValue()).getScale();
  // Weights have `most` in a row layout: moving it between lanes takes less work than computing it again.
  if (most)
    most = tile::ConvertOp::create(b, most.getType(), most);
  auto blocks = BlocksAttr::get(b.getContext(), count, part.format.group, scale);
  // Tiny values need a factor of 2^14 from elsewhere: powers of two contain it, and so does a scale that
  // results take. Without these, weights would have to take it.
  const bool tiny = isTiny(kv, keys) && (keys || most || form.has(FormTraits::ValueScale));
  return DequantizeOp::create(b, factorType(tile, keys ? Axis::Key : Axis::Feature, element), tile,
                              ValueRange(), ValueRange(), words, most, blocks, IntegerAttr(), tiny);
}

FragmentType FragmentExpansion::factorType(Value tile, Axis kept, Type element) {
  auto shared = cast<SharedType>(tile.getType());
  bool lines = kept == shared.getRowAxis();
  Axis contracted = lines ? shared.getColAxis() : shared.getRowAxis();
  int64_t width = lines ? shared.getRows() : shared.getCols(),
          depth = lines ? shared.getCols() : shared.getRows();
  return b.fragment({kept, contracted}, {width, depth}, element);
}

/// The features of a group if there are several groups; null otherwise.
IntegerAttr FragmentExpansion::groupOf(const rt::StorePart &part) {
  return part.format.groups(part.dim) > 1 ? b.getI64IntegerAttr(part.format.group) : IntegerAttr();
}

/// The features of lines that are padded to a longer tile; null where they are not.
IntegerAttr FragmentExpansion::featuresIfPadded(int64_t features, int64_t tile) {
  return features < tile ? b.getI64IntegerAttr(features) : IntegerAttr();
}

Value FragmentExpansion::scores(Value rows, Value ofRows, Value ofTokens, Value scale, Value tokenScales) {
  RowsPart part(b, form, rows);
  Value left = form.has(FormTraits::TokensFirst) ? ofTokens : ofRows, line;
  // Warps with stationary tokens have tiles of their own and the same rows: the left operand is read from its
  // first line on.
  if (isa<SharedType>(ofRows.getType()))
    line = form.getMmas() == Mmas::Mma ? part.first() : part.group();
  return ScoresOp::create(
      b, pairs(), form.getMmas(), ofRows, ofTokens, isa<SharedType>(left.getType()) ? line : Value(),
      featuresIfPadded(form.getKeyDim(), form.getKeyTile()), /*begin=*/Value(), scale, tokenScales);
}

Value FragmentExpansion::rowsMmaTokens(UpdateOp update, Value line) {
  rt::StorePart part = partOf(update, /*keys=*/true);
  Value query = copyOf(update.getQuery(), Copy::Query), tile = copyOf(update.getKv(), Copy::Keys);
  if (part.format.isPlain())
    return scores(update.getQuery(), query, tile);
  // Queries in registers become f16, because quantized values become f16 with less work than bf16.
  // tile.narrow bounds their size, so that tile.balance may make them smaller for tiny values.
  Value factor = copyOf(update.getQuery(), Copy::QueryFactor), scale = copyOf(update.getKv(), Copy::KeyScale);
  auto held = dyn_cast<FragmentType>(query.getType());
  const bool tiny = held && part.format.isInteger() && !isWidened(tile);
  if (held && (tiny || held.getElement().isBF16())) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(query); // where queries are staged: once, before the loop over tiles
    auto narrow = NarrowOp::create(b, held.withElement(b.getF16Type()), b.getF32Type(), query);
    query = narrow.getResult(), factor = narrow.getFactor();
  }
  if (factor)
    scale = scale ? arith::MulFOp::create(b, scale, factor).getResult() : factor;
  if (isWidened(tile))
    return part.format.isInteger() ? widenedScores(update, query, tile, scale)
                                   : scores(update.getQuery(), query, tile, scale);
  if (part.format.isMixed())
    return mixedScores(update, query, part, scale);
  if (isLatent(update) && !held)
    return panelScores(update, query, part, scale, line);
  Type element = factor ? Type(b.getF16Type()) : form.getElement();
  if (part.format.blocks == rt::Format::Blocks::E4M3)
    return scores(update.getQuery(), query, dequantizedBlocks(update, /*keys=*/true, element), scale);
  Value keys = dequantized(tile, Axis::Key, part, element, {}, {},
                           tiny || isTiny(update.getKv().getType(), /*keys=*/true));
  if (part.format.scales == Scales::Group)
    return groupScores(update, query, keys, part, scale, tiny);
  Value ofTokens = part.format.scales == Scales::Token ? lineMeta(update, true).front() : Value();
  return scores(update.getQuery(), query, keys, scale, ofTokens);
}

/// The scores of integers that producers have widened, with one scale and zero point for each token. These
/// integers count from the middle of their range, and so does the zero point: the two terms of a score would
/// otherwise be larger than it, and lose as many bits.
Value FragmentExpansion::widenedScores(UpdateOp update, Value query, Value tile, Value factor) {
  Type f32 = b.getF32Type();
  auto times = [&](Value vector, FragmentType type) {
    return !factor ? vector : b.map(type, ValueRange{vector}, [&](ValueRange v) -> Value {
      return arith::MulFOp::create(b, v[0], factor);
    });
  };
  Value sums;
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(isa<SharedType>(query.getType()) ? Value(update.getQuery()) : query);
    Value all = queryFragment(update.getQuery(), query);
    sums = GroupSumsOp::create(b, SmallVector<Type>{rowsOf(f32)}, all, IntegerAttr()).getSums().front();
    sums = times(sums, rowsOf(f32));
  }
  Value products = scores(update.getQuery(), query, tile);
  SmallVector<Value> meta = lineMeta(update, /*keys=*/true);
  const auto middle = static_cast<float>(1 << (partOf(update, /*keys=*/true).format.bits - 1));
  Value zero = b.map(perToken(f32), meta, [&](ValueRange v) -> Value {
    return math::FmaOp::create(b, v[0], b.f32(middle), v[1]);
  });
  return b.map(pairs(), ValueRange{products, times(meta[0], perToken(f32)), zero, sums},
               [&](ValueRange v) -> Value {
                 Value rest = arith::MulFOp::create(b, v[2], v[3]);
                 return math::FmaOp::create(b, v[1], v[0], rest);
               });
}

/// Loads the queries as a fragment, of which groups of features are parts.
Value FragmentExpansion::queryFragment(Value rows, Value query) {
  if (isa<FragmentType>(query.getType()))
    return query;
  FragmentType type =
      b.fragment({Axis::Query, Axis::Feature}, {form.getRows(), form.getKeyTile()}, form.getElement());
  return LoadOp::create(b, type, query, RowsPart(b, form, rows).first());
}

/// Products with tiny values are 2^-24 of the real products; so are the terms of zero points. A scale that
/// exists anyway makes the sum larger at the end.
Value FragmentExpansion::groupScores(UpdateOp update, Value query, Value keys, const rt::StorePart &part,
                                     Value scale, bool tiny) {
  SmallVector<Value> meta = lineMeta(update, /*keys=*/true), sums, scales, zeros;
  int64_t groups = part.format.groups(part.dim);
  Value rows = query;
  if (part.format.hasBlocks()) {
    float unit = widenedUnit(update.getKv().getType().getKey());
    if (unit != 1)
      scale = scale ? arith::MulFOp::create(b, scale, b.f32(unit)).getResult() : b.f32(unit);
    return GroupScoresOp::create(b, pairs(), queryFragment(update.getQuery(), rows), keys,
                                 blockPowers(meta, groups), zeros, sums, scale, groupOf(part));
  }
  {
    // Stationary rows are staged before the loop over tiles, and their sums are computed there.
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(isa<SharedType>(query.getType()) ? Value(update.getQuery()) : query);
    SmallVector<Type> types(groups, rowsOf(b.getF32Type()));
    Value all = queryFragment(update.getQuery(), query);
    llvm::append_range(sums, GroupSumsOp::create(b, types, all, groupOf(part)).getSums());
    if (tiny) {
      Type codes = cast<SharedType>(copyOf(update.getKv(), Copy::Keys).getType()).getElement();
      rows = BalanceOp::create(b, query.getType(), query, TypeAttr::get(codes));
      for (Value &sum : sums)
        sum = b.map(rowsOf(b.getF32Type()), ValueRange{sum},
                    [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], b.f32(0x1p-24)); });
      scale = arith::MulFOp::create(b, scale, b.f32(0x1p24));
    }
  }
  for (int64_t group = 0; group < groups; ++group)
    scales.push_back(meta[2 * group]), zeros.push_back(meta[2 * group + 1]);
  return GroupScoresOp::create(b, pairs(), queryFragment(update.getQuery(), rows), keys, scales, zeros, sums,
                               scale, groupOf(part));
}

Value FragmentExpansion::valuesOf(UpdateOp update, const TokenMeta &weighed) {
  rt::StorePart part = partOf(update, /*keys=*/false);
  Value tile = copyOf(update.getKv(), Copy::Values);
  if (part.format.isPlain() || isWidened(tile))
    return tile;
  if (isLatent(update)) {
    Value first = firstFeature();
    const int64_t tokens = cast<SharedType>(tile.getType()).getRows();
    FragmentType factor =
        b.fragment({Axis::Feature, Axis::Key}, {form.getValueTile(), tokens}, b.getF16Type());
    return DequantizeOp::create(b, factor, first ? panelsOf(tile, first, form.getValueTile()) : tile,
                                ValueRange(), ValueRange(), ValueRange(), Value(), BlocksAttr(),
                                IntegerAttr(), /*tiny=*/false);
  }
  bool apart = form.getCodes() != nullptr;
  SmallVector<Value> scales, zeros;
  if (part.format.hasBlocks())
    return dequantizedBlocks(update, /*keys=*/false, b.getF16Type(), weighed.most);
  if (part.format.isInteger() && !apart) {
    SmallVector<Value> meta = lineMeta(update, /*keys=*/false);
    int64_t groups = part.format.groups(part.dim);
    // Features that pad a line belong to the last group.
    int64_t all = groups == 1 ? 1 : form.getValueTile() / part.format.group;
    for (int64_t group = 0; group < all; ++group) {
      scales.push_back(meta[2 * std::min(group, groups - 1)]);
      zeros.push_back(meta[2 * std::min(group, groups - 1) + 1]);
    }
  }
  return dequantized(tile, Axis::Feature, part, b.getF16Type(), scales, zeros, /*tiny=*/apart);
}

Value FragmentExpansion::valueSlice() {
  if (schedule.getSlices() == 1)
    return {};
  Value warp = b.sub(WarpIdOp::create(b, b.getI32Type()), b.i32(schedule.getProducerWarps()));
  return b.rem(form.getMmas() == Mmas::Wgmma ? b.div(warp, ScheduleAttr::groupWarps) : warp,
               schedule.getSlices());
}

Value FragmentExpansion::firstFeature() {
  Value slice = valueSlice();
  return slice ? b.mul(slice, b.i32(form.getValueTile())) : Value();
}

//===----------------------------------------------------------------------===//
// Weights that take the scales of values
//===----------------------------------------------------------------------===//

/// The scales of group `group` of this warp's slice of the values, which has `groups` groups.
Value FragmentExpansion::scaleOfGroup(ArrayRef<Value> scales, int64_t group, int64_t groups) {
  Value slice = valueSlice(), result = scales[group];
  for (int64_t other = 1; slice && other < schedule.getSlices(); ++other) {
    Value isOther = b.compare(arith::CmpIPredicate::eq, slice, b.i32(static_cast<int32_t>(other)));
    result = b.map(perToken(b.getF32Type()), ValueRange{result, scales[other * groups + group]},
                   [&](ValueRange v) -> Value { return b.select(isOther, v[1], v[0]); });
  }
  return result;
}

Value FragmentExpansion::accumulateGroups(UpdateOp update, ArrayRef<Value> scales, Value weights, Value acc) {
  const rt::StorePart part = partOf(update, /*keys=*/true);
  const int64_t group = part.format.group;
  Value tile = copyOf(update.getKv(), Copy::Values), slice = firstFeature();
  auto whole = cast<FragmentType>(acc.getType());
  FragmentType some = b.fragment(whole.getAxes(), {whole.getSizes()[0], group}, whole.getElement());
  SmallVector<Value> sums;
  for (auto [number, ofTokens] : llvm::enumerate(scales)) {
    const int64_t column = static_cast<int64_t>(number) * group;
    Value first = b.i32(static_cast<int32_t>(column));
    Value values = dequantized(panelsOf(tile, slice ? b.add(slice, first) : first, group), Axis::Feature,
                               part, b.getF16Type(), {}, {}, /*tiny=*/false);
    Value scaled = ScaleWeightsOp::create(b, weights.getType(), weights, ofTokens);
    Value sum = PartOp::create(b, some, acc, b.getI64IntegerAttr(column));
    sums.push_back(AccumulateOp::create(b, some, form.getMmas(), scaled, values, Value(), sum));
  }
  return JoinOp::create(b, whole, sums);
}

FragmentExpansion::TokenMeta FragmentExpansion::weighedMeta(UpdateOp update) {
  const rt::Format format = partOf(update, /*keys=*/false).format;
  if (form.getCodes()) {
    SmallVector<Value> meta = lineMeta(update, /*keys=*/false);
    return {meta[0], meta[1], {}};
  }
  if (format.isPlain() || format.isInteger())
    return {};
  if (format.blocks == rt::Format::Blocks::E8M0) {
    const rt::StorePart part = partOf(update, /*keys=*/false);
    Value most = largestPower(lineMeta(update, /*keys=*/false), format.groups(part.dim));
    return {b.map(perToken(b.getF32Type()), ValueRange{most},
                  [&](ValueRange v) -> Value { return powerOf(b, v[0]); }),
            {},
            most};
  }
  if (format.scales == Scales::Token)
    return {lineMeta(update, /*keys=*/false)[0], {}, {}};
  if (format.isMixed()) {
    // Weights of the largest group are 2^7 in this unit, up to 2^15 by the slack: those of groups of much
    // smaller scales stay normal numbers of f16 for longer.
    auto largest = [&](ValueRange v) -> Value {
      Value most = v.front();
      for (Value x : v.drop_front())
        most = arith::MaxNumFOp::create(b, most, x);
      return arith::MulFOp::create(b, most, b.f32(0x1p-7F));
    };
    SmallVector<Value> scales = lineMeta(update, /*keys=*/false), own;
    const int64_t groups = form.getValueTile() / format.group;
    for (int64_t group = 0; group < groups; ++group)
      own.push_back(scaleOfGroup(scales, group, groups));
    return {b.map(perToken(b.getF32Type()), scales, largest), {}, {}, own};
  }
  if (Value scale = copyOf(update.getKv(), Copy::ValueScale))
    return {b.splat(scale, perToken(b.getF32Type())), {}, {}};
  return {};
}

/// A row has one unit. Another region may have quantized values with small scales, which its weights take. In
/// the unit of weights that take none, such weights would be too small for f16. So the weights that take none
/// leave as much headroom as their own type has. f16 ends at 2^16, so with f16 the unit follows each new
/// maximum.
FragmentExpansion::Room FragmentExpansion::roomBesideScales(UpdateOp update, Value unit) {
  if (!form.has(FormTraits::Lifts))
    return {};
  Type f32 = b.getF32Type();
  const bool isWide = partOf(update, /*keys=*/false).format.isPlain() &&
                      elementOf(form.getElement()).exponentBits >= elementOf(f32).exponentBits;
  Value lift = arith::MulFOp::create(b, b.f32(isWide ? -30 : -14), unitsPerLog2(b, unit));
  return {b.splat(lift, rowsOf(f32)), isWide ? Room().slack : 0};
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
  Value zeros = CompleteOp::create(b, rowsOf(b.getF32Type()), state.zeros);
  Value acc = RestoreOp::create(b, accType(), state.acc, TypeAttr::get(form.getCodes()));
  acc = b.map(accType(), ValueRange{acc, zeros},
              [&](ValueRange v) -> Value { return arith::AddFOp::create(b, v[0], v[1]); });
  return {state.max, state.sum, acc, {}, state.unit};
}
