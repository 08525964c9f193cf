//===- LowerMask.cpp - What rows see of a tile ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

namespace mlir::attn {
#define GEN_PASS_DEF_LOWERMASKPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// Half the range of i32 is further than any context reaches; clamping keeps differences in range.
static constexpr int32_t farthest = 1 << 30;

namespace {

/// The ends of what a row sees. Every visibility is made of intervals of positions whose ends are a constant,
/// or a constant from the row's position.
class Ends {
public:
  /// An end that moves with the row: of the row's position.
  using Moving = function_ref<Value(Value)>;

  Ends(KernelBuilder &b, ValueRange sizes) : b(b), sizes(sizes) {}

  /// Of each sized term, in the order of the visibility: `fixed` of an end that is the same for all rows,
  /// `moving` of one that moves with them.
  SmallVector<Value> of(VisibilityAttr visibility, function_ref<Value(Value)> fixed,
                        function_ref<Value(Moving)> moving) {
    SmallVector<Value> ends;
    ValueRange left = sizes;
    add(visibility, left, fixed, moving, ends);
    return ends;
  }

  /// Whether a row sees `column`, of those before `exists`: `last` is the row's own. `ends` are consumed in
  /// order.
  Value sees(VisibilityAttr visibility, Value column, Value last, Value exists, ArrayRef<Value> &ends);
  /// Whether it sees all of those from `first` to `last`: wrong only where this says no.
  Value seesAll(VisibilityAttr visibility, Value first, Value last, Value position, ArrayRef<Value> &ends);

private:
  void add(VisibilityAttr visibility, ValueRange &left, function_ref<Value(Value)> fixed,
           function_ref<Value(Moving)> moving, SmallVectorImpl<Value> &ends);
  Value both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(x, y); }
  /// What parts of a union or an intersection say together.
  Value together(VisibilityAttr visibility, function_ref<Value(VisibilityAttr)> ofPart) {
    Value all;
    for (VisibilityAttr part : visibility.getOperands()) {
      Value one = ofPart(part);
      if (all)
        one = visibility.getKind() == VisibilityKind::Or ? b.createOrFold<arith::OrIOp>(all, one)
                                                         : both(all, one);
      all = one;
    }
    return all;
  }

  KernelBuilder &b;
  ValueRange sizes;
};

void Ends::add(VisibilityAttr visibility, ValueRange &left, function_ref<Value(Value)> fixed,
               function_ref<Value(Moving)> moving, SmallVectorImpl<Value> &ends) {
  auto next = [&] {
    Value size = left.front();
    left = left.drop_front();
    return size;
  };
  switch (visibility.getKind()) {
  case VisibilityKind::All:
  case VisibilityKind::Causal:
    return;
  case VisibilityKind::Window:
  case VisibilityKind::Recent: {
    Value size = b.min(next(), b.i32(farthest));
    ends.push_back(moving([&](Value row) { return b.sub(b.max(row, b.i32(-farthest)), size); }));
    return;
  }
  case VisibilityKind::Sink:
    ends.push_back(fixed(next()));
    return;
  case VisibilityKind::Or:
  case VisibilityKind::And:
    for (VisibilityAttr part : visibility.getOperands())
      add(part, left, fixed, moving, ends);
    return;
  }
  llvm_unreachable("unknown visibility");
}

Value Ends::sees(VisibilityAttr visibility, Value column, Value last, Value exists, ArrayRef<Value> &ends) {
  auto notLater = [&] { return b.compare(arith::CmpIPredicate::sle, column, last); };
  auto next = [&] {
    Value end = ends.front();
    ends = ends.drop_front();
    return end;
  };
  switch (visibility.getKind()) {
  case VisibilityKind::All:
    return b.less(column, exists);
  case VisibilityKind::Causal:
    return notLater();
  case VisibilityKind::Window:
  case VisibilityKind::Recent: {
    Value notBefore = b.compare(arith::CmpIPredicate::sgt, column, next());
    return both(notBefore, notLater());
  }
  case VisibilityKind::Sink:
    return b.less(column, next());
  case VisibilityKind::Or:
  case VisibilityKind::And:
    return together(visibility, [&](VisibilityAttr part) { return sees(part, column, last, exists, ends); });
  }
  llvm_unreachable("unknown visibility");
}

Value Ends::seesAll(VisibilityAttr visibility, Value first, Value last, Value position,
                    ArrayRef<Value> &ends) {
  Value behind = b.add(last, b.i32(1));
  if (!visibility.getOperands().empty())
    return together(visibility,
                    [&](VisibilityAttr part) { return seesAll(part, first, last, position, ends); });
  ArrayRef<Value> again = ends; // the terms are intervals
  Value seesFirst = sees(visibility, first, position, behind, again);
  return both(seesFirst, sees(visibility, last, position, behind, ends));
}

struct LowerMask : mlir::attn::impl::LowerMaskPassBase<LowerMask> {
  void runOnOperation() override { lowered += lowerSteps<mlir::attn::MaskOp>(getOperation(), lower); }

  static SmallVector<Value> lower(mlir::attn::MaskOp op, KernelBuilder &b) {
    return {op.getPartial() ? maskColumns(op, b) : maskPositions(op, b)};
  }

  /// Measured from this lane's first column, an end is one number per row (or one for all rows), and a column
  /// of the tile a compile-time constant: one compare per element and end. Upper ends are no further than the
  /// tokens that exist, so that these need no compare of their own.
  static Value maskColumns(mlir::attn::MaskOp op, KernelBuilder &b) {
    FragmentType type = op.getResult().getType();
    Type i32 = b.getI32Type();
    FragmentType ofRows = along(b, type, Axis::Query, i32);
    auto lane = LaneCoordinatesOp::create(b, i32, along(b, type, Axis::Key, i32));
    Value firstToken = b.add(op.getFirst(), lane.getFirst()), origin = b.add(op.getPos0(), firstToken);
    Value exists = b.sub(op.getEnd(), firstToken), lastToken = b.sub(exists, b.i32(1));
    Value last = b.map(ofRows, ValueRange{op.getPositions()},
                       [&](ValueRange v) { return b.min(b.sub(v[0], origin), lastToken); });
    Ends intervals(b, op.getEnds());
    SmallVector<Value> ends = intervals.of(
        op.getVisibility(), [&](Value size) { return b.min(b.sub(size, origin), exists); },
        [&](Ends::Moving end) {
          return b.map(ofRows, ValueRange{op.getPositions()},
                       [&](ValueRange v) -> Value { return end(b.sub(v[0], origin)); });
        });
    SmallVector<Value> inputs{lane.getOffsets(), last};
    llvm::copy_if(ends, std::back_inserter(inputs),
                  [](Value end) { return isa<FragmentType>(end.getType()); });
    auto mask = tile::MaskOp::create(b, type, op.getScores(), inputs, op.getPartial());
    b.fill(mask.getVisible(), SmallVector<Type>(inputs.size(), i32), [&](ValueRange v) -> Value {
      SmallVector<Value> inside(ends);
      size_t next = 2;
      for (Value &end : inside)
        if (isa<FragmentType>(end.getType()))
          end = v[next++];
      ArrayRef<Value> left = inside;
      return intervals.sees(op.getVisibility(), v[0], v[1], exists, left);
    });
    return mask;
  }

  /// Compares positions of tokens with those of rows. Where the rows of a warp see all of the tile, nothing
  /// is masked.
  static Value maskPositions(mlir::attn::MaskOp op, KernelBuilder &b) {
    // The position of a token that does not exist is behind what any row sees.
    constexpr int32_t behind = std::numeric_limits<int32_t>::max();
    FragmentType type = op.getResult().getType();
    Type i32 = b.getI32Type();
    FragmentType ofTokens = along(b, type, Axis::Key, i32);
    const int64_t count = sizeOf(type, Axis::Key);
    Value tokens = CoordinatesOp::create(b, ofTokens, op.getFirst());
    Value positions = b.map(ofTokens, ValueRange{tokens}, [&](ValueRange v) {
      return b.select(b.less(v[0], op.getEnd()), b.add(v[0], op.getPos0()), b.i32(behind));
    });
    Ends intervals(b, op.getEnds());
    auto endsOf = [&](Value row) {
      return intervals.of(
          op.getVisibility(), [](Value size) { return size; }, [&](Ends::Moving end) { return end(row); });
    };
    Value first = b.add(op.getFirst(), op.getPos0()), last = b.add(first, b.i32(count - 1));
    FragmentType perRow = along(b, type, Axis::Query, b.getI1Type());
    Value hides = b.map(perRow, ValueRange{op.getPositions()}, [&](ValueRange v) -> Value {
      SmallVector<Value> ends = endsOf(v[0]);
      ArrayRef<Value> left = ends;
      Value all = intervals.seesAll(op.getVisibility(), first, last, v[0], left);
      return b.createOrFold<arith::XOrIOp>(all, b.createOrFold<arith::ConstantIntOp>(1, 1));
    });
    Value tail = b.less(op.getEnd(), b.add(op.getFirst(), b.i32(count)));
    Value partial = b.createOrFold<arith::OrIOp>(tail, AnyOp::create(b, b.getI1Type(), hides));
    auto mask =
        tile::MaskOp::create(b, type, op.getScores(), ValueRange{positions, op.getPositions()}, partial);
    b.fill(mask.getVisible(), {i32, i32}, [&](ValueRange v) -> Value {
      SmallVector<Value> ends = endsOf(v[1]);
      ArrayRef<Value> left = ends;
      return intervals.sees(op.getVisibility(), v[0], v[1], b.i32(behind), left);
    });
    return mask;
  }
};

} // namespace
