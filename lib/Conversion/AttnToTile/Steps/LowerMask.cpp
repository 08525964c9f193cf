//===- LowerMask.cpp - What rows see of a tile ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

#include "AttnToTile/Kernel/ValuePositions.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERMASKPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;
using ::attn::rt::intervalOf;
using ::attn::rt::isConnective;

namespace {

/// The interval of positions that a term shows to a row. Without an end the interval goes on as far as tokens
/// exist.
using Shown = ::attn::rt::PositionBounds<Value>;

/// The terms of a visibility, in the order of the text.
SmallVector<VisibilityAttr> termsOf(VisibilityAttr visibility) {
  if (!isConnective(visibility.getKind()))
    return {visibility};
  SmallVector<VisibilityAttr> terms;
  for (VisibilityAttr part : visibility.getOperands())
    llvm::append_range(terms, termsOf(part));
  return terms;
}

/// Whether rows see different tokens through a term of `visibility`.
bool dependsOnRow(VisibilityAttr visibility) {
  return llvm::any_of(termsOf(visibility),
                      [](VisibilityAttr term) { return ::attn::rt::dependsOnRow(term.getKind()); });
}

/// Joins the results of `ofTerm` for each term of `visibility`, by its number in the text, from `first` on.
/// Terms that are the same for all rows come first, or ptxas spills beside the numbers of rows.
Value join(KernelBuilder &b, VisibilityAttr visibility, function_ref<Value(size_t)> ofTerm,
           size_t first = 0) {
  if (!isConnective(visibility.getKind()))
    return ofTerm(first);
  SmallVector<std::pair<VisibilityAttr, size_t>> parts;
  for (VisibilityAttr part : visibility.getOperands()) {
    parts.emplace_back(part, first);
    first += termsOf(part).size();
  }
  llvm::stable_sort(
      parts, [](auto &one, auto &other) { return !dependsOnRow(one.first) && dependsOnRow(other.first); });
  Value all;
  for (auto [part, from] : parts) {
    Value one = join(b, part, ofTerm, from);
    all = !all                                         ? one
          : visibility.getKind() == VisibilityKind::Or ? b.createOrFold<arith::OrIOp>(all, one)
                                                       : b.createOrFold<arith::AndIOp>(all, one);
  }
  return all;
}

/// Divides `all`, the sizes of a visibility, among its terms.
SmallVector<ValueRange> sizesOf(ArrayRef<VisibilityAttr> terms, ValueRange all) {
  SmallVector<ValueRange> sizes;
  for (VisibilityAttr term : terms) {
    sizes.push_back(all.take_front(term.getSizes().size()));
    all = all.drop_front(term.getSizes().size());
  }
  return sizes;
}

Value contains(KernelBuilder &b, const Shown &shown, Value column) {
  if (!shown.end)
    return b.compare(arith::CmpIPredicate::sge, column, *shown.begin);
  Value before = b.less(column, *shown.end);
  return shown.begin ? b.createOrFold<arith::AndIOp>(
                           b.compare(arith::CmpIPredicate::sge, column, *shown.begin), before)
                     : before;
}

struct LowerMask : mlir::attn::impl::LowerMaskPassBase<LowerMask> {
  void runOnOperation() override { lowered += lowerSteps<mlir::attn::MaskOp>(getOperation(), lower); }

  static SmallVector<Value> lower(mlir::attn::MaskOp op, KernelBuilder &b) {
    return {op.getPartial() ? maskColumns(op, b) : maskPositions(op, b)};
  }

  /// Masks by columns. Measured from this lane's first column, an end is one number per row (or one for all
  /// rows), and a column of the tile is a compile-time constant: one compare per element and end. Upper ends
  /// are clamped to the tokens that exist, which therefore need no compare of their own.
  static Value maskColumns(mlir::attn::MaskOp op, KernelBuilder &b) {
    FragmentType type = op.getResult().getType();
    Type i32 = b.getI32Type();
    FragmentType ofRows = along(b, type, Axis::Query, i32);
    auto lane = LaneCoordinatesOp::create(b, i32, along(b, type, Axis::Key, i32));
    Value firstToken = b.add(op.getFirst(), lane.getFirst()), origin = b.add(op.getPos0(), firstToken);
    Value exists = b.sub(op.getEnd(), firstToken);
    Value lower = op.getBegin() ? b.sub(op.getBegin(), firstToken) : Value();
    ValuePositions positions(b, origin);
    SmallVector<VisibilityAttr> terms = termsOf(op.getVisibility());
    SmallVector<Shown> shown;
    for (auto [each, eachSizes] : llvm::zip_equal(terms, sizesOf(terms, op.getEnds()))) {
      const VisibilityKind kind = each.getKind();
      const ValueRange sizes = eachSizes;
      auto ofRow = [&](Value row) { return intervalOf(kind, positions, row, sizes); };
      auto beginOf = [&](Value begin) { return lower ? b.max(begin, lower) : begin; };
      auto endOf = [&](Value end) { return b.min(end, exists); };
      const auto form = ::attn::rt::linearInterval(kind);
      auto perRow = [&](function_ref<Value(Shown)> end) {
        return b.map(ofRows, ValueRange{op.getPositions()},
                     [&](ValueRange v) { return end(ofRow(b.sub(v[0], origin))); });
      };
      Shown bounds{{}, exists};
      if (lower)
        bounds.begin = lower;
      if (form.begin)
        bounds.begin = form.begin->moves ? perRow([&](Shown row) { return beginOf(*row.begin); })
                                         : beginOf(*ofRow(origin).begin);
      if (form.end)
        bounds.end =
            form.end->moves ? perRow([&](Shown row) { return endOf(*row.end); }) : endOf(*ofRow(origin).end);
      if (op.getFront())
        bounds.end.reset();
      if (op.getBehind())
        bounds.begin.reset();
      shown.push_back(bounds);
    }
    SmallVector<Value> inputs{lane.getOffsets()};
    auto forRows = [](std::optional<Value> end) { return end && isa<FragmentType>(end->getType()); };
    SmallVector<size_t> firstInputs;
    for (const Shown &bounds : shown) {
      firstInputs.push_back(inputs.size());
      for (std::optional<Value> end : {bounds.begin, bounds.end})
        if (forRows(end))
          inputs.push_back(*end);
    }
    auto mask = tile::MaskOp::create(b, type, op.getScores(), inputs, op.getPartial());
    b.fill(mask.getVisible(), SmallVector<Type>(inputs.size(), i32), [&](ValueRange v) -> Value {
      return join(b, op.getVisibility(), [&](size_t term) {
        Shown bounds = shown[term];
        size_t input = firstInputs[term];
        for (std::optional<Value> *end : {&bounds.begin, &bounds.end})
          if (forRows(*end))
            *end = v[input++];
        return contains(b, bounds, v[0]);
      });
    });
    return mask;
  }

  /// Masks by the positions of tokens and rows. If the rows of a warp see all of the tile, nothing is masked.
  static Value maskPositions(mlir::attn::MaskOp op, KernelBuilder &b) {
    // A token that does not exist has a position after all that any row sees.
    constexpr int32_t behind = std::numeric_limits<int32_t>::max();
    FragmentType type = op.getResult().getType();
    Type i32 = b.getI32Type();
    FragmentType ofTokens = along(b, type, Axis::Key, i32);
    const int64_t count = sizeOf(type, Axis::Key);
    Value tokens = CoordinatesOp::create(b, ofTokens, op.getFirst());
    Value positions = b.map(ofTokens, ValueRange{tokens}, [&](ValueRange v) {
      return b.select(b.less(v[0], op.getEnd()), b.add(v[0], op.getPos0()), b.i32(behind));
    });
    ValuePositions arithmetic(b);
    SmallVector<VisibilityAttr> terms = termsOf(op.getVisibility());
    SmallVector<ValueRange> sizes = sizesOf(terms, op.getEnds());
    auto joinTerms = [&](Value row, function_ref<Value(const Shown &)> ofTerm) {
      return join(b, op.getVisibility(), [&](size_t term) {
        return ofTerm(intervalOf(terms[term].getKind(), arithmetic, row, sizes[term]));
      });
    };
    Value first = b.add(op.getFirst(), op.getPos0()), last = b.add(first, b.i32(count - 1));
    FragmentType perRow = along(b, type, Axis::Query, b.getI1Type());
    Value hides = b.map(perRow, ValueRange{op.getPositions()}, [&](ValueRange v) -> Value {
      Value yes = b.createOrFold<arith::ConstantIntOp>(1, 1);
      Value all = joinTerms(v[0], [&](const Shown &shown) {
        Value begins = shown.begin ? b.compare(arith::CmpIPredicate::sle, *shown.begin, first) : yes;
        return b.createOrFold<arith::AndIOp>(begins, shown.end ? b.less(last, *shown.end) : yes);
      });
      return b.createOrFold<arith::XOrIOp>(all, yes);
    });
    Value tail = b.less(op.getEnd(), b.add(op.getFirst(), b.i32(count)));
    Value partial = b.createOrFold<arith::OrIOp>(tail, AnyOp::create(b, b.getI1Type(), hides));
    auto mask =
        tile::MaskOp::create(b, type, op.getScores(), ValueRange{positions, op.getPositions()}, partial);
    b.fill(mask.getVisible(), {i32, i32}, [&](ValueRange v) -> Value {
      return joinTerms(v[1], [&](const Shown &shown) {
        return contains(b, {shown.begin, shown.end.value_or(b.i32(behind))}, v[0]);
      });
    });
    return mask;
  }
};

} // namespace
