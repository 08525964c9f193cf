//===- WgmmaMath.cpp - Descriptors, panels, products ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands are decoded once into f32 panels, the right one with its columns along
// the vectors. Products of two 16-bit floats are exact in f32; the sum runs over k
// in order, in f32, as in mma.sync.
//
//===----------------------------------------------------------------------===//
#include "Wgmma.h"
#include "host/machine/Half.h"
#include <cstring>

namespace attn::rt::host {

Descriptor::Descriptor(uint64_t d) {
  auto field = [&](unsigned shift) { return static_cast<uint32_t>(d >> shift & 0x3fff) << 4; };
  start = field(0);
  leading = field(16);
  stride = field(32);
  base = d >> 49 & 7;
  const uint32_t widths[] = {0, 128, 64, 32};
  width = widths[d >> 62];
}

uint32_t Descriptor::rowChunk(uint32_t row, uint32_t k) const {
  if (width)
    return place(start + row % 8 * width + row / 8 * stride + k * 2);
  return place(start + row % 8 * 16 + row / 8 * stride + k / 8 * leading);
}

uint32_t Descriptor::columnChunk(uint32_t column, uint32_t k) const {
  if (width) {
    uint32_t columns = width / 2;
    return place(start + column % columns * 2 + column / columns * leading + k % 8 * width + k / 8 * stride);
  }
  return place(start + column / 8 * stride + k % 8 * 16 + k / 8 * leading);
}

namespace {

typedef uint16_t U16x8 __attribute__((vector_size(16)));
typedef float F32x8 __attribute__((vector_size(32)));

template <bool Half> [[gnu::always_inline]] inline void widen(const uint16_t *in, float *out) {
  for (int i = 0; i < 8; ++i)
    out[i] = Half ? halfToFloat(in[i]) : bfloatToFloat(in[i]);
}

[[gnu::always_inline]] inline void transpose(U16x8 *a) {
  U16x8 b[8];
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      b[2 * i] = __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::memcpy(a, b, sizeof b);
  }
}

template <bool Half>
[[gnu::always_inline]] inline void rightPanel(const uint8_t *shared, const Descriptor &d, bool transposed,
                                              uint32_t n, float *panel) {
  for (uint32_t column = 0; column < n; column += 8)
    for (uint32_t k = 0; k < kWgmmaDepth; k += 8) {
      U16x8 m[8];
      for (uint32_t i = 0; i < 8; ++i)
        std::memcpy(&m[i], shared + (transposed ? d.columnChunk(column, k + i) : d.rowChunk(column + i, k)),
                    16);
      if (!transposed)
        transpose(m);
      for (uint32_t i = 0; i < 8; ++i) {
        uint16_t halves[8];
        std::memcpy(halves, &m[i], 16);
        widen<Half>(halves, panel + (k + i) * n + column);
      }
    }
}

template <bool Half>
[[gnu::always_inline]] inline void leftPanel(const uint8_t *shared, const Descriptor &d, bool transposed,
                                             float *panel) {
  for (uint32_t row = 0; transposed && row < kWgmmaRows; row += 8)
    for (uint32_t k = 0; k < kWgmmaDepth; ++k) {
      uint16_t halves[8];
      float column[8];
      std::memcpy(halves, shared + d.columnChunk(row, k), 16);
      widen<Half>(halves, column);
      for (uint32_t i = 0; i < 8; ++i)
        panel[(row + i) * kWgmmaDepth + k] = column[i];
    }
  for (uint32_t row = 0; !transposed && row < kWgmmaRows; ++row)
    for (uint32_t k = 0; k < kWgmmaDepth; k += 8) {
      uint16_t halves[8];
      std::memcpy(halves, shared + d.rowChunk(row, k), 16);
      widen<Half>(halves, panel + row * kWgmmaDepth + k);
    }
}

/// Multiplies four rows by 8 * V columns at a time.
template <int V>
[[gnu::always_inline]] inline void multiplyColumns(const float *left, const float *right, uint32_t n,
                                                   uint32_t column, float *sums) {
  for (uint32_t row = 0; row < kWgmmaRows; row += 4) {
    F32x8 sum[4][V];
    for (int i = 0; i < 4; ++i)
      std::memcpy(sum[i], sums + (row + i) * n + column, sizeof sum[i]);
    for (uint32_t k = 0; k < kWgmmaDepth; ++k) {
      F32x8 b[V];
      std::memcpy(b, right + k * n + column, sizeof b);
      for (int i = 0; i < 4; ++i)
        for (int v = 0; v < V; ++v)
          sum[i][v] += left[(row + i) * kWgmmaDepth + k] * b[v];
    }
    for (int i = 0; i < 4; ++i)
      std::memcpy(sums + (row + i) * n + column, sum[i], sizeof sum[i]);
  }
}

struct Operands {
  const uint8_t *shared;
  const float *left; ///< null: by descriptor
  uint64_t leftDescriptor, rightDescriptor;
  bool leftTransposed, transposed;
  uint32_t n;
};

template <bool Half> [[gnu::always_inline]] inline void product(const Operands &o, float *sums) {
  alignas(64) float left[kWgmmaRows * kWgmmaDepth], right[kWgmmaDepth * 256];
  if (!o.left)
    leftPanel<Half>(o.shared, Descriptor(o.leftDescriptor), o.leftTransposed, left);
  rightPanel<Half>(o.shared, Descriptor(o.rightDescriptor), o.transposed, o.n, right);
  const float *a = o.left ? o.left : left;
  uint32_t column = 0;
  for (; column + 16 <= o.n; column += 16)
    multiplyColumns<2>(a, right, o.n, column, sums);
  if (column < o.n)
    multiplyColumns<1>(a, right, o.n, column, sums);
}

#define ATTN_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
ATTN_CLONES void productF16(const Operands &o, float *sums) { product<true>(o, sums); }
ATTN_CLONES void productBF16(const Operands &o, float *sums) { product<false>(o, sums); }

} // namespace

void compute(const Block &block, Tensor &tensor, Issue &issue) {
  const WgmmaProgram &program = block.grid->kernel.wgmmaPrograms[issue.program];
  std::vector<size_t> start{0};
  for (const WgmmaChain &chain : program.chains)
    start.push_back(start.back() + size_t(kWgmmaRows) * chain.n);
  for (size_t c = 0; c < program.chains.size(); ++c) {
    if (issue.from[c] == ~0ull)
      continue;
    const Issue &other = tensor.at(issue.from[c] / kMaxChains);
    const auto &chains = block.grid->kernel.wgmmaPrograms[other.program].chains;
    size_t which = issue.from[c] % kMaxChains, at = 0;
    for (size_t i = 0; i < which; ++i)
      at += size_t(kWgmmaRows) * chains[i].n;
    std::copy_n(other.sums.data() + at, start[c + 1] - start[c], issue.sums.data() + start[c]);
  }
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const WgmmaStep &step = program.steps[s];
    Operands o{block.shared,
               step.lhs == WgmmaChain::kNoWord ? nullptr : issue.left.data() + s * kWgmmaRows * kWgmmaDepth,
               issue.descriptors[2 * s],
               issue.descriptors[2 * s + 1],
               step.lhsTransposed,
               step.transposed,
               program.chains[step.chain].n};
    (step.half ? productF16 : productBF16)(o, issue.sums.data() + start[step.chain]);
  }
  issue.computed = true;
}

} // namespace attn::rt::host
