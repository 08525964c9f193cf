//===- Walk.cpp - The pairs of a row and a token that it sees -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Walk.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

// 256-bit vectors make the whole 1.7 times as fast (EPYC, 2026-11-20), which matters for the full grid of
// tests.
#if defined(__x86_64__)
#define ATTN_WIDE __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define ATTN_WIDE
#endif

ATTN_WIDE static void addScaledTo(double *sum, double factor, const double *x, size_t count) {
  for (size_t i = 0; i < count; ++i)
    sum[i] += factor * x[i];
}

/// Computes a product by sixteen partial sums, so that the loop vectorizes without permission to reorder.
ATTN_WIDE static double mmaOf(const double *a, const double *b, size_t count) {
  double partial[16] = {};
  const size_t whole = count / 16 * 16;
  for (size_t i = 0; i < whole; i += 16)
    for (size_t j = 0; j < 16; ++j)
      partial[j] += a[i + j] * b[i + j];
  for (size_t i = whole; i < count; ++i)
    partial[i - whole] += a[i] * b[i];
  double sum = 0;
  for (double p : partial)
    sum += p;
  return sum;
}

void reference::addScaled(std::span<double> sum, double factor, std::span<const double> x) {
  addScaledTo(sum.data(), factor, x.data(), x.size());
}

double reference::mma(std::span<const double> a, std::span<const double> b) {
  return mmaOf(a.data(), b.data(), a.size());
}

Scores::Scores(AttendOp attend, const Operands &operands)
    : scale(attend.getScaleOrDefault().getValueAsDouble()), score(attend.getScore(), operands),
      operands(operands) {}

void Scores::find(const Chunk &chunk, int64_t row, int64_t head, ScoreProgram::Lanes &lanes,
                  std::vector<double> &scores) const {
  std::span<const double> query = operands.queryOf(row, head);
  scores.clear();
  for (int32_t t : chunk.visible)
    scores.push_back(scale * mma(query, chunk.keys.subspan(t * operands.keyDim, operands.keyDim)));
  if (!score.empty())
    score.run(lanes, scores, int32_t(head), operands.queryPositions[row], chunk.positions);
}

/// Whether a row at position q sees a token at position k.
static bool sees(VisibilityAttr visibility, int64_t q, int64_t k) {
  auto part = [&](VisibilityAttr operand) { return sees(operand, q, k); };
  if (visibility.getKind() == VisibilityKind::Or)
    return llvm::any_of(visibility.getOperands(), part);
  if (visibility.getKind() == VisibilityKind::And)
    return llvm::all_of(visibility.getOperands(), part);
  auto shown =
      ::attn::rt::intervalOf(visibility.getKind(), ::attn::rt::IntegerPositions(), q, visibility.getSizes());
  return shown.begin.value_or(k) <= k && k < shown.end.value_or(k + 1);
}

namespace {
/// The current chunk, in memory that the next chunk reuses.
struct Loaded {
  std::vector<double> keys, values;
  std::vector<int64_t> lines;
  std::vector<int32_t> visible, positions;

  void load(const KVRegion &region, size_t instance, int64_t place, int64_t token, int64_t count) {
    const int64_t keyDim = region.keys.stored.dim, valueDim = region.values.stored.dim;
    keys.resize(count * keyDim), values.resize(count * valueDim), lines.resize(count);
    for (int64_t t = 0; t < count; ++t) {
      int64_t slot = region.slot(instance, place, token + t);
      lines[t] = region.lineOf(slot, place);
      region.read(region.keys, slot, place, std::span(keys).subspan(t * keyDim, keyDim));
      region.read(region.values, slot, place, std::span(values).subspan(t * valueDim, valueDim));
    }
  }

  /// Finds the tokens from position `key0` on that `shown` admits to a row at position `query` and that its
  /// head sees (`seen` null: all).
  void findVisible(VisibilityAttr shown, VisibilityAttr seen, int64_t query, int64_t key0) {
    visible.clear(), positions.clear();
    for (int64_t t = 0, e = lines.size(); t < e; ++t)
      if (sees(shown, query, key0 + t) && (!seen || sees(seen, query, key0 + t))) {
        visible.push_back(int32_t(t));
        positions.push_back(int32_t(key0 + t));
      }
  }
};
} // namespace

void reference::walkTokens(const Operands &operands, int64_t keyHead,
                           function_ref<void(int64_t row, const Chunk &chunk)> use) {
  Loaded loaded;
  for (auto [r, region] : llvm::enumerate(operands.regions)) {
    int64_t place = region.headPlaces[keyHead];
    for (size_t i = 0; i < region.instances() && place >= 0; ++i) {
      int64_t length = region.rowFirst[i] < region.rowLast[i] ? region.length(i, place) : 0;
      for (int64_t token = 0; token < length; token += ScoreProgram::kChunk) {
        loaded.load(region, i, place, token, std::min<int64_t>(ScoreProgram::kChunk, length - token));
        for (int64_t row = region.rowFirst[i]; row < region.rowLast[i]; ++row) {
          loaded.findVisible(region.visibility, operands.seen[keyHead], operands.queryPositions[row],
                             int64_t(region.pos0[i]) + token);
          if (!loaded.visible.empty())
            use(row,
                {r, loaded.visible, loaded.positions, loaded.lines, loaded.keys, loaded.values, i, token});
        }
      }
    }
  }
}
