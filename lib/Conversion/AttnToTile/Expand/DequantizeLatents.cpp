//===- DequantizeLatents.cpp - Scores of keys whose values are a part -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Queries over latents that do not fit registers are narrowed in shared memory,
// once per task, so that keys become f16, a panel at a time. If the last features
// of a key are bf16, so are those of queries. Each group of the other features
// has a scale per token: its product is scaled in f32 as it is added, and its
// values have weights of their own, in a unit that the token's largest scale
// decides (Dequantize.cpp).
//
//===----------------------------------------------------------------------===//
#include "Expansion.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

using Scales = rt::Format::Scales;

/// Some panels of a tile.
Value FragmentExpansion::panelsOf(Value tile, Value first, int64_t features) {
  auto whole = cast<SharedType>(tile.getType());
  if (features == whole.getCols())
    return tile;
  auto part = SharedType::get(b.getContext(), whole.getRowAxis(), whole.getRows(), whole.getColAxis(),
                              features, whole.getElement(), whole.getSwizzled(), whole.getBoxes());
  return PanelsOp::create(b, part, tile, first);
}

/// The queries' features that belong to a panel of keys: of their tile, or what tile.narrow_tile made of it.
Value FragmentExpansion::queriesOf(Value query, int64_t first, int64_t features) {
  if (isa<SharedType>(query.getType()))
    return panelsOf(query, b.i32(static_cast<int32_t>(first)), features);
  FragmentType type = b.fragment({Axis::Query, Axis::Feature}, {form.getRows(), features}, b.getF16Type());
  return LoadLhsOp::create(b, type, query, first);
}

/// Adds up the scores of a tile panel by panel: the keys of a panel take few registers, and those of a whole
/// latent would take more than a thread has.
Value FragmentExpansion::panelScores(UpdateOp update, Value query, const rt::StorePart &part, Value scale,
                                     Value firstLine) {
  constexpr int64_t panel = 128; // of quantized elements
  auto shared = dyn_cast<SharedType>(query.getType());
  Type element = shared ? shared.getElement() : Type(b.getF16Type());
  Value ofTokens = part.format.scales == Scales::Token ? lineMeta(update, true).front() : Value();
  Value tile = copyOf(update.getKv(), Copy::Keys), sum;
  Value line = shared ? RowsPart(b, form, update.getQuery()).first() : Value();
  for (int64_t first = 0; first < form.getKeyTile(); first += panel) {
    const int64_t features = std::min(panel, form.getKeyTile() - first);
    const bool isLast = first + features == form.getKeyTile();
    Value lines = panelsOf(tile, b.i32(first), features);
    if (firstLine) { // lines of a panel lie one after the other
      auto all = cast<SharedType>(lines.getType());
      lines = OverlayOp::create(b,
                                SharedType::get(b.getContext(), all.getRowAxis(), form.getKeys(),
                                                all.getColAxis(), features, all.getElement(),
                                                all.getSwizzled(), all.getBoxes()),
                                lines, firstLine);
    }
    Value keys = dequantized(lines, Axis::Key, part, element, {}, {}, /*tiny=*/false);
    sum = ScoresOp::create(b, pairs(), form.getMmas(), queriesOf(query, first, features), keys, line,
                           IntegerAttr(), sum, isLast ? scale : Value(), isLast ? ofTokens : Value());
  }
  return sum;
}

/// Adds up the products of groups of features, each times its tokens' scales, and that of the rest.
Value FragmentExpansion::mixedScores(UpdateOp update, Value query, const rt::StorePart &part, Value scale) {
  const int64_t coded = part.format.rowCoded(part.dim), group = part.format.group;
  auto shared = dyn_cast<SharedType>(query.getType());
  Type element = shared ? shared.getElement() : Type(b.getF16Type());
  Value rest = shared ? panelsOf(query, b.i32(static_cast<int32_t>(coded)), part.format.rest)
                      : copyOf(update.getQuery(), Copy::QueryRest);
  Value line = RowsPart(b, form, update.getQuery()).first(), tile = copyOf(update.getKv(), Copy::Keys);
  auto product = [&](Value rows, Value keys, Value begin = {}) -> Value {
    return ScoresOp::create(b, pairs(), form.getMmas(), rows, keys,
                            isa<SharedType>(rows.getType()) ? line : Value(), IntegerAttr(), begin, Value(),
                            Value());
  };
  SmallVector<Value> scales = lineMeta(update, /*keys=*/true);
  Value sum;
  for (auto [number, ofTokens] : llvm::enumerate(scales)) {
    // The rest stands before the last group, because ptxas then spills nothing on any chip.
    if (number + 1 == scales.size())
      sum = product(rest, copyOf(update.getKv(), Copy::KeyRest), sum);
    const int64_t first = static_cast<int64_t>(number) * group;
    Value keys = dequantized(panelsOf(tile, b.i32(static_cast<int32_t>(first)), group), Axis::Key, part,
                             element, {}, {}, /*tiny=*/false);
    Value factor = ofTokens;
    if (scale)
      factor = b.map(perToken(b.getF32Type()), ValueRange{ofTokens},
                     [&](ValueRange v) -> Value { return arith::MulFOp::create(b, v[0], scale); });
    SmallVector<Value> terms{product(queriesOf(query, first, group), keys), factor};
    if (sum)
      terms.push_back(sum);
    sum = b.map(pairs(), terms, [&](ValueRange v) -> Value {
      return v.size() > 2 ? math::FmaOp::create(b, v[0], v[1], v[2]).getResult()
                          : arith::MulFOp::create(b, v[0], v[1]).getResult();
    });
  }
  return sum;
}
