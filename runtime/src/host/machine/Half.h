//===- Half.h - 16-bit floats by integer arithmetic -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Written on bits so that it means the same on every CPU and needs no compiler
// builtin that a distribution's libgcc may lack. The loops vectorise.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_MACHINE_HALF_H
#define ATTN_RT_SRC_HOST_MACHINE_HALF_H

#include <bit>
#include <cstdint>

namespace attn::rt::host {

inline float bfloatToFloat(uint16_t h) { return std::bit_cast<float>(uint32_t(h) << 16); }

inline float halfToFloat(uint16_t h) {
  // Exponent and mantissa are shifted to their f32 positions, then rebiased by a multiplication, which also
  // normalises subnormals; infinities and NaNs get the missing exponent.
  uint32_t magnitude = uint32_t(h & 0x7fff) << 13;
  float f = std::bit_cast<float>(magnitude) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(f) | (magnitude >= 0x0f800000u ? 0x7f800000u : 0u);
  return std::bit_cast<float>(bits | uint32_t(h & 0x8000) << 16);
}

/// Rounds to nearest even; NaN becomes PTX's canonical NaN.
inline uint16_t floatToBfloat(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffff) > 0x7f800000)
    return 0x7fff;
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

inline uint16_t floatToHalf(float f) {
  uint32_t u = std::bit_cast<uint32_t>(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000)
    return 0x7fff;
  if (a >= 0x477ff000) // rounds to 65536 or more
    return static_cast<uint16_t>(sign | 0x7c00);
  if (a < 0x38800000) { // subnormal or zero: an addition rounds at the right bit
    float magic = std::bit_cast<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(magic) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13));
}

} // namespace attn::rt::host

#endif
