//===- NormalizeRows.cpp - RMS norm of heads ------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Neighbouring lanes hold a head, eight features each. Each lane adds up the
// squares of its own, then the lanes add up their sums. The arithmetic is that of
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

struct Normalizer {
  Normalizer(RowExpansion &expansion, NormalizeRowsOp op)
      : e(expansion), n(e.b), b(e.b), op(op), share(op.getShare()), width(share.getWidth()) {}

  void run() {
    auto type = cast<RankedTensorType>(op.getRows().getType());
    const int64_t dim = type.getDimSize(3);
    Value column = e.columnOf(share, 0); // of all loads: they begin with a head's first lane
    Value first = b.add(b.mul(op.getLayer(), b.i64(dim)), b.wide(b.mul(column, b.i32(rowNumbers))));
    SmallVector<Value> weights = e.readNumbers(op.getWeight(), first, rowNumbers);
    SmallVector<Words> result;
    for (const Words &words : e.held.at(op.getRows())) {
      SmallVector<Value> row = n.unpack(words, type.getElementType());
      Value mean = n.mul(sumOf(row), b.f32(1.0F / static_cast<float>(dim)));
      Value root = inverseRoot(n.add(mean, b.f32(op.getEpsilon().convertToFloat())));
      for (auto [x, weight] : llvm::zip_equal(row, weights))
        x = n.mul(n.mul(x, root), weight);
      result.push_back(n.pack(row, cast<RankedTensorType>(op.getResult().getType()).getElementType()));
    }
    e.held[op.getResult()] = result;
  }

private:
  Value lanePast(Value place, int64_t distance) {
    Value there = b.rem(b.add(place, b.i32(distance)), width);
    return b.min(b.add(b.sub(e.lane, place), there), b.i32(31));
  }

  /// The sum of the squares of a head, the same bits in all its lanes.
  Value sumOf(ArrayRef<Value> row) {
    Value sum = n.mul(row[0], row[0]);
    for (Value x : row.drop_front())
      sum = math::FmaOp::create(b, x, x, sum);
    if (llvm::isPowerOf2_64(width)) {
      for (int64_t distance = 1; distance < width; distance *= 2)
        sum = n.add(sum, FromLaneOp::create(b, sum, b.createOrFold<arith::XOrIOp>(e.lane, b.i32(distance))));
      return sum;
    }
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
  int64_t width; ///< lanes of a head
};

} // namespace

void RowExpansion::normalize(NormalizeRowsOp op) {
  b.setInsertionPoint(op);
  Normalizer(*this, op).run();
}
