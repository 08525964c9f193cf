//===- Matrix.cpp - ldmatrix, stmatrix, movmatrix and mma.sync ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// With g = lane / 4 and q = lane % 4, element h of register r of lane is
//   A: row g + 8 (r & 1), k = 2q + h + 8 (r >> 1)     B: k = 2q + h + 8r, column g
//   C, D scalar i: row g + 8 (i >> 1), column 2q + (i & 1)
//   ldmatrix, matrix j: M[g][2q + h], transposed M[2q + h][g]; rows 8j..8j+7 of the
//   addresses belong to matrix j.
// Products of two 16-bit floats are exact in f32; the sum runs over k in order, in f32.
//
//===----------------------------------------------------------------------===//
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include "host/machine/Half.h"
#include <cstring>

using namespace attn::rt::host;

namespace {

typedef uint16_t U16x8 __attribute__((vector_size(16)));
typedef float F32x4 __attribute__((vector_size(16)));
typedef float F32x8 __attribute__((vector_size(32)));

template <bool Half> [[gnu::always_inline]] inline void widen(const uint16_t *in, float *out) {
  for (int i = 0; i < 8; ++i)
    out[i] = Half ? halfToFloat(in[i]) : bfloatToFloat(in[i]);
}

/// Transposes an 8x8 matrix in three rounds of interleaving.
[[gnu::always_inline]] inline void transpose(const uint16_t *in, uint16_t out[8][8]) {
  U16x8 a[8], b[8];
  std::memcpy(a, in, sizeof a);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      b[2 * i] = __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::memcpy(a, b, sizeof a);
  }
  std::memcpy(out, a, sizeof a);
}

/// Computes one mma. In lane order the 32 words of a register are the rows of 8x8 matrices: words 4g..4g+3
/// hold the 8 halves of row g (of column g, for B), and those of C and D are every other element of their
/// row.
template <bool Half> [[gnu::always_inline]] inline void mmaBody(uint32_t *exchange, const WarpStep &step) {
  auto word = [&](unsigned i) { return exchange + step.in[i] * kLanes; };
  alignas(64) float A[16][16], B[16][8], D[16][8];
  for (int r = 0; r < 4; ++r) {
    const auto *halves = reinterpret_cast<const uint16_t *>(word(kMmaA + r));
    for (int g = 0; g < 8; ++g)
      widen<Half>(halves + 8 * g, &A[g + 8 * (r & 1)][8 * (r >> 1)]);
  }
  for (int r = 0; r < 2; ++r) {
    uint16_t rows[8][8];
    transpose(reinterpret_cast<const uint16_t *>(word(kMmaB + r)), rows);
    for (int k = 0; k < 8; ++k)
      widen<Half>(rows[k], B[8 * r + k]);
  }
  for (int i = 0; i < 2; ++i)
    for (int g = 0; g < 8; ++g) {
      F32x4 even, odd;
      std::memcpy(&even, word(kMmaC + 2 * i) + 4 * g, sizeof even);
      std::memcpy(&odd, word(kMmaC + 2 * i + 1) + 4 * g, sizeof odd);
      F32x8 row = __builtin_shufflevector(even, odd, 0, 4, 1, 5, 2, 6, 3, 7);
      std::memcpy(D[g + 8 * i], &row, sizeof row);
    }
  for (int row = 0; row < 16; row += 4) {
    F32x8 sum[4];
    std::memcpy(sum, D[row], sizeof sum);
    for (int k = 0; k < 16; ++k) {
      F32x8 b;
      std::memcpy(&b, B[k], sizeof b);
      for (int i = 0; i < 4; ++i)
        sum[i] += A[row + i][k] * b;
    }
    std::memcpy(D[row], sum, sizeof sum);
  }
  for (int i = 0; i < 2; ++i)
    for (int g = 0; g < 8; ++g) {
      F32x8 row;
      std::memcpy(&row, D[g + 8 * i], sizeof row);
      F32x4 even = __builtin_shufflevector(row, row, 0, 2, 4, 6),
            odd = __builtin_shufflevector(row, row, 1, 3, 5, 7);
      std::memcpy(exchange + step.out[2 * i] * kLanes + 4 * g, &even, sizeof even);
      std::memcpy(exchange + step.out[2 * i + 1] * kLanes + 4 * g, &odd, sizeof odd);
    }
}

// One copy of the code per instruction set, chosen when the process starts.
#define ATTN_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
ATTN_CLONES void mmaF16(uint32_t *exchange, const WarpStep &step) { mmaBody<true>(exchange, step); }
ATTN_CLONES void mmaBF16(uint32_t *exchange, const WarpStep &step) { mmaBody<false>(exchange, step); }

/// Reports a missing lane: the operation needs the whole warp, and a lane that has exited makes it undefined.
void wantWholeWarp(Warp &warp, const Group &g) {
  if (g.arrived != ~0u)
    warp.block->report(FindingKind::Sync, g.op, warp.lanes[std::countr_zero(g.arrived)],
                       "needs all 32 lanes, but some have exited");
}

/// Checks the rows' offsets; none of them leaves the window even in unchecked code.
void rowOffsets(Warp &warp, uint32_t op, const uint32_t *given, uint32_t rows, bool writes,
                uint32_t *offset) {
  std::memcpy(offset, given, rows * sizeof *offset);
  if (Checker *checker = warp.block->checker)
    checker->matrix(warp, op, offset, rows, writes);
  for (uint32_t r = 0; r < rows; ++r)
    if (offset[r] > kArenaBytes - 16)
      offset[r] = 0;
}

void ldmatrix(Warp &warp, const WarpStep &step) {
  const uint8_t *shared = warp.block->shared;
  uint32_t offset[kLanes];
  rowOffsets(warp, step.op, warp.word(step.in[0]), 8u * step.count, false, offset);
  for (unsigned j = 0; j < step.count; ++j) {
    uint16_t m[8][8], t[8][8];
    for (int r = 0; r < 8; ++r)
      std::memcpy(m[r], shared + offset[8 * j + r], 16);
    if (step.kind == WarpStep::LdmatrixTransposed)
      transpose(m[0], t);
    std::memcpy(warp.word(step.out[j]), step.kind == WarpStep::LdmatrixTransposed ? t : m, sizeof m);
  }
}

bool runProgram(Warp &warp, const Group &g) {
  wantWholeWarp(warp, g);
  for (const WarpStep &step : warp.block->grid->kernel.programs[g.a].steps) {
    if (step.kind <= WarpStep::LdmatrixTransposed) {
      ldmatrix(warp, step);
      continue;
    }
    (step.kind == WarpStep::MmaF16 ? mmaF16 : mmaBF16)(warp.exchange, step);
    warp.block->flops += 2 * 16 * 8 * 16;
  }
  return true;
}

bool runStmatrix(Warp &warp, const Group &g) {
  wantWholeWarp(warp, g);
  uint8_t *shared = warp.block->shared;
  uint32_t offset[kLanes];
  rowOffsets(warp, g.op, warp.word(0), 8 * g.a, true, offset);
  for (uint32_t j = 0; j < g.a; ++j) {
    uint16_t m[8][8];
    const uint32_t *in = warp.word(kMatrixData + j);
    if (g.b)
      for (int l = 0; l < 32; ++l) {
        m[2 * (l & 3)][l >> 2] = static_cast<uint16_t>(in[l]);
        m[2 * (l & 3) + 1][l >> 2] = static_cast<uint16_t>(in[l] >> 16);
      }
    else
      std::memcpy(m, in, sizeof m);
    for (int r = 0; r < 8; ++r)
      std::memcpy(shared + offset[8 * j + r], m[r], 16);
  }
  return true;
}

/// Runs movmatrix; replaces word 0.
bool runMovmatrix(Warp &warp, const Group &g) {
  wantWholeWarp(warp, g);
  uint16_t transposed[8][8];
  transpose(reinterpret_cast<const uint16_t *>(warp.word(0)), transposed);
  std::memcpy(warp.word(0), transposed, sizeof transposed);
  return true;
}

} // namespace

void attn_host_program(LaneAbi *abi, uint32_t op, uint32_t program) {
  rendezvous(laneOf(abi), runProgram, meetKey(Meet::Program, program), ~0u, op, program);
}

void attn_host_stmatrix(LaneAbi *abi, uint32_t op, void *row, uint32_t count, uint32_t transposed) {
  Lane &lane = laneOf(abi);
  lane.exchange[0] = static_cast<uint32_t>(static_cast<uint8_t *>(row) - lane.shared);
  rendezvous(lane, runStmatrix, meetKey(Meet::Matrix, op), ~0u, op, count, transposed);
}

uint32_t attn_host_movmatrix(LaneAbi *abi, uint32_t op, uint32_t value) {
  Lane &lane = laneOf(abi);
  lane.exchange[0] = value;
  rendezvous(lane, runMovmatrix, meetKey(Meet::Matrix, op), ~0u, op);
  return lane.exchange[0];
}
