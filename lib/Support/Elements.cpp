//===- Elements.cpp - MLIR's element types and the runtime's table --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Support/Elements.h"

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/ErrorHandling.h"

using namespace mlir;
using namespace mlir::attn;
using rt::DType;

static std::optional<DType> find(Type type) {
  if (type.isF16())
    return DType::F16;
  if (type.isBF16())
    return DType::BF16;
  if (type.isF32())
    return DType::F32;
  if (type.isF64())
    return DType::F64;
  if (isa<Float8E4M3FNType>(type))
    return DType::F8E4M3FN;
  if (isa<Float8E5M2Type>(type))
    return DType::F8E5M2;
  if (type.isSignlessInteger(8))
    return DType::I8;
  if (type.isSignlessInteger(16))
    return DType::I16;
  if (type.isSignlessInteger(32))
    return DType::I32;
  if (type.isSignlessInteger(64))
    return DType::I64;
  return std::nullopt;
}

const rt::ElementType *mlir::attn::findElement(Type type) {
  std::optional<DType> dtype = find(type);
  return dtype ? &rt::elementType(*dtype) : nullptr;
}

const rt::ElementType &mlir::attn::elementOf(Type type) {
  if (const rt::ElementType *known = findElement(type))
    return *known;
  std::string name;
  llvm::raw_string_ostream(name) << type;
  llvm::report_fatal_error(llvm::Twine("no verifier has refused the element type ") + name);
}

FailureOr<DType> mlir::attn::dtypeOf(Type type, function_ref<InFlightDiagnostic()> emitError) {
  if (const rt::ElementType *known = findElement(type))
    return known->dtype;
  return emitError()
         << "expected elements of f16, bf16, f32, f64, f8E4M3FN, f8E5M2, i8, i16, i32 or i64, got " << type;
}

bool mlir::attn::isMultiplied(Type type) {
  const rt::ElementType *known = findElement(type);
  return known && known->mmaDepth > 0;
}

int64_t mlir::attn::exponentBelowF16(Type type) {
  constexpr int64_t biasOfF16 = 15, biasOfE2M1 = 1;
  return isa<Float4E2M1FNType>(type) ? biasOfF16 - biasOfE2M1 : 0;
}
