//===- ElementType.h - The types of elements --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One table describes each element type: its bits, its names in files and manifests,
// the rounding of a number to it, the accuracy of results in it, and whether tensor
// cores multiply it. All code that depends on an element type asks the table; a type
// that the table does not know is an error there, never another type.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_ELEMENTTYPE_H
#define ATTN_RT_TENSOR_ELEMENTTYPE_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace attn::rt {

/// In the order of AttnDType of the C API.
enum class DType : uint8_t {
  F16,
  BF16,
  F32,
  F64,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  Bool,
  F8E4M3FN,
  F8E5M2
};

struct ElementType {
  DType dtype;
  std::string_view name;     ///< in manifests and messages: "bf16", "i32", …
  std::string_view fileName; ///< in safetensors: "BF16", "I32", …
  int bits;
  // For floats; 0 for integers. The bias is 2^(exponentBits - 1) - 1.
  int exponentBits = 0, mantissaBits = 0;
  /// Whether infinities and NaNs have the largest exponent. If not, only the bits of all ones are a NaN (with
  /// 4 bits, none is), and numbers that are too large become the largest number.
  bool infinities = true;
  /// Relative error that a result in this type may have against float64; 0: no result has this type.
  double tolerance = 0;
  /// Elements that one instruction of the tensor cores contracts (mma.sync m16n8k<depth> into f32, and wgmma
  /// alike); 0: kernels do not multiply them, but convert them first.
  int mmaDepth = 0;

  bool isFloat() const { return exponentBits > 0; }
  size_t bytes() const { return static_cast<size_t>(bits) / 8; }
  /// The largest finite number of a float.
  double largest() const;
};

/// All element types, in the order of DType.
std::span<const ElementType> elementTypes();
/// The table's entry of a dtype.
const ElementType &elementType(DType dtype);
/// Floats of 4 bits. No tensor has them as elements: a U8 holds two.
const ElementType &e2m1();

/// The manifest's name of a dtype ("bf16", "i32", …), and its inverse.
std::string_view dtypeName(DType dtype);
std::optional<DType> parseDType(std::string_view name);
/// Bytes of an element.
size_t dtypeSize(DType dtype);
bool isFloat(DType dtype);
/// The names of the types that tensor cores multiply, for messages: "f16 or bf16".
std::string multipliedNames();

/// Conversions of floats of 8 and 16 bits. They round to nearest, ties to even, straight from double (one
/// rounding). Overflow gives an infinity if the type has one, NaN stays a quiet NaN, subnormals are kept.
uint16_t toFloatBits(double value, const ElementType &type);
double fromFloatBits(uint16_t bits, const ElementType &type);
uint16_t toF16(double value);
uint16_t toBF16(double value);
double fromF16(uint16_t bits);
double fromBF16(uint16_t bits);

} // namespace attn::rt

#endif
