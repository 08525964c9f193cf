//===- ElementType.h - The types of elements --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One table says what an element type is: how many bits it has, how files and
// manifests call it, how a number is rounded to it, how exact results in it are,
// and whether tensor cores multiply it. Whoever decides by element type asks the
// table; what it does not know is an error there, and never some other type.
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
  // Of floats; 0 of integers. The bias is 2^(exponentBits - 1) - 1.
  int exponentBits = 0, mantissaBits = 0;
  /// Whether the largest exponent is that of infinities and NaNs. Where it is not, only the code of all ones
  /// is a NaN (of 4 bits none is), and what is too large becomes the largest number.
  bool infinities = true;
  /// Relative error that a result in this type may have against float64; 0: results do not come in it.
  double tolerance = 0;
  /// Elements that one instruction of the tensor cores contracts (mma.sync m16n8k<depth> into f32, and wgmma
  /// as many); 0: kernels do not multiply them, they convert them first.
  int mmaDepth = 0;

  bool isFloat() const { return exponentBits > 0; }
  size_t bytes() const { return static_cast<size_t>(bits) / 8; }
  /// The largest finite number of a float.
  double largest() const;
};

/// What the table knows, in the order of DType.
std::span<const ElementType> elementTypes();
const ElementType &elementType(DType dtype);
/// Floats of 4 bits, which no tensor has by themselves: two are a U8.
const ElementType &e2m1();

/// The manifest's name of a dtype ("bf16", "i32", …) and the way back.
std::string_view dtypeName(DType dtype);
std::optional<DType> parseDType(std::string_view name);
size_t dtypeSize(DType dtype);
bool isFloat(DType dtype);
/// The names of those that tensor cores multiply, for messages: "f16 or bf16".
std::string multipliedNames();

/// Conversions round to nearest, ties to even, straight from double (one rounding). Overflow gives an
/// infinity where the type has one, NaN stays a quiet NaN, subnormals are kept. Of floats of 8 and 16 bits.
uint16_t toFloatBits(double value, const ElementType &type);
double fromFloatBits(uint16_t bits, const ElementType &type);
uint16_t toF16(double value);
uint16_t toBF16(double value);
double fromF16(uint16_t bits);
double fromBF16(uint16_t bits);

} // namespace attn::rt

#endif
