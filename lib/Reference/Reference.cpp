//===- Reference.cpp - The float64 meaning of attn.attend -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Reference/Reference.h"
#include "Walk.h"
#include "attn_rt/support/Threads.h"

#include <atomic>
#include <cmath>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// The size of an output below which its row's scale does not fall.
constexpr double leastOutput = 1e-10;

/// The softmax of one row and head over the tokens added so far: sum = sum exp(s - max), and the weighted
/// values in the same unit.
struct Softmax {
  double max = -kInfinity;
  double sum = 0;
  std::span<double> values;

  /// Raises the unit for scores up to `score`. NaN sticks.
  void raise(double score) {
    if (!(score > max) && !std::isnan(score))
      return;
    double factor = max == -kInfinity ? 0 : std::exp(max - score);
    sum *= factor;
    for (double &value : values)
      value *= factor;
    max = score;
  }

  /// Adds a token to the sum, and returns its weight in the unit of `max`.
  double add(double score) {
    if (score == -kInfinity)
      return 0;
    raise(score);
    double weight = std::exp(score - max);
    sum += weight;
    return weight;
  }
};

class Evaluator {
public:
  Evaluator(AttendOp attend, const Operands &operands) : operands(operands), scores(attend, operands) {
    result.output = rt::Tensor(rt::DType::F64, {operands.rows, operands.queryHeads, operands.valueDim});
    result.lse = rt::Tensor(rt::DType::F64, {operands.rows, operands.queryHeads});
    if (attend.getOutputScales())
      result.outputScales = rt::Tensor(rt::DType::F64, {operands.rows, operands.queryHeads});
  }

  ReferenceResult evaluate(unsigned threads) {
    // A work item is some query heads of one KV head; no two items touch the same result.
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
  /// Evaluates query heads [first, last), all of which read `keyHead`, for every row.
  void evaluateHeads(int64_t keyHead, int64_t first, int64_t last) {
    std::vector<Softmax> states(operands.rows * (last - first));
    for (int64_t row = 0; row < operands.rows; ++row)
      for (int64_t head = first; head < last; ++head)
        states[row * (last - first) + head - first].values = outputOf(row, head);

    ScoreProgram::Lanes lanes = scores.makeLanes();
    std::vector<double> ofTokens;
    walkTokens(operands, keyHead, [&](int64_t row, const Chunk &chunk) {
      for (int64_t head = first; head < last; ++head) {
        scores.find(chunk, row, head, lanes, ofTokens);
        addTokens(chunk, ofTokens, states[row * (last - first) + head - first]);
      }
    });

    for (int64_t row = 0; row < operands.rows; ++row)
      for (int64_t head = first; head < last; ++head)
        finish(row, head, states[row * (last - first) + head - first]);
  }

  std::span<double> outputOf(int64_t row, int64_t head) {
    return result.output.as<double>().subspan((row * operands.queryHeads + head) * operands.valueDim,
                                              operands.valueDim);
  }

  /// Adds the visible tokens of a chunk to the softmax of a row and head.
  void addTokens(const Chunk &chunk, std::span<const double> ofTokens, Softmax &state) const {
    for (double s : ofTokens)
      state.raise(s);
    for (auto [t, s] : llvm::zip(chunk.visible, ofTokens))
      addScaled(state.values, state.add(s), chunk.values.subspan(t * operands.valueDim, operands.valueDim));
  }

  void finish(int64_t row, int64_t head, Softmax &state) {
    if (!operands.sinks.empty())
      state.add(operands.sinks[head]);
    // If nothing was visible the values are zero, and stay so.
    if (state.sum != 0)
      for (double &value : state.values)
        value /= state.sum;
    const size_t line = row * operands.queryHeads + head, features = state.values.size();
    if (!operands.gate.empty())
      for (auto [i, value] : llvm::enumerate(state.values)) {
        const bool byHead = operands.gate.size() == operands.rows * operands.queryHeads;
        value /= 1 + std::exp(-operands.gate[byHead ? line : line * features + i]);
      }
    if (operands.outputScale)
      quantize(state.values, *operands.outputScale);
    if (result.outputScales) {
      double largest = leastOutput;
      for (double value : state.values)
        largest = std::fmax(largest, std::abs(value)); // of the numbers: a NaN has no size
      const double scale = result.outputScales->as<double>()[line] = largest / mostCode;
      quantize(state.values, scale);
    }
    result.lse.as<double>()[line] = state.max + std::log(state.sum);
  }

  void quantize(std::span<double> values, double scale) const {
    for (double &value : values)
      value = std::clamp(value / scale, -mostCode, mostCode); // a NaN stays one
  }

  const double mostCode = rt::elementType(rt::DType::F8E4M3FN).largest();
  const Operands &operands;
  const Scores scores;
  ReferenceResult result;
};
} // namespace

static rt::Result<ReferenceResult> evaluate(func::FuncOp func, const rt::TensorMap &tensors, unsigned threads,
                                            bool first) {
  rt::Result<Operands> operands = readOperands(func, tensors, first);
  if (!operands)
    return operands.error();
  ReferenceResult result = Evaluator(operands->attend, *operands).evaluate(std::max(1u, threads));
  if (auto of = significanceAttr.get(func)) {
    auto rows = significanceRowsAttr.get(func);
    result.significance = weighTokens(*operands, result.lse, *symbolizeTogether(of.getValue()),
                                      rows ? rows.getInt() : 0, std::max(1u, threads));
  }
  return result;
}

rt::Result<ReferenceResult> mlir::attn::evaluateReference(func::FuncOp func, const rt::TensorMap &tensors,
                                                          unsigned threads) {
  return evaluate(func, tensors, threads, /*first=*/false);
}

rt::Result<ReferenceResult> mlir::attn::evaluateFirst(func::FuncOp func, const rt::TensorMap &tensors,
                                                      unsigned threads) {
  return evaluate(func, tensors, threads, /*first=*/true);
}
