//===- Reference.cpp - The float64 meaning of attn.attend -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Reference/Reference.h"
#include "ScoreProgram.h"
#include "attn_rt/support/Threads.h"

#include <atomic>
#include <cmath>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

/// Whether a row at position q sees a token at position k. The definition, word for word.
static bool sees(VisibilityAttr visibility, int64_t q, int64_t k) {
  auto part = [&](VisibilityAttr operand) { return sees(operand, q, k); };
  switch (visibility.getKind()) {
  case VisibilityKind::All:
    return true;
  case VisibilityKind::Causal:
    return k <= q;
  case VisibilityKind::Window:
  case VisibilityKind::Recent:
    return 0 <= q - k && q - k < visibility.getSize();
  case VisibilityKind::Sink:
    return k < visibility.getSize();
  case VisibilityKind::Or:
    return llvm::any_of(visibility.getOperands(), part);
  case VisibilityKind::And:
    return llvm::all_of(visibility.getOperands(), part);
  }
  llvm_unreachable("unknown visibility");
}

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The softmax of one row and head over the tokens added so far: sum = sum exp(s - max), and the weighted
/// values in the same unit.
struct Softmax {
  double max = -kInfinity;
  double sum = 0;
  std::span<double> values;

  /// Makes room for scores up to `score`. NaN sticks.
  void raise(double score) {
    if (!(score > max) && !std::isnan(score))
      return;
    double factor = max == -kInfinity ? 0 : std::exp(max - score);
    sum *= factor;
    for (double &value : values)
      value *= factor;
    max = score;
  }

  /// What one more token adds to the sum: its weight, in the unit of `max`.
  double add(double score) {
    if (score == -kInfinity)
      return 0;
    raise(score);
    double weight = std::exp(score - max);
    sum += weight;
    return weight;
  }
};

// 256-bit vectors make the whole 1.7 times as fast (EPYC, 2026-11-20), which the full grid of tests is worth.
#if defined(__x86_64__)
#define ATTN_WIDE __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define ATTN_WIDE
#endif

/// Adds weight * value[i] to sum[i].
ATTN_WIDE void addScaled(double *sum, double weight, const float *value, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    sum[i] += weight * double(value[i]);
}

/// Sixteen partial sums, so that the loop vectorizes without leave to reorder.
ATTN_WIDE double dot(const float *a, const float *b, int64_t count) {
  double partial[16] = {};
  const int64_t whole = count / 16 * 16;
  for (int64_t i = 0; i < whole; i += 16)
    for (int64_t j = 0; j < 16; ++j)
      partial[j] += double(a[i + j]) * double(b[i + j]);
  for (int64_t i = whole; i < count; ++i)
    partial[i - whole] += double(a[i]) * double(b[i]);
  double sum = 0;
  for (double p : partial)
    sum += p;
  return sum;
}

class Evaluator {
public:
  Evaluator(AttendOp attend, const Operands &operands)
      : operands(operands), scale(attend.getScaleOrDefault().getValueAsDouble()),
        score(attend.getScore(), operands) {
    result.output = rt::Tensor(rt::DType::F64, {operands.rows, operands.queryHeads, operands.valueDim});
    result.lse = rt::Tensor(rt::DType::F64, {operands.rows, operands.queryHeads});
    for (const KVRegion &region : operands.regions)
      decoders.push_back(
          {rt::RowDecoder(region.store.keys.format), rt::RowDecoder(region.store.values.format)});
    query.resize(operands.rows * operands.queryHeads * operands.keyDim);
    rt::RowDecoder(rt::Format::plain(operands.query->dtype))
        .decode(operands.query->bytes.data(), nullptr, query);
  }

  ReferenceResult evaluate(unsigned threads) {
    // A unit of work is some query heads of one KV head; no two units touch the same result.
    int64_t group = operands.queryHeads / operands.keyHeads;
    int64_t parts = std::min<int64_t>(group, (threads + operands.keyHeads - 1) / operands.keyHeads);
    std::atomic<int64_t> next = 0;
    auto work = [&] {
      for (int64_t unit; (unit = next++) < operands.keyHeads * parts;) {
        int64_t keyHead = unit / parts, part = unit % parts;
        evaluateHeads(keyHead, keyHead * group + part * group / parts,
                      keyHead * group + (part + 1) * group / parts);
      }
    };
    rt::onThreads(threads, work);
    return std::move(result);
  }

private:
  /// What a thread needs to itself.
  struct Scratch {
    std::vector<float> keys, values;
    std::vector<int32_t> visible, positions;
    std::vector<double> scores;
    ScoreProgram::Lanes lanes;
  };

  /// Query heads [first, last), all of which read `keyHead`, for every row.
  void evaluateHeads(int64_t keyHead, int64_t first, int64_t last) {
    Scratch scratch;
    scratch.keys.resize(ScoreProgram::kChunk * operands.keyDim);
    scratch.values.resize(ScoreProgram::kChunk * operands.valueDim);
    scratch.lanes = score.makeLanes();

    std::vector<Softmax> states(operands.rows * (last - first));
    for (int64_t row = 0; row < operands.rows; ++row)
      for (int64_t head = first; head < last; ++head)
        states[row * (last - first) + head - first].values = outputOf(row, head);

    for (size_t r = 0; r < operands.regions.size(); ++r) {
      const KVRegion &region = operands.regions[r];
      for (size_t i = 0; i < region.instances() && region.headPlaces[keyHead] >= 0; ++i) {
        int64_t place = region.headPlaces[keyHead], length = region.length(i, place);
        for (int64_t token = 0; token < length && region.rowFirst[i] < region.rowLast[i];
             token += ScoreProgram::kChunk) {
          int64_t count = std::min<int64_t>(ScoreProgram::kChunk, length - token);
          for (int64_t t = 0; t < count; ++t) {
            int64_t slot = region.slot(i, place, token + t);
            decode(region, region.keys, decoders[r].keys, slot, place, &scratch.keys[t * operands.keyDim]);
            decode(region, region.values, decoders[r].values, slot, place,
                   &scratch.values[t * operands.valueDim]);
          }
          for (int64_t row = region.rowFirst[i]; row < region.rowLast[i]; ++row) {
            findVisible(region.visibility, operands.seen[keyHead], operands.queryPositions[row],
                        int64_t(region.pos0[i]) + token, count, scratch);
            for (int64_t head = first; head < last && !scratch.visible.empty(); ++head)
              addTokens(row, head, scratch, states[row * (last - first) + head - first]);
          }
        }
      }
    }

    for (int64_t row = 0; row < operands.rows; ++row)
      for (int64_t head = first; head < last; ++head)
        finish(row, head, states[row * (last - first) + head - first]);
  }

  /// One head of a token, as its format says what it is.
  static void decode(const KVRegion &region, const KVRegion::Part &part, const rt::RowDecoder &decoder,
                     int64_t slot, int64_t place, float *out) {
    decoder.decode(region.codesOf(part, slot, place), region.metaOf(part, slot, place),
                   std::span(out, size_t(part.stored.dim)));
  }

  std::span<double> outputOf(int64_t row, int64_t head) {
    return result.output.as<double>().subspan((row * operands.queryHeads + head) * operands.valueDim,
                                              operands.valueDim);
  }

  /// Which of `count` tokens from position `key0` are shown to a row at position `query` and (null: all of
  /// those) seen by its head.
  static void findVisible(VisibilityAttr shown, VisibilityAttr seen, int64_t query, int64_t key0,
                          int64_t count, Scratch &scratch) {
    scratch.visible.clear();
    scratch.positions.clear();
    for (int64_t t = 0; t < count; ++t)
      if (sees(shown, query, key0 + t) && (!seen || sees(seen, query, key0 + t))) {
        scratch.visible.push_back(int32_t(t));
        scratch.positions.push_back(int32_t(key0 + t));
      }
  }

  /// Adds the visible tokens of a chunk to the softmax of a row and head.
  void addTokens(int64_t row, int64_t head, Scratch &scratch, Softmax &state) {
    const float *q = &query[(row * operands.queryHeads + head) * operands.keyDim];
    scratch.scores.clear();
    for (int32_t t : scratch.visible)
      scratch.scores.push_back(scale * dot(q, &scratch.keys[t * operands.keyDim], operands.keyDim));
    if (!score.empty())
      score.run(scratch.lanes, scratch.scores, int32_t(head), operands.queryPositions[row],
                scratch.positions);

    for (double s : scratch.scores)
      state.raise(s);
    for (auto [t, s] : llvm::zip(scratch.visible, scratch.scores)) {
      double weight = state.add(s);
      const float *value = &scratch.values[t * operands.valueDim];
      addScaled(state.values.data(), weight, value, operands.valueDim);
    }
  }

  void finish(int64_t row, int64_t head, Softmax &state) {
    if (operands.sinks)
      state.add(operands.sinks->as<float>()[head]);
    // Where nothing was seen the values are zero, and stay so.
    if (state.sum != 0)
      for (double &value : state.values)
        value /= state.sum;
    result.lse.as<double>()[row * operands.queryHeads + head] = state.max + std::log(state.sum);
  }

  const Operands &operands;
  double scale;
  ScoreProgram score;
  struct Decoders {
    rt::RowDecoder keys, values;
  };
  std::vector<Decoders> decoders; ///< of each region
  std::vector<float> query;
  ReferenceResult result;
};
} // namespace

rt::Result<ReferenceResult> mlir::attn::evaluateReference(func::FuncOp func, const rt::TensorMap &tensors,
                                                          unsigned threads) {
  rt::Result<Operands> operands = readOperands(func, tensors);
  if (!operands)
    return operands.error();
  return Evaluator(operands->attend, *operands).evaluate(std::max(1u, threads));
}
