//===- Emitter.h - Per-lane code, in few words ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A thin layer over OpBuilder for the code of one lane: scalar arithmetic that
// folds constants, the tensor-core instructions with their register order, and
// the address arithmetic of swizzled shared tiles.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_TILETOMACHINE_EMITTER_H
#define ATTN_CONVERSION_TILETOMACHINE_EMITTER_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Transforms/DialectConversion.h"

namespace mlir::tile {

/// Values that nearly every operation needs, computed once at the entry of a kernel.
struct LaneValues {
  Value lane;   ///< the thread in its warp
  Value warp;   ///< the warp in its block
  Value group;  ///< lane / 4: the row of an accumulator block
  Value quad;   ///< lane % 4: the pair of columns
  Value shared; ///< the start of the block's dynamic shared memory
  /// Integer constants by value and width: each is one operation at the entry of the kernel.
  mutable DenseMap<std::pair<int64_t, unsigned>, Value> integers;
};

class Emitter {
public:
  Emitter(OpBuilder &builder, Location loc, const LaneValues &lanes) : b(builder), loc(loc), lanes(lanes) {}

  OpBuilder &b;
  Location loc;
  const LaneValues &lanes;

  // Scalars. The integer forms fold: x + 0, x * 1. A value that an operation's code has computed in a block
  // is not computed there again.
  Value i32(int64_t value) { return integer(value, 32); }
  /// The condition for code that only one lane of the warp runs.
  Value isFirstLane() {
    return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, lanes.lane, i32(0));
  }
  Value i64(int64_t value) { return integer(value, 64); }
  Value f32(double value) {
    return arith::ConstantFloatOp::create(b, loc, b.getF32Type(), APFloat(static_cast<float>(value)));
  }
  Value add(Value x, Value y) { return once<arith::AddIOp>(x, y); }
  Value add(Value x, int64_t y) { return y == 0 ? x : add(x, constantLike(x, y)); }
  Value sub(Value x, Value y) { return once<arith::SubIOp>(x, y); }
  Value mul(Value x, Value y) { return once<arith::MulIOp>(x, y); }
  Value mul(Value x, int64_t y) { return y == 1 ? x : mul(x, constantLike(x, y)); }
  Value shr(Value x, int64_t y) { return y == 0 ? x : once<arith::ShRUIOp>(x, constantLike(x, y)); }
  Value band(Value x, int64_t y) { return once<arith::AndIOp>(x, constantLike(x, y)); }
  Value both(Value x, Value y) { return once<arith::AndIOp>(x, y); }
  Value bxor(Value x, Value y) { return once<arith::XOrIOp>(x, y); }
  Value bxor(Value x, int64_t y) { return y == 0 ? x : bxor(x, constantLike(x, y)); }
  Value less(Value x, Value y) { return b.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, x, y); }
  Value min(Value x, Value y) { return once<arith::MinSIOp>(x, y); }
  Value select(Value c, Value x, Value y) { return b.createOrFold<arith::SelectOp>(loc, c, x, y); }
  Value widen(Value x) {
    return x.getType().isInteger(64) ? x : b.createOrFold<arith::ExtSIOp>(loc, b.getI64Type(), x);
  }
  Value fadd(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
  Value fsub(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
  Value fmul(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
  Value fmax(Value x, Value y) { return arith::MaxNumFOp::create(b, loc, x, y); }
  /// The bits of `x` as another type.
  Value bitcast(Type type, Value x);

  // Memory. Offsets of shared memory are in bytes, indices of global memory in elements.
  Value sharedAt(Value base, Value bytes);
  Value sharedAt(Value base, int64_t bytes);
  /// The bytes from the start of a swizzled panel of `type`, `width` bytes wide, to a chunk of a line.
  Value placeOf(SharedType type, int64_t width, Value line, Value chunk);
  Value globalAt(Value base, Type element, Value index);
  Value loadGlobal(Value base, Type element, Value index, Type type, unsigned alignment,
                   bool invariant = true);
  LLVM::StoreOp storeGlobal(Value value, Value pointer, unsigned alignment);

  // Instructions.
  Value intrinsic(StringRef name, Type result, ValueRange args);
  Value exp2(Value x) { return intrinsic("llvm.nvvm.ex2.approx.ftz.f", b.getF32Type(), x); }
  Value log2(Value x) { return intrinsic("llvm.nvvm.lg2.approx.ftz.f", b.getF32Type(), x); }
  /// Exchanges within the warp; i32 or f32. `kind` bfly: with lane ^ operand; idx: from lane `operand`.
  Value shuffle(NVVM::ShflKind kind, Value value, Value operand);
  /// Four bytes of eight: those of `low` (0 to 3) and of `high` (4 to 7); the first becomes the lowest.
  Value bytes(Value low, Value high, ArrayRef<int32_t> which);
  /// Four bytes of eight, chosen by numbers below 8 in the lowest four hex digits of `which`. LLVM does not
  /// look into this instruction.
  Value permute(Value low, Value high, Value which);
  Value permute(Value low, Value high, ArrayRef<int32_t> which);
  /// {low, high} rounded to nearest even into one 32-bit register.
  Value pack(Value low, Value high, Type element);
  /// {low, high} rounded to nearest even in e4m3, in the low half of a 32-bit register. Numbers beyond 448
  /// are clamped to it, and a NaN stays one.
  Value packE4M3(Value low, Value high);
  /// Four such elements.
  Value packE4M3(Value first, Value second, Value third, Value fourth) {
    return bytes(packE4M3(first, second), packE4M3(third, fourth), {0, 1, 4, 5});
  }
  /// Four 8x8 matrices of 16-bit elements; the lane's address is that of line lane % 8 of matrix lane / 8.
  SmallVector<Value, 4> loadMatrices(Value address, bool transposed);
  /// Stores four such matrices from registers to memory.
  void storeMatrices(Value address, ValueRange registers);
  /// An 8x8 matrix of 16-bit elements, two in each lane's register, transposed.
  Value moveMatrix(Value source) { return MoveMatrixOp::create(b, loc, b.getI32Type(), source); }
  /// acc + a * b for one 16x8x16 block; `acc` is replaced.
  void multiply(ArrayRef<Value> a, ArrayRef<Value> rhs, MutableArrayRef<Value> acc, Type element);

  /// Emits the code of `body` under the condition.
  void doIf(Value condition, function_ref<void(Emitter &)> body);

private:
  /// The `OpT` of both values that this block already has; `make` makes it if there is none.
  template <typename OpT, typename Make> Value once(Value x, Value y, Make make) {
    Value &known = made[{TypeID::get<OpT>().getAsOpaquePointer(), x, y}];
    if (!known || known.getParentBlock() != b.getInsertionBlock())
      known = make();
    return known;
  }
  template <typename OpT> Value once(Value x, Value y) {
    return once<OpT>(x, y, [&] { return b.createOrFold<OpT>(loc, x, y); });
  }
  Value integer(int64_t value, unsigned bits);
  Value constantLike(Value x, int64_t value) { return integer(value, x.getType().getIntOrFloatBitWidth()); }

  DenseMap<std::tuple<const void *, Value, Value>, Value> made;
  DenseMap<std::pair<Type, Value>, Value> casts;
};

/// log2 of the number of lines after which a panel's swizzle changes: every line for 128 bytes, every second
/// for 64, every fourth for 32 (see SharedType).
inline int64_t swizzleShift(int64_t width) { return width == 128 ? 0 : width == 64 ? 1 : 2; }

} // namespace mlir::tile

#endif
