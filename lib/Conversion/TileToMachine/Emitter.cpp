//===- Emitter.cpp - Per-lane code, in few words --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Emitter.h"

#include "attn/Support/Elements.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::tile;

/// The name in mma.sync of an element type that a verifier has accepted.
static NVVM::MMATypes mmaTypeOf(Type element) {
  const mlir::attn::rt::ElementType &type = mlir::attn::elementOf(element);
  if (type.dtype == mlir::attn::rt::DType::BF16)
    return NVVM::MMATypes::bf16;
  if (type.dtype == mlir::attn::rt::DType::F16)
    return NVVM::MMATypes::f16;
  llvm::report_fatal_error(llvm::Twine("mma.sync of ") + type.name + " is not emitted");
}

void Emitter::doIf(Value condition, function_ref<void(Emitter &)> body) {
  scf::IfOp::create(b, loc, condition, [&](OpBuilder &builder, Location) {
    Emitter inner(builder, loc, lanes);
    body(inner);
    scf::YieldOp::create(builder, loc);
  });
}

Value Emitter::integer(int64_t value, unsigned bits) {
  Value &known = lanes.integers[{value, bits}];
  if (!known) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(lanes.shared);
    known = arith::ConstantIntOp::create(b, lanes.shared.getLoc(), value, bits);
  }
  return known;
}

Value Emitter::bitcast(Type type, Value x) {
  if (auto from = x.getDefiningOp<LLVM::BitcastOp>())
    x = from.getArg();
  if (x.getType() == type)
    return x;
  Value &known = casts[{type, x}];
  if (!known || known.getParentBlock() != b.getInsertionBlock())
    known = LLVM::BitcastOp::create(b, loc, type, x);
  return known;
}

Value Emitter::sharedAt(Value base, Value bytes) {
  return once<LLVM::GEPOp>(base, bytes, [&]() -> Value {
    return LLVM::GEPOp::create(b, loc, base.getType(), b.getI8Type(), base, ValueRange{bytes});
  });
}

Value Emitter::sharedAt(Value base, int64_t bytes) {
  if (bytes == 0)
    return base;
  return LLVM::GEPOp::create(b, loc, base.getType(), b.getI8Type(), base,
                             ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
}

/// Lanes of several lines read quantized values at once; with the hardware's swizzles they would conflict in
/// banks. The position of a chunk in eight chunks of 128 bytes (of one line, two or four) is moved by bits of
/// its line. Each of these sets then takes all eight positions: a panel's chunks of one line; halves and
/// quarters of two and four neighbouring lines; one chunk of eight lines; and two neighbouring chunks of
/// every second line of eight.
static Value codesMove(Emitter &e, int64_t width, Value line) {
  auto bit = [&](int64_t i, int64_t move) { return e.mul(e.band(e.shr(line, i), 1), move); };
  if (width == 128)
    return e.bxor(e.bxor(bit(0, 7), bit(1, 4)), bit(2, 2));
  if (width == 64)
    return e.bxor(bit(1, 2), bit(2, 5));
  return width == 32 ? bit(2, 3) : e.i32(0);
}

Value Emitter::placeOf(SharedType type, int64_t width, Value line, Value chunk) {
  if (type.holdsCodes())
    return bxor(add(mul(line, width), mul(chunk, 16)), mul(codesMove(*this, width, line), 16));
  Value swizzle = band(shr(line, swizzleShift(width)), width / 16 - 1);
  return add(mul(line, width), mul(bxor(chunk, swizzle), 16));
}

Value Emitter::globalAt(Value base, Type element, Value index) {
  if (!LLVM::isCompatibleType(element)) // floats of 8 bits are bytes to LLVM
    element = b.getIntegerType(element.getIntOrFloatBitWidth());
  return LLVM::GEPOp::create(b, loc, base.getType(), element, base, ValueRange{index});
}

Value Emitter::loadGlobal(Value base, Type element, Value index, Type type, unsigned alignment,
                          bool invariant) {
  // Inputs and plans are never written by the kernels that read them, nor by one that may run beside them.
  return LLVM::LoadOp::create(b, loc, type, globalAt(base, element, index), alignment, /*isVolatile=*/false,
                              /*isNonTemporal=*/false, /*isInvariant=*/invariant);
}

LLVM::StoreOp Emitter::storeGlobal(Value value, Value pointer, unsigned alignment) {
  return LLVM::StoreOp::create(b, loc, value, pointer, alignment);
}

Value Emitter::intrinsic(StringRef name, Type result, ValueRange args) {
  return LLVM::CallIntrinsicOp::create(b, loc, result, b.getStringAttr(name), args).getResult(0);
}

Value Emitter::shuffle(NVVM::ShflKind kind, Value value, Value operand) {
  return NVVM::ShflOp::create(b, loc, value.getType(), i32(-1), value, operand, i32(31), kind, UnitAttr());
}

Value Emitter::bytes(Value low, Value high, ArrayRef<int32_t> which) {
  Type four = VectorType::get(4, b.getI8Type());
  Value chosen = LLVM::ShuffleVectorOp::create(b, loc, bitcast(four, low), bitcast(four, high), which);
  return bitcast(b.getI32Type(), chosen);
}

Value Emitter::permute(Value low, Value high, ArrayRef<int32_t> which) {
  int64_t selector = 0;
  for (auto [i, byte] : llvm::enumerate(which))
    selector |= int64_t(byte) << (4 * i);
  return permute(low, high, i32(selector));
}

Value Emitter::permute(Value low, Value high, Value which) {
  return NVVM::PermuteOp::create(b, loc, b.getI32Type(), low, high, which, NVVM::PermuteMode::DEFAULT);
}

Value Emitter::pack(Value low, Value high, Type element) {
  // The first operand of the conversion becomes the high half.
  Value vector;
  if (mmaTypeOf(element) == NVVM::MMATypes::bf16)
    vector = NVVM::ConvertF32x2ToBF16x2Op::create(b, loc, VectorType::get(2, element), high, low, Value(),
                                                  NVVM::FPRoundingMode::RN);
  else
    vector = NVVM::ConvertF32x2ToF16x2Op::create(b, loc, VectorType::get(2, element), high, low, Value(),
                                                 NVVM::FPRoundingMode::RN);
  return bitcast(b.getI32Type(), vector);
}

Value Emitter::packE4M3(Value low, Value high) {
  // The first operand of the conversion becomes the high byte.
  Value pair = NVVM::ConvertF32x2ToF8x2Op::create(b, loc, b.getI16Type(), high, low, NVVM::FPRoundingMode::RN,
                                                  NVVM::SaturationMode::SATFINITE, /*relu=*/false,
                                                  b.getType<Float8E4M3FNType>());
  return b.createOrFold<arith::ExtUIOp>(loc, b.getI32Type(), pair);
}

SmallVector<Value, 4> Emitter::loadMatrices(Value address, bool transposed) {
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getI32Type()));
  auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
  Value loaded = NVVM::LdMatrixOp::create(b, loc, type, address, 4,
                                          transposed ? NVVM::MMALayout::col : NVVM::MMALayout::row, shape,
                                          NVVM::LdStMatrixEltType::B16);
  SmallVector<Value, 4> registers;
  for (int64_t i = 0; i < 4; ++i)
    registers.push_back(LLVM::ExtractValueOp::create(b, loc, loaded, i));
  return registers;
}

void Emitter::storeMatrices(Value address, ValueRange registers) {
  NVVM::StMatrixOp::create(b, loc, address, registers, NVVM::MMALayout::row,
                           NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8),
                           NVVM::LdStMatrixEltType::B16);
}

void Emitter::multiply(ArrayRef<Value> a, ArrayRef<Value> rhs, MutableArrayRef<Value> acc, Type element) {
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(4, b.getF32Type()));
  NVVM::MMATypes kind = mmaTypeOf(element);
  auto operand = [&](ArrayRef<Value> registers) {
    SmallVector<Value, 4> values(registers);
    if (kind == NVVM::MMATypes::f16) // the f16 form takes vectors
      for (Value &value : values)
        value = bitcast(VectorType::get(2, element), value);
    return values;
  };
  Value result = NVVM::MmaOp::create(
      b, loc, type, operand(a), operand(rhs), ValueRange(acc), ArrayRef<int64_t>{16, 8, 16}, std::nullopt,
      std::nullopt, std::array<NVVM::MMATypes, 2>{kind, kind},
      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row, NVVM::MMALayout::col});
  for (int64_t i = 0; i < 4; ++i)
    acc[i] = LLVM::ExtractValueOp::create(b, loc, result, i);
}
