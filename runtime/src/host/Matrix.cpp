//===- Matrix.cpp - ldmatrix, stmatrix and mma.sync -----------------------===//
//
// With g = lane / 4 and q = lane % 4, element h of register r of lane is
//   A: row g + 8 (r & 1), k = 2q + h + 8 (r >> 1)     B: k = 2q + h + 8r, column g
//   C, D scalar i: row g + 8 (i >> 1), column 2q + (i & 1)
//   ldmatrix, matrix j: M[g][2q + h], transposed M[2q + h][g]; rows 8j..8j+7 of the
//   addresses belong to matrix j.
// Products of two 16-bit floats are exact in f32; the sum runs over k in order, in f32.
//
//===----------------------------------------------------------------------===//
#include "Checker.h"
#include "Entry.h"
#include "Half.h"
#include <cstring>

using namespace attn::rt::host;

namespace {

template <MmaKind kind> inline float widen(uint16_t bits) {
  return kind == MmaKind::F16 ? halfToFloat(bits) : bfloatToFloat(bits);
}

/// All operands as vectors over the lanes: a[r][lane], b[r][lane], c[i][lane].
template <MmaKind kind>
[[gnu::always_inline]] inline void mmaBody(const uint32_t *a, const uint32_t *b, uint32_t *c) {
  float A[16][16], B[16][8], D[16][8];
  for (int r = 0; r < 4; ++r)
    for (int l = 0; l < 32; ++l) {
      int row = (l >> 2) + 8 * (r & 1), k = 2 * (l & 3) + 8 * (r >> 1);
      uint32_t v = a[r * 32 + l];
      A[row][k] = widen<kind>(static_cast<uint16_t>(v));
      A[row][k + 1] = widen<kind>(static_cast<uint16_t>(v >> 16));
    }
  for (int r = 0; r < 2; ++r)
    for (int l = 0; l < 32; ++l) {
      int k = 2 * (l & 3) + 8 * r;
      uint32_t v = b[r * 32 + l];
      B[k][l >> 2] = widen<kind>(static_cast<uint16_t>(v));
      B[k + 1][l >> 2] = widen<kind>(static_cast<uint16_t>(v >> 16));
    }
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < 32; ++l)
      std::memcpy(&D[(l >> 2) + 8 * (i >> 1)][2 * (l & 3) + (i & 1)], &c[i * 32 + l], 4);
  for (int row = 0; row < 16; ++row) {
    float sum[8];
    std::memcpy(sum, D[row], sizeof sum);
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n)
        sum[n] += A[row][k] * B[k][n];
    std::memcpy(D[row], sum, sizeof sum);
  }
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < 32; ++l)
      std::memcpy(&c[i * 32 + l], &D[(l >> 2) + 8 * (i >> 1)][2 * (l & 3) + (i & 1)], 4);
}

[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] void
mmaF16(const uint32_t *a, const uint32_t *b, uint32_t *c) {
  mmaBody<MmaKind::F16>(a, b, c);
}
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]] void
mmaBF16(const uint32_t *a, const uint32_t *b, uint32_t *c) {
  mmaBody<MmaKind::BF16>(a, b, c);
}

/// The operation needs the whole warp; a lane that has left makes it undefined.
void wantWholeWarp(Warp &warp, const Group &g) {
  if (g.arrived != ~0u)
    warp.block->report(FindingKind::Sync, g.op, warp.lanes[std::countr_zero(g.arrived)],
                       "needs all 32 lanes, but some have exited");
}

bool runMma(Warp &warp, const Group &g) {
  wantWholeWarp(warp, g);
  (static_cast<MmaKind>(g.a) == MmaKind::F16 ? mmaF16 : mmaBF16)(warp.word(kMmaA), warp.word(kMmaB),
                                                                 warp.word(kMmaC));
  warp.block->flops += 2 * 16 * 8 * 16;
  return true;
}

/// The rows' offsets, checked; none of them leaves the window even in unchecked code.
const uint32_t *rowOffsets(Warp &warp, const Group &g, bool writes) {
  uint32_t *offset = warp.word(0);
  if (Checker *checker = warp.block->checker)
    checker->matrix(warp, g.op, offset, 8 * g.a, writes);
  for (uint32_t r = 0; r < 8 * g.a; ++r)
    if (offset[r] > kArenaBytes - 16)
      offset[r] = 0;
  return offset;
}

bool runLdmatrix(Warp &warp, const Group &g) {
  wantWholeWarp(warp, g);
  const uint8_t *shared = warp.block->shared;
  const uint32_t *offset = rowOffsets(warp, g, false);
  for (uint32_t j = 0; j < g.a; ++j) {
    uint16_t m[8][8];
    for (int r = 0; r < 8; ++r)
      std::memcpy(m[r], shared + offset[8 * j + r], 16);
    uint32_t *out = warp.word(kMatrixData + j);
    if (g.b)
      for (int l = 0; l < 32; ++l)
        out[l] = m[2 * (l & 3)][l >> 2] | uint32_t(m[2 * (l & 3) + 1][l >> 2]) << 16;
    else
      std::memcpy(out, m, sizeof m); // lane l holds words l of the 8x8 matrix in row order
  }
  return true;
}

bool runStmatrix(Warp &warp, const Group &g) {
  wantWholeWarp(warp, g);
  uint8_t *shared = warp.block->shared;
  const uint32_t *offset = rowOffsets(warp, g, true);
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

} // namespace

void attn_host_mma(LaneAbi *abi, uint32_t op, uint32_t kind) {
  rendezvous(laneOf(abi), runMma, meetKey(Meet::Matrix, op), ~0u, op, kind);
}

void attn_host_ldmatrix(LaneAbi *abi, uint32_t op, const void *row, uint32_t count, uint32_t transposed) {
  Lane &lane = laneOf(abi);
  lane.exchange[0] = static_cast<uint32_t>(static_cast<const uint8_t *>(row) - lane.shared);
  rendezvous(lane, runLdmatrix, meetKey(Meet::Matrix, op), ~0u, op, count, transposed);
}

void attn_host_stmatrix(LaneAbi *abi, uint32_t op, void *row, uint32_t count, uint32_t transposed) {
  Lane &lane = laneOf(abi);
  lane.exchange[0] = static_cast<uint32_t>(static_cast<uint8_t *>(row) - lane.shared);
  rendezvous(lane, runStmatrix, meetKey(Meet::Matrix, op), ~0u, op, count, transposed);
}
