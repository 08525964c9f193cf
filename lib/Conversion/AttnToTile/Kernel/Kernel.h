//===- Kernel.h - What the kernel writers share -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_KERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_KERNEL_H

#include "attn/Conversion/Chain.h"
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::attn {

/// A location-carrying builder with arithmetic on constants. It keeps a kernel's parameters, which are the
/// kernel's last arguments; the arguments of the function it came from may stand before them.
class KernelBuilder : public ImplicitLocOpBuilder {
public:
  /// Continues a kernel whose `tile.parameters` say what it has so far.
  explicit KernelBuilder(func::FuncOp kernel);

  func::FuncOp kernel;

  /// A parameter of the kernel. A second request for the same parameter returns the first.
  Value buffer(StringRef name, Type element);
  Value dimension(StringRef name);
  /// The bytes from one index of a tensor's axis to the next.
  Value stride(StringRef tensor, size_t axis);
  Value end(int64_t index);
  Value scale();
  /// The map is described in the kernel's `tile.tensor_maps`.
  Value tensorMap(tile::TensorMapAttr map);
  /// Sets the attributes that describe the kernel's parameters.
  void describeParameters();
  /// Sets the attributes of the finished kernel and its terminator.
  void finish(int64_t threads);

  Value i32(int64_t value) { return createOrFold<arith::ConstantIntOp>(value, 32); }
  Value i64(int64_t value) { return createOrFold<arith::ConstantIntOp>(value, 64); }
  Value f32(double value) {
    return arith::ConstantFloatOp::create(*this, getF32Type(), APFloat(static_cast<float>(value)));
  }
  Value add(Value x, Value y) { return createOrFold<arith::AddIOp>(x, y); }
  Value sub(Value x, Value y) { return createOrFold<arith::SubIOp>(x, y); }
  Value mul(Value x, Value y) { return createOrFold<arith::MulIOp>(x, y); }
  Value div(Value x, int64_t y) { return y == 1 ? x : createOrFold<arith::DivUIOp>(x, i32(y)); }
  Value rem(Value x, int64_t y) { return y == 1 ? i32(0) : createOrFold<arith::RemUIOp>(x, i32(y)); }
  Value min(Value x, Value y) { return createOrFold<arith::MinSIOp>(x, y); }
  Value max(Value x, Value y) { return createOrFold<arith::MaxSIOp>(x, y); }
  Value wide(Value x) { return createOrFold<arith::ExtSIOp>(getI64Type(), x); }
  Value compare(arith::CmpIPredicate predicate, Value x, Value y) {
    return createOrFold<arith::CmpIOp>(predicate, x, y);
  }
  Value less(Value x, Value y) { return compare(arith::CmpIPredicate::slt, x, y); }
  Value select(Value c, Value x, Value y) { return createOrFold<arith::SelectOp>(c, x, y); }

  /// Emits `body` under the condition; without a condition, always.
  void doIf(Value condition, function_ref<void()> body);

  /// `written`: an earlier launch writes the buffer, and may not have ended when this one begins.
  Value read(Value buffer, Value index, bool written = false) {
    return tile::ReadOp::create(*this, cast<tile::BufferType>(buffer.getType()).getElement(), buffer, index,
                                written ? getUnitAttr() : UnitAttr());
  }
  /// The offset, in chunks of `bytes` bytes, of a packed row of a KV head in a tensor of the caller's.
  /// `group` query heads read the KV head.
  Value stridedSlot(StringRef tensor, Value packed, Value kvHead, int64_t group, int64_t bytes, Type type) {
    return tile::PackedSlotOp::create(*this, type, packed, kvHead, getI64IntegerAttr(group), IntegerAttr(),
                                      ValueRange{stride(tensor, 0), stride(tensor, 1)},
                                      getI64IntegerAttr(bytes));
  }
  SmallVector<Value> record(Value buffer, Value index, unsigned fields, ValueRange first = {}) {
    return SmallVector<Value>(
        tile::RecordOp::create(*this, SmallVector<Type>(fields, getI32Type()), buffer, index, Value(), first)
            .getFields());
  }

  tile::FragmentType fragment(ArrayRef<tile::Axis> axes, ArrayRef<int64_t> sizes, Type element,
                              bool partial = false) {
    return tile::FragmentType::get(getContext(), axes, sizes, element, tile::Layout::Unassigned, partial);
  }
  Value splat(Value scalar, tile::FragmentType type) { return tile::SplatOp::create(*this, type, scalar); }
  using ScalarFunction = function_ref<Value(ValueRange)>;
  using ScalarFunctions = function_ref<SmallVector<Value>(ValueRange)>;
  /// Maps elementwise. The functions get one scalar per input and return one per result.
  ResultRange mapAll(TypeRange results, ValueRange inputs, ScalarFunctions functions);
  /// Maps elementwise to one result.
  Value map(tile::FragmentType type, ValueRange inputs, ScalarFunction function);
  /// Adds a block with `types` as arguments to `region`. It ends in a yield of the values that the functions
  /// return.
  void fillAll(Region &region, TypeRange types, ScalarFunctions functions);
  /// Adds such a block for a function that returns one value.
  void fill(Region &region, TypeRange types, ScalarFunction function);

private:
  Value parameter(tile::ParameterAttr attribute, Type type);
  SmallVector<Attribute> parameters;
  SetVector<Attribute> tensorMaps;
};

/// Removes the leading arguments of a kernel, those of the function that it came from; nothing uses them.
void eraseSourceArguments(func::FuncOp kernel);

} // namespace mlir::attn

#endif
