//===- RowNumbers.cpp - Numbers of rows in registers ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lines past the task's last row repeat it: their numbers must be readable, and
// their results are dropped.
//
// A row that sees nothing has an LSE of -inf, and exp(s - lse) would be
// anything. Its LSE counts as +inf, so that its weights are zeros, and so do
// the LSEs of lines past the last row.
//
//===----------------------------------------------------------------------===//
#include "SharedScales.h"
#include "Source.h"

#include "AttnToTile/Kernel/Log2.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class RowNumbers {
public:
  RowNumbers(StagedKernel &kernel, RowsOp rows) : k(kernel), b(kernel.b), rows(b, kernel.form, rows) {}

  /// Reads the position of each query's row. `heads`: the query head of each line.
  Value positions() {
    return load("q_pos", i32, [&](Value packed) { return rows.unpack(packed).first; });
  }
  Value heads() {
    return b.map(type(i32), ValueRange{CoordinatesOp::create(b, type(i32), b.i32(0))},
                 [&](ValueRange line) { return rows.unpack(rows.packedRow(line[0])).second; });
  }
  /// Reads LSEs as the attention has written them.
  Value lse() {
    Value read = load("lse", f32, [&](Value packed) { return rows.slotOf(packed, i64); });
    return lseOfRows(b, rows, b.map(type(f32), ValueRange{read}, [&](ValueRange v) -> Value {
      Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, v[0], b.f32(-infinity));
      return b.select(some, arith::MulFOp::create(b, v[0], b.f32(log2e)), b.f32(infinity));
    }));
  }
  /// Reads the LSEs in log2 and the deltas that an earlier kernel has written for kernels with stationary
  /// tokens, which read them many times.
  Value logLses() { return lseOfRows(b, rows, loadNumber(logLse)); }
  Value deltas() { return loadNumber("delta"); }
  /// Reads the scale that all keys or values of the kernel's only region share.
  Value sharedScale(bool keys) { return readScale(b, k.updates.front(), keys, rows.head(), /*tiny=*/true); }

private:
  FragmentType type(Type element) { return b.fragment({Axis::Query}, {k.form.getRows()}, element); }
  /// Loads a number of each row, at the index that `slotOf` gives for the packed row.
  Value load(StringRef name, Type element, function_ref<Value(Value)> slotOf) {
    auto loaded = LoadVectorOp::create(b, type(element), b.buffer(name, element));
    b.fill(loaded.getIndex(), {i32}, [&](ValueRange line) { return slotOf(rows.packedRow(line[0])); });
    return loaded;
  }
  Value loadNumber(StringRef name) {
    return load(name, f32, [&](Value packed) { return rows.numberSlotOf(packed, i64); });
  }

  StagedKernel &k;
  KernelBuilder &b;
  RowsPart rows;
  Type i32 = b.getI32Type(), i64 = b.getI64Type(), f32 = b.getF32Type();
};

} // namespace

void mlir::attn::stageNumbers(StagedKernel &k, RowsOp rows) {
  k.b.setInsertionPointAfter(rows);
  RowNumbers numbers(k, rows);
  SmallVector<Copy> names;
  SmallVector<Value> copies;
  auto add = [&](Copy name, Value copy) { names.push_back(name), copies.push_back(copy); };
  if (!k.stagesNumbers())
    add(Copy::Position, numbers.positions());
  add(Copy::Head, numbers.heads());
  if (k.form.keepsTokens() && k.gradient && !k.stagesNumbers()) {
    add(Copy::Lse, numbers.logLses());
    if (!k.addsValuesAlone())
      add(Copy::Delta, numbers.deltas());
  } else if (k.readsFinished() && !k.stagesNumbers()) {
    add(Copy::Lse, numbers.lse());
  }
  if (k.form.has(FormTraits::KeyScale))
    add(Copy::KeyScale, numbers.sharedScale(/*keys=*/true));
  if (k.form.has(FormTraits::ValueScale))
    add(Copy::ValueScale, numbers.sharedScale(/*keys=*/false));
  standIn(k.b, rows, names, copies);
}
