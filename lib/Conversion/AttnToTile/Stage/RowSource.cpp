//===- RowSource.cpp - Copies of rows -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Source.h"
#include "TensorMaps.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static StringRef tensorOfRows(Copy name) {
  return name == Copy::Query            ? "q"
         : name == Copy::OutputGradient ? "do"
         : name == Copy::Output         ? "o"
         : name == Copy::Lse            ? StringRef(logLse)
         : name == Copy::Delta          ? "delta"
                                        : "q_pos";
}

static bool isNumber(Copy name) { return name == Copy::Lse || name == Copy::Delta || name == Copy::Position; }

static int64_t featuresOf(Copy name, FormAttr form) {
  return isNumber(name) ? 1 : name == Copy::Query ? form.getKeyDim() : form.getValueDim();
}

void RowSource::gather(ArrayRef<Copy> names, ValueRange tiles, Scope copiers) {
  // Rows and heads whose strides the launch gives lie a multiple of this many bytes apart.
  constexpr int64_t unit = 16;
  SmallVector<Value> buffers, origins, pitches;
  SmallVector<int64_t> dims;
  for (auto [name, tile] : llvm::zip_equal(names, tiles)) {
    buffers.push_back(b.buffer(tensorOfRows(name), cast<SharedType>(tile.getType()).getElement()));
    origins.push_back(b.i64(0));
    dims.push_back(featuresOf(name, k.form));
    if (!isDense())
      pitches.push_back(b.i32(unit));
  }
  auto strides = isDense() ? b.getDenseI64ArrayAttr(dims) : DenseI64ArrayAttr();
  auto gather = GatherOp::create(b, rows.begin(), rows.end(), buffers, origins, tiles, strides, Value(),
                                 pitches, Value(), Value(), copiers, IntegerAttr(), paddedFrom(tiles, dims));
  Type i32 = b.getI32Type();
  b.fill(gather.getSlot(), {i32}, [&](ValueRange line) -> Value {
    if (names.front() == Copy::Position)
      return rows.unpack(line[0]).first;
    if (isNumber(names.front()))
      return rows.numberSlotOf(line[0], i32);
    return isDense() ? rows.slotOf(line[0], i32)
                     : b.stridedSlot("q", line[0], rows.headsNumber(), rows.heads(), unit, i32);
  });
}

void RowSource::tmaLoad(Copy name, Value tile) {
  if (isNumber(name))
    return gather({name}, {tile}, Scope::Warp);
  auto type = cast<SharedType>(tile.getType());
  int64_t group = rows.heads(), features = featuresOf(name, k.form);
  Value row = b.div(rows.begin(), group);
  if (int64_t lines = type.getBoxes())
    row = b.add(row, b.mul(LaneIdOp::create(b, b.getI32Type()), b.i32(lines / group)));
  TmaLoadOp::create(b, rowMaps(b, k.form, rows, tensorOfRows(name), type, features, isDense()), row,
                    rows.headsNumber(), tile, Value(), Value(), /*next=*/Value(), type.getBoxLines(),
                    isPadded(type, features), IntegerAttr());
  if (k.form.keepsTokens()) // sums go over rows
    ClearOp::create(b, tile, rows.count());
}
