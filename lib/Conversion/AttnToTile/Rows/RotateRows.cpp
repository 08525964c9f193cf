//===- RotateRows.cpp - Rotary position embedding of heads ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lane holds eight neighbouring features of each of its heads, the same ones of
// all, so it reads its cosines and sines once. Features of an interleaved pair are
// in one lane. The features of other pairs are exchanged: by eight from one lane, if
// the pair's distance is a multiple of eight, else one by one.
//
//===----------------------------------------------------------------------===//
#include "RowNumbers.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

struct Rotator {
  Rotator(RowExpansion &expansion, RotateRowsOp op)
      : e(expansion), n(e.b), b(e.b), op(op), column(e.columnOf(op.getShare(), 0)),
        dim(cast<RankedTensorType>(op.getRows().getType()).getDimSize(3)),
        angles(cast<RankedTensorType>(op.getCos().getType()).getDimSize(1)) {}

  void run() {
    readAngles();
    Type element = cast<RankedTensorType>(op.getRows().getType()).getElementType();
    SmallVector<Words> result;
    for (const Words &words : e.held.at(op.getRows())) {
      SmallVector<Value> row = n.unpack(words, element);
      SmallVector<Value> rotated(rowNumbers);
      for (int64_t j = 0; j < rowNumbers; ++j) {
        const Angle &angle = angleOf(j);
        Value turned = math::FmaOp::create(b, row[j], angle.cos, n.mul(partner(row, j), angle.sin));
        rotated[j] = angle.turns ? b.select(angle.turns, turned, row[j]) : turned;
      }
      result.push_back(n.pack(rotated, cast<RankedTensorType>(op.getResult().getType()).getElementType()));
    }
    e.held[op.getResult()] = result;
  }

private:
  /// The factors of a feature and of its partner. `turns` is null if all lanes turn the feature.
  struct Angle {
    Value cos, sin, turns;
  };

  /// Whether the eight features of a lane have neighbouring angles.
  bool isAligned() { return angles % (op.getInterleaved() ? rowNumbers / 2 : rowNumbers) == 0; }
  bool isPartial() { return 2 * angles < dim; }
  Value negated(Value x) { return n.number(b.createOrFold<arith::XOrIOp>(n.bits(x), b.i32(INT32_MIN))); }

  const Angle &angleOf(int64_t j) const { return known[j]; }

  void readAngles() {
    Value start = b.mul(b.wide(op.getPosition()), b.i64(angles));
    Value feature = b.mul(column, b.i32(rowNumbers));
    isFirst = b.less(column, b.i32(angles / rowNumbers));
    if (!isAligned())
      return readEach(start, feature);
    const bool pairs = op.getInterleaved();
    const int64_t count = pairs ? rowNumbers / 2 : rowNumbers;
    Value index = pairs ? b.div(feature, 2) : b.select(isFirst, feature, b.sub(feature, b.i32(angles)));
    if (isPartial())
      index = b.min(index, b.i32(angles - count));
    Value turns = isPartial() ? b.less(feature, b.i32(2 * angles)) : Value();
    Value first = b.add(start, b.wide(index));
    SmallVector<Value> cos = e.readNumbers(op.getCos(), first, count),
                       sin = e.readNumbers(op.getSin(), first, count);
    for (int64_t j = 0; j < rowNumbers; ++j) {
      Value s = sin[pairs ? j / 2 : j];
      Value ofPair = pairs ? (j % 2 ? s : negated(s)) : b.select(isFirst, negated(s), s);
      known.push_back({cos[pairs ? j / 2 : j], ofPair, turns});
    }
  }

  /// Reads the angles of features one by one.
  void readEach(Value start, Value feature) {
    for (int64_t j = 0; j < rowNumbers; ++j) {
      Value here = b.add(feature, b.i32(j)), index = b.div(here, 2);
      Value first = b.i32(0);
      if (!op.getInterleaved()) {
        first = b.less(here, b.i32(angles));
        index = b.select(first, here, b.sub(here, b.i32(angles)));
      }
      index = b.add(start, b.wide(b.min(index, b.i32(angles - 1))));
      Value s = e.readNumbers(op.getSin(), index, 1)[0], cos = e.readNumbers(op.getCos(), index, 1)[0];
      Value ofPair = op.getInterleaved() ? (j % 2 ? s : negated(s)) : b.select(first, negated(s), s);
      known.push_back({cos, ofPair, isPartial() ? b.less(here, b.i32(2 * angles)) : Value()});
    }
  }

  Value laneAt(Value lane) { return b.max(b.min(lane, b.i32(31)), b.i32(0)); }

  /// The other feature of the pair of feature j of a lane.
  Value partner(ArrayRef<Value> row, int64_t j) {
    if (op.getInterleaved())
      return row[j ^ 1];
    if (isAligned()) {
      Value apart = b.i32(angles / rowNumbers);
      if (!aligned)
        aligned = laneAt(b.select(isFirst, b.add(e.lane, apart), b.sub(e.lane, apart)));
      return FromLaneOp::create(b, row[j], aligned);
    }
    Value begin = b.sub(e.lane, column), here = b.add(b.mul(column, b.i32(rowNumbers)), b.i32(j));
    const int64_t above = (j + angles) % rowNumbers, below = (j + rowNumbers * angles - angles) % rowNumbers;
    Value later = b.add(here, b.i32(angles)), sooner = b.max(b.sub(here, b.i32(angles)), b.i32(0));
    Value next = FromLaneOp::create(b, row[above], laneAt(b.add(begin, b.div(later, rowNumbers))));
    Value last = FromLaneOp::create(b, row[below], laneAt(b.add(begin, b.div(sooner, rowNumbers))));
    return b.select(b.less(here, b.i32(angles)), next, last);
  }

  RowExpansion &e;
  RowNumbers n;
  KernelBuilder &b;
  RotateRowsOp op;
  Value column; ///< of the lane's features in its heads
  int64_t dim, angles;
  Value isFirst, aligned; ///< whether a lane has the first features of pairs; the lane with their partners
  SmallVector<Angle> known;
};

} // namespace

void RowExpansion::rotate(RotateRowsOp op) {
  b.setInsertionPoint(op);
  Rotator(*this, op).run();
}
