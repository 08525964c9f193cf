//===- Scalar.cpp - Approximations and conversions ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A GPU's .approx.ftz functions, computed exactly (rounded once). As .ftz demands,
// subnormal inputs and outputs are flushed.
//
//===----------------------------------------------------------------------===//
#include "host/machine/Entry.h"
#include "host/machine/Half.h"

#include "attn_rt/tensor/ElementType.h"

#include <cmath>

using namespace attn::rt::host;

static float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

float attn_host_ex2(float x) { return flush(std::exp2(flush(x))); }
float attn_host_lg2(float x) { return std::log2(flush(x)); }
float attn_host_rcp(float x) { return flush(1.0f / flush(x)); }
float attn_host_sqrt(float x) { return std::sqrt(flush(x)); }
// Models the allowed error of the instruction: a relative error of 2^-11, by rounding to eleven bits.
float attn_host_tanh(float x) {
  if (!std::isnormal(x)) // zeros, subnormals, NaN; infinities are exact anyhow
    return std::tanh(x);
  const auto bits = std::bit_cast<uint32_t>(std::tanh(x));
  return std::bit_cast<float>((bits + 0x1000) & ~uint32_t{0x1fff});
}

uint32_t attn_host_pack_f16(float high, float low) {
  return uint32_t(floatToHalf(high)) << 16 | floatToHalf(low);
}
uint32_t attn_host_pack_bf16(float high, float low) {
  return uint32_t(floatToBfloat(high)) << 16 | floatToBfloat(low);
}
// Widens two values in 16 bits, the first in the low byte. In e4m3, only the value of all ones is a NaN; it
// becomes PTX's canonical NaN.
static uint32_t widenE4M3(uint32_t code) {
  const uint32_t magnitude = code & 0x7f, sign = (code & 0x80) << 8;
  if (magnitude == 0x7f)
    return 0x7fff;
  // Exponent and mantissa shifted to their f16 positions give a value 2^8 too small; f32 holds the product
  // exactly.
  return sign | floatToHalf(halfToFloat(static_cast<uint16_t>(magnitude << 7)) * 0x1p8f);
}
uint32_t attn_host_widen_e4m3(uint32_t codes) {
  return widenE4M3(codes >> 8 & 0xff) << 16 | widenE4M3(codes & 0xff);
}

// Narrows two numbers as cvt.rn.satfinite does: a NaN becomes PTX's canonical one, which has no sign.
uint32_t attn_host_narrow_e4m3(float high, float low) {
  const auto narrow = [](float x) -> uint32_t {
    using namespace attn::rt;
    return std::isnan(x) ? 0x7f : toFloatBits(x, elementType(DType::F8E4M3FN));
  };
  return narrow(high) << 8 | narrow(low);
}

// prmt: a digit's low three bits select a byte of both registers; the fourth bit replicates the byte's sign
// into each bit.
uint32_t attn_host_permute(uint32_t low, uint32_t high, uint32_t which) {
  const uint64_t both = uint64_t(high) << 32 | low;
  uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const uint32_t digit = which >> 4 * i & 15, byte = both >> 8 * (digit & 7) & 0xff;
    result |= (digit & 8 ? byte >> 7 ? 0xff : 0 : byte) << 8 * i;
  }
  return result;
}

// Functions that LLVM calls for 16-bit floats on CPUs without the instructions. Some versions of libgcc have
// some of them; these round alike everywhere. A 16-bit float travels in the low half of a float's register,
// so a float's bits carry it without its type.
static float carry(uint16_t h) { return std::bit_cast<float>(uint32_t(h)); }
static float extendHalf(float h) { return halfToFloat(static_cast<uint16_t>(std::bit_cast<uint32_t>(h))); }
static float truncateToHalf(float f) { return carry(floatToHalf(f)); }
static float truncateWideToHalf(double d) {
  return carry(attn::rt::toF16(d));
} // one rounding, as an fma of halves has
static float truncateToBfloat(float f) { return carry(floatToBfloat(f)); }

// Native code has no tables by which an exception could pass through it, and a fiber has no caller. So an
// exception of an operation (for example a lack of memory to note a copy) ends here, and the block with it.
template <auto function> struct Guarded;
template <typename Result, typename... Args, Result (*function)(LaneAbi *, Args...)>
struct Guarded<function> {
  static Result call(LaneAbi *lane, Args... args) {
    Block &block = *laneOf(lane).block;
    try {
      return function(lane, args...);
    } catch (...) {
      block.failure = std::current_exception();
    }
    block.abandon(laneOf(lane));
  }
};
template <typename Result, typename... Args, Result (*function)(Args...)> struct Guarded<function> {
  static constexpr auto call = function; // without a lane
};

#define SYMBOL(name) {#name, reinterpret_cast<void *>(+Guarded<&name>::call)}
static const Symbol kSymbols[] = {
    SYMBOL(attn_host_barrier),
    SYMBOL(attn_host_barrier_arrive),
    SYMBOL(attn_host_warp_sync),
    SYMBOL(attn_host_shuffle),
    SYMBOL(attn_host_vote),
    SYMBOL(attn_host_program),
    SYMBOL(attn_host_stmatrix),
    SYMBOL(attn_host_movmatrix),
    SYMBOL(attn_host_cp_async),
    SYMBOL(attn_host_cp_commit),
    SYMBOL(attn_host_cp_wait),
    SYMBOL(attn_host_bulk_copy),
    SYMBOL(attn_host_bulk_store),
    SYMBOL(attn_host_bulk_add),
    SYMBOL(attn_host_bulk_commit),
    SYMBOL(attn_host_bulk_wait),
    SYMBOL(attn_host_mbarrier_init),
    SYMBOL(attn_host_mbarrier_inval),
    SYMBOL(attn_host_mbarrier_arrive),
    SYMBOL(attn_host_mbarrier_expect),
    SYMBOL(attn_host_mbarrier_wait),
    SYMBOL(attn_host_cp_mbarrier),
    SYMBOL(attn_host_fence_async),
    SYMBOL(attn_host_fence_mbarrier),
    SYMBOL(attn_host_grid_wait),
    SYMBOL(attn_host_wgmma),
    SYMBOL(attn_host_wgmma_fence),
    SYMBOL(attn_host_wgmma_commit),
    SYMBOL(attn_host_wgmma_wait),
    SYMBOL(attn_host_misuse),
    SYMBOL(attn_host_set_registers),
    SYMBOL(attn_host_elect),
    SYMBOL(attn_host_load),
    SYMBOL(attn_host_store),
    SYMBOL(attn_host_atomic),
    SYMBOL(attn_host_add_f32),
    SYMBOL(attn_host_ex2),
    SYMBOL(attn_host_lg2),
    SYMBOL(attn_host_rcp),
    SYMBOL(attn_host_sqrt),
    SYMBOL(attn_host_tanh),
    SYMBOL(attn_host_pack_f16),
    SYMBOL(attn_host_pack_bf16),
    SYMBOL(attn_host_widen_e4m3),
    SYMBOL(attn_host_narrow_e4m3),
    SYMBOL(attn_host_permute),
    SYMBOL(attn_host_globaltimer),
    {"__extendhfsf2", reinterpret_cast<void *>(&extendHalf)},
    {"__truncsfhf2", reinterpret_cast<void *>(&truncateToHalf)},
    {"__truncdfhf2", reinterpret_cast<void *>(&truncateWideToHalf)},
    {"__truncsfbf2", reinterpret_cast<void *>(&truncateToBfloat)},
};
#undef SYMBOL

std::span<const Symbol> attn::rt::host::abiSymbols() { return kSymbols; }
