//===- NormalizeRows.cpp - RMS norm of heads ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Neighbouring lanes hold a head, eight features each, or all lanes a head of more
// than 256 features, eight of each load. Each lane adds up the squares of its own,
// then the lanes add up their sums. The arithmetic is that of
// attn_rt/tensor/Prologue.h, so that a CPU gets the same bits.
//
//===----------------------------------------------------------------------===//
#include "RowNumbers.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

constexpr int64_t lanes = 32;

struct Normalizer {
  Normalizer(RowExpansion &expansion, NormalizeRowsOp op)
      : e(expansion), n(e.b), b(e.b), op(op), share(op.getShare()), width(share.getWidth()),
        normal(cast<RankedTensorType>(op.getWeight().getType()).getDimSize(1)) {}

  void run() {
    ArrayRef<Words> held = e.held.at(op.getRows());
    Type element = cast<RankedTensorType>(op.getRows().getType()).getElementType();
    SmallVector<Words> result;
    const size_t ofHead =
        share.isWide() ? held.size() : 1; // loads that begin with a head's first lane are alike
    for (size_t load = 0; load < ofHead; ++load)
      readLoad(load);
    for (size_t begin = 0; begin < held.size(); begin += ofHead) {
      auto head = llvm::map_to_vector(held.slice(begin, ofHead),
                                      [&](const Words &words) { return n.unpack(words, element); });
      Value mean =
          n.mul(share.isWide() ? sumOfLoads(head) : sumOf(head[0]), b.f32(1.0F / static_cast<float>(normal)));
      Value root = inverseRoot(n.add(mean, b.f32(op.getEpsilon().convertToFloat())));
      for (auto [row, load] : llvm::zip(head, loads)) {
        for (auto [x, weight] : llvm::zip(row, load.weights)) {
          Value scaled = n.mul(n.mul(x, root), weight);
          x = load.isNormal ? b.select(load.isNormal, scaled, x) : scaled;
        }
        result.push_back(n.pack(row, cast<RankedTensorType>(op.getResult().getType()).getElementType()));
      }
    }
    e.held[op.getResult()] = result;
  }

private:
  /// A lane's part of a load. `isNormal` is null if all lanes have weights; no weights: no lane has.
  struct Load {
    SmallVector<Value> weights;
    Value isNormal;
  };

  void readLoad(int64_t load) {
    const int64_t dim = cast<RankedTensorType>(op.getRows().getType()).getDimSize(3);
    const int64_t begin = share.isWide() ? load * lanes * rowNumbers : 0;
    const int64_t end = share.isWide() ? begin + lanes * rowNumbers : dim;
    if (begin >= normal)
      return (void)loads.emplace_back();
    Value feature = b.mul(e.columnOf(share, load), b.i32(rowNumbers));
    Value isNormal = end > normal ? b.less(feature, b.i32(normal)) : Value();
    if (isNormal)
      feature = b.min(feature, b.i32(normal - rowNumbers));
    Value first = b.add(b.mul(op.getLayer(), b.i64(normal)), b.wide(feature));
    loads.push_back({e.readNumbers(op.getWeight(), first, rowNumbers), isNormal});
  }

  Value lanePast(Value place, int64_t distance) {
    Value there = b.rem(b.add(place, b.i32(distance)), width);
    return b.min(b.add(b.sub(e.lane, place), there), b.i32(31));
  }

  /// The sum of the squares of a lane's numbers, behind `before`.
  Value squares(ArrayRef<Value> row, Value before, Value isNormal) {
    Value sum = before ? math::FmaOp::create(b, row[0], row[0], before) : n.mul(row[0], row[0]);
    for (Value x : row.drop_front())
      sum = math::FmaOp::create(b, x, x, sum);
    return isNormal ? b.select(isNormal, sum, before ? before : b.f32(0)) : sum;
  }

  Value addNeighbours(Value sum, int64_t width) {
    for (int64_t distance = 1; distance < width; distance *= 2)
      sum = n.add(sum, FromLaneOp::create(b, sum, b.createOrFold<arith::XOrIOp>(e.lane, b.i32(distance))));
    return sum;
  }

  /// The sum of the squares of a head that has all lanes, load after load.
  Value sumOfLoads(ArrayRef<SmallVector<Value>> head) {
    Value sum;
    for (auto [row, load] : llvm::zip(head, loads))
      if (!load.weights.empty())
        sum = squares(row, sum, load.isNormal);
    return addNeighbours(sum, lanes);
  }

  /// The sum of the squares of a head, the same bits in all its lanes.
  Value sumOf(ArrayRef<Value> row) {
    Value sum = squares(row, Value(), loads[0].isNormal);
    if (llvm::isPowerOf2_64(width))
      return addNeighbours(sum, width);
    // Lane i has the sums of lanes i, i + 1, ..., as many as a power of two; the first follows the last.
    Value place = e.columnOf(share, 0), total;
    int64_t counted = 0;
    for (int64_t count = 1; count <= width; count *= 2) {
      if (width & count) {
        Value next = counted ? FromLaneOp::create(b, sum, lanePast(place, counted)) : sum;
        total = total ? n.add(total, next) : next;
        counted += count;
      }
      if (2 * count <= width)
        sum = n.add(sum, FromLaneOp::create(b, sum, lanePast(place, count)));
    }
    return FromLaneOp::create(b, total, b.min(b.sub(e.lane, place), b.i32(31)));
  }

  /// 1 / sqrt(x) by three steps of Newton's method from a guess by bits: the same bits on all chips. Numbers
  /// below the smallest normal one count as that, so that zeros stay zeros.
  Value inverseRoot(Value x) {
    Value least = b.f32(std::numeric_limits<float>::min());
    x = b.select(arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, x, least), least, x);
    Value root = n.number(b.sub(b.i32(0x5f3759df), n.shr(n.bits(x), 1)));
    Value half = n.mul(x, b.f32(-0.5));
    for (int step = 0; step < 3; ++step)
      root = n.mul(root, math::FmaOp::create(b, half, n.mul(root, root), b.f32(1.5)));
    return root;
  }

  RowExpansion &e;
  RowNumbers n;
  KernelBuilder &b;
  NormalizeRowsOp op;
  ShareAttr share;
  int64_t width;  ///< chunks of a head
  int64_t normal; ///< the features that have weights
  SmallVector<Load> loads;
};

} // namespace

void RowExpansion::normalize(NormalizeRowsOp op) {
  b.setInsertionPoint(op);
  Normalizer(*this, op).run();
}
