//===- RotateRows.cpp - Rotary position embedding of heads ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A lane holds eight neighbouring features of each of its heads, the same ones of
// all, so it reads its cosines and sines once. (A head of more than 256 features is
// in several loads, and a lane reads the angles of each.) Features of an interleaved
// pair are in one lane. The features of other pairs are exchanged: by eight from one
// lane, if the pair's distance is a multiple of eight, else one by one.
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
      : e(expansion), n(e.b), b(e.b), op(op), share(op.getShare()),
        dim(cast<RankedTensorType>(op.getRows().getType()).getDimSize(3)),
        angles(cast<RankedTensorType>(op.getCos().getType()).getDimSize(1)),
        begin(op.getFirst().value_or(0)) {}

  void run() {
    ArrayRef<Words> held = e.held.at(op.getRows());
    Type element = cast<RankedTensorType>(op.getRows().getType()).getElementType();
    Type rounded = cast<RankedTensorType>(op.getResult().getType()).getElementType();
    SmallVector<Words> result;
    const size_t ofHead =
        share.isWide() ? held.size() : 1; // loads that begin with a head's first lane are alike
    for (size_t load = 0; load < ofHead; ++load)
      readAngles(load);
    for (size_t first = 0; first < held.size(); first += ofHead) {
      head = llvm::map_to_vector(held.slice(first, ofHead),
                                 [&](const Words &words) { return n.unpack(words, element); });
      for (size_t load = 0; load < ofHead; ++load)
        result.push_back(n.pack(rotated(load), rounded));
    }
    e.held[op.getResult()] = result;
  }

private:
  /// The factors of a feature and of its partner. `turns` is null if all lanes turn the feature.
  struct Angle {
    Value cos, sin, turns;
  };
  /// A lane's part of a load. No angles: no lane turns a feature.
  struct Load {
    Value column;         ///< of the lane's features in its head
    Value feature, place; ///< the first of them, in the head and among those that turn
    Value isFirst;        ///< whether a lane has the first features of pairs
    SmallVector<Angle> angles = {};
    Value partners = {}; ///< the lane with the other features of pairs; their column in a wide head
  };

  static constexpr int64_t lanes = 32, ofLoad = lanes * rowNumbers;

  SmallVector<Value> rotated(int64_t number) {
    SmallVector<Value> row = head[number];
    Load &load = loads[number];
    for (auto [j, angle] : llvm::enumerate(load.angles)) {
      Value x = head[number][j];
      Value turned = math::FmaOp::create(b, x, angle.cos, n.mul(partner(load, number, j), angle.sin));
      row[j] = angle.turns ? b.select(angle.turns, turned, x) : turned;
    }
    return row;
  }

  /// Whether the eight features of a lane have neighbouring angles.
  bool isAligned() { return angles % (op.getInterleaved() ? rowNumbers / 2 : rowNumbers) == 0; }
  Value negated(Value x) { return n.number(b.createOrFold<arith::XOrIOp>(n.bits(x), b.i32(INT32_MIN))); }

  void readAngles(int64_t number) {
    const int64_t from = share.isWide() ? number * ofLoad : 0, to = share.isWide() ? from + ofLoad : dim;
    const bool isPartial = from < begin || begin + 2 * angles < to;
    Load load{e.columnOf(share, number), {}, {}, {}};
    load.feature = b.mul(load.column, b.i32(rowNumbers));
    load.place = begin ? b.sub(load.feature, b.i32(begin)) : load.feature;
    load.isFirst = b.less(begin ? load.place : load.column, b.i32(begin ? angles : angles / rowNumbers));
    if (begin < to && from < begin + 2 * angles) {
      Value start = b.mul(b.wide(op.getPosition()), b.i64(angles));
      isAligned() ? readTogether(load, start, isPartial) : readEach(load, start, isPartial);
    }
    loads.push_back(std::move(load));
  }

  /// Whether a feature `j` of a lane's turns.
  Value turns(const Load &load, int64_t j) {
    return b.compare(arith::CmpIPredicate::ult, b.add(load.place, b.i32(j)), b.i32(2 * angles));
  }
  /// The index of an angle, of features that do not turn any.
  Value clamped(Value index, int64_t most) {
    index = b.min(index, b.i32(most));
    return begin ? b.max(index, b.i32(0)) : index;
  }

  void readTogether(Load &load, Value start, bool isPartial) {
    const bool pairs = op.getInterleaved();
    const int64_t count = pairs ? rowNumbers / 2 : rowNumbers;
    Value index = pairs ? b.createOrFold<arith::ShRSIOp>(load.place, b.i32(1))
                        : b.select(load.isFirst, load.place, b.sub(load.place, b.i32(angles)));
    if (isPartial)
      index = clamped(index, angles - count);
    Value turning = isPartial ? turns(load, 0) : Value();
    Value first = b.add(start, b.wide(index));
    SmallVector<Value> cos = e.readNumbers(op.getCos(), first, count),
                       sin = e.readNumbers(op.getSin(), first, count);
    for (int64_t j = 0; j < rowNumbers; ++j) {
      Value s = sin[pairs ? j / 2 : j];
      Value ofPair = pairs ? (j % 2 ? s : negated(s)) : b.select(load.isFirst, negated(s), s);
      load.angles.push_back({cos[pairs ? j / 2 : j], ofPair, turning});
    }
  }

  /// Reads the angles of features one by one.
  void readEach(Load &load, Value start, bool isPartial) {
    for (int64_t j = 0; j < rowNumbers; ++j) {
      Value here = b.add(load.place, b.i32(j)), index, first = b.i32(0);
      if (op.getInterleaved()) {
        index = b.createOrFold<arith::ShRSIOp>(here, b.i32(1));
      } else {
        first = b.less(here, b.i32(angles));
        index = b.select(first, here, b.sub(here, b.i32(angles)));
      }
      index = b.add(start, b.wide(clamped(index, angles - 1)));
      Value s = e.readNumbers(op.getSin(), index, 1)[0], cos = e.readNumbers(op.getCos(), index, 1)[0];
      Value ofPair = op.getInterleaved() ? (j % 2 ? s : negated(s)) : b.select(first, negated(s), s);
      load.angles.push_back({cos, ofPair, isPartial ? turns(load, j) : Value()});
    }
  }

  Value laneAt(Value lane) { return b.max(b.min(lane, b.i32(lanes - 1)), b.i32(0)); }

  /// Feature `j` of the lane that has a column of the load's head.
  Value at(const Load &load, Value column, int64_t number, int64_t j) {
    if (!share.isWide()) {
      Value start = b.sub(e.lane, load.column);
      return FromLaneOp::create(b, head[number][j], laneAt(b.add(start, column)));
    }
    // The loads whose features turn have it.
    column = b.max(column, b.i32(0));
    Value lane = b.rem(column, lanes), result;
    for (int64_t i = begin / ofLoad; i <= (begin + 2 * angles - 1) / ofLoad; ++i) {
      Value there = FromLaneOp::create(b, head[i][j], lane);
      Value isHere = b.compare(arith::CmpIPredicate::eq, b.div(column, lanes), b.i32(i));
      result = result ? b.select(isHere, there, result) : there;
    }
    return result;
  }

  /// The other feature of the pair of feature j of a lane.
  Value partner(Load &load, int64_t number, int64_t j) {
    if (op.getInterleaved())
      return head[number][j ^ 1];
    if (isAligned()) {
      Value apart = b.i32(angles / rowNumbers);
      if (!load.partners) {
        Value here = share.isWide() ? load.column : e.lane;
        load.partners = b.select(load.isFirst, b.add(here, apart), b.sub(here, apart));
        if (!share.isWide())
          load.partners = laneAt(load.partners);
      }
      return share.isWide() ? at(load, load.partners, number, j)
                            : FromLaneOp::create(b, head[number][j], load.partners);
    }
    Value here = b.add(load.feature, b.i32(j));
    const int64_t above = (j + angles) % rowNumbers, below = (j + rowNumbers * angles - angles) % rowNumbers;
    Value later = b.add(here, b.i32(angles)), sooner = b.max(b.sub(here, b.i32(angles)), b.i32(0));
    Value next = at(load, b.div(later, rowNumbers), number, above);
    Value last = at(load, b.div(sooner, rowNumbers), number, below);
    return b.select(b.less(b.add(load.place, b.i32(j)), b.i32(angles)), next, last);
  }

  RowExpansion &e;
  RowNumbers n;
  KernelBuilder &b;
  RotateRowsOp op;
  ShareAttr share;
  int64_t dim, angles, begin; ///< begin: the first feature that turns
  SmallVector<Load> loads;
  SmallVector<SmallVector<Value>> head; ///< the numbers of its loads
};

} // namespace

void RowExpansion::rotate(RotateRowsOp op) {
  b.setInsertionPoint(op);
  Rotator(*this, op).run();
}
