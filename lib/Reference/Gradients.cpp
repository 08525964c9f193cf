//===- Gradients.cpp - The float64 gradients of attn.attend ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// For one row and query head, with p(t) = exp(s(t) - lse) the weight of token t:
//
//     ds(t)  = p(t) * (<dO, v(t)> - <dO, O> + dLSE)      gradient of its score
//     dv(t) += p(t) * dO
//     dx(t)  = ds(t) through the score region             of scale * <q, k(t)>
//     dq    += scale * dx(t) * k(t)
//     dk(t) += scale * dx(t) * q
//
// A sink is a token whose value is zero and whose score is the logit itself.
//
//===----------------------------------------------------------------------===//
#include "ScoreGradient.h"
#include "Walk.h"
#include "attn/Reference/Reference.h"
#include "attn_rt/support/Threads.h"

#include <atomic>
#include <cmath>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Differentiator {
public:
  Differentiator(AttendOp attend, const Operands &operands, const ReferenceResult &result,
                 const rt::Tensor &outputGradient, const rt::Tensor *lseGradient)
      : operands(operands), result(result), outputGradient(outputGradient.toDoubles()),
        scores(attend, operands), ofScore(attend.getScore(), scores.score),
        queries(rt::DType::F64, {operands.rows, operands.queryHeads, operands.keyDim}),
        tables(operands.keyHeads) {
    if (lseGradient)
      this->lseGradient = lseGradient->toDoubles();
    if (!operands.sinks.empty())
      sinks = rt::Tensor(rt::DType::F64, {operands.queryHeads});
    for (const KVRegion &region : operands.regions)
      stored.push_back({rt::Tensor(rt::DType::F64, region.keys.codes->shape),
                        rt::Tensor(rt::DType::F64, region.values.codes->shape)});
  }

  rt::TensorMap differentiate(unsigned threads) {
    // A work item is a KV head, to whose keys and values all its query heads add in order.
    std::atomic<int64_t> next = 0;
    rt::onThreads(threads, [&] {
      for (int64_t head; (head = next++) < operands.keyHeads;)
        differentiateHead(head);
    });
    rt::TensorMap gradients;
    gradients["dq"] = std::move(queries);
    for (auto [region, of] : llvm::zip(operands.regions, stored)) {
      gradients[region.name + ".dk"] = std::move(of.keys);
      gradients[region.name + ".dv"] = std::move(of.values);
    }
    if (!operands.sinks.empty())
      gradients["dsink_logits"] = std::move(sinks);
    for (const auto &[argument, table] : operands.tables)
      gradients["d" + table.name] = sumOf(argument, table);
    return gradients;
  }

private:
  /// The state of one thread.
  struct Scratch {
    ScoreProgram::Lanes lanes;
    ScoreGradient::Adjoints adjoints;
    std::vector<double> scores, gradients;
  };

  void differentiateHead(int64_t keyHead) {
    const int64_t group = operands.queryHeads / operands.keyHeads;
    const int64_t first = keyHead * group, last = first + group;
    Scratch scratch;
    scratch.lanes = scores.makeLanes();
    walkTokens(operands, keyHead, [&](int64_t row, const Chunk &chunk) {
      for (int64_t head = first; head < last; ++head)
        addTokens(chunk, row, head, scratch, tables[keyHead]);
    });
    if (!operands.sinks.empty())
      for (int64_t row = 0; row < operands.rows; ++row)
        for (int64_t head = first; head < last; ++head)
          addSink(row, head);
  }

  /// Adds the terms of the visible tokens of a chunk for one row and head: to the tokens' gradients and to
  /// the row's.
  void addTokens(const Chunk &chunk, int64_t row, int64_t head, Scratch &scratch,
                 ScoreGradient::TableGradients &tables) {
    const double lse = lseOf(row, head);
    if (lse == -kInfinity)
      return;
    const std::span<const double> gradient = outputGradientOf(row, head), query = operands.queryOf(row, head);
    const double common = lseGradientOf(row, head) - mma(gradient, outputOf(row, head));
    scores.find(chunk, row, head, scratch.lanes, scratch.scores);
    scratch.gradients.clear();
    for (auto [t, s] : llvm::zip(chunk.visible, scratch.scores)) {
      // A score of -inf has no weight, whatever its derivatives are.
      const double weight = s == -kInfinity ? 0 : std::exp(s - lse);
      const std::span<const double> value = chunk.values.subspan(t * operands.valueDim, operands.valueDim);
      scratch.gradients.push_back(weight == 0 ? 0 : weight * (mma(gradient, value) + common));
      if (weight != 0)
        addScaled(lineOf(stored[chunk.region].values, chunk.lines[t], operands.valueDim), weight, gradient);
    }
    if (!scores.score.empty())
      ofScore.run(operands, scratch.lanes, scratch.adjoints, scratch.gradients, tables);
    for (auto [t, ds] : llvm::zip(chunk.visible, scratch.gradients)) {
      if (ds == 0)
        continue;
      addScaled(lineOf(queries, row * operands.queryHeads + head, operands.keyDim), scores.scale * ds,
                chunk.keys.subspan(t * operands.keyDim, operands.keyDim));
      addScaled(lineOf(stored[chunk.region].keys, chunk.lines[t], operands.keyDim), scores.scale * ds, query);
    }
  }

  void addSink(int64_t row, int64_t head) {
    const double logit = operands.sinks[head], lse = lseOf(row, head);
    if (logit == -kInfinity || lse == -kInfinity)
      return;
    const double common = lseGradientOf(row, head) - mma(outputGradientOf(row, head), outputOf(row, head));
    sinks.as<double>()[head] += std::exp(logit - lse) * common;
  }

  /// Sums the terms of all KV heads for a table.
  rt::Tensor sumOf(unsigned argument, const Table &table) const {
    rt::Tensor sum(rt::DType::F64, table.shape);
    for (const ScoreGradient::TableGradients &of : tables)
      if (auto found = of.find(argument); found != of.end())
        addScaled(sum.as<double>(), 1, found->second);
    return sum;
  }

  static std::span<double> lineOf(rt::Tensor &tensor, int64_t line, int64_t dim) {
    return tensor.as<double>().subspan(line * dim, dim);
  }
  std::span<const double> outputOf(int64_t row, int64_t head) const {
    return result.output.as<double>().subspan((row * operands.queryHeads + head) * operands.valueDim,
                                              operands.valueDim);
  }
  std::span<const double> outputGradientOf(int64_t row, int64_t head) const {
    return std::span(outputGradient)
        .subspan((row * operands.queryHeads + head) * operands.valueDim, operands.valueDim);
  }
  double lseOf(int64_t row, int64_t head) const {
    return result.lse.as<double>()[row * operands.queryHeads + head];
  }
  double lseGradientOf(int64_t row, int64_t head) const {
    return lseGradient.empty() ? 0 : lseGradient[row * operands.queryHeads + head];
  }

  struct Stored {
    rt::Tensor keys, values;
  };
  const Operands &operands;
  const ReferenceResult &result;
  std::vector<double> outputGradient, lseGradient;
  const Scores scores;
  const ScoreGradient ofScore;
  rt::Tensor queries, sinks;
  std::vector<Stored> stored;                        ///< by region
  std::vector<ScoreGradient::TableGradients> tables; ///< by KV head
};

/// Checks the stores: paged and quantized stores are for serving, and training does not use them.
rt::Status checkDifferentiable(const Operands &operands) {
  for (const KVRegion &region : operands.regions) {
    if (region.store.isPaged())
      return rt::inputError("'" + region.name +
                            "': expected a dense or packed store, got a paged one, which has no gradients");
    if (region.store.isLatent())
      return rt::inputError("'" + region.name +
                            "': expected keys and values apart, got values that are a part "
                            "of their keys, which have no gradients");
    if (!region.store.keys.format.isPlain() || !region.store.values.format.isPlain())
      return rt::inputError(
          "'" + region.name +
          "': expected keys and values of 16 bits, got quantized ones, which have no gradients");
  }
  return {};
}

/// Returns the gradient of a result, if it is among the tensors.
rt::Result<const rt::Tensor *> findGradient(const rt::TensorMap &tensors, const std::string &name,
                                            const rt::Tensor &result) {
  auto it = tensors.find(name);
  if (it == tensors.end())
    return nullptr;
  const rt::Tensor &given = it->second;
  if (given.shape == result.shape && rt::isFloat(given.dtype))
    return &given;
  return rt::inputError("tensor '" + name + "': expected floats " + rt::shapeText(result.shape) + ", got " +
                        std::string(rt::dtypeName(given.dtype)) + rt::shapeText(given.shape));
}
} // namespace

rt::Result<rt::TensorMap> mlir::attn::evaluateGradients(func::FuncOp func, const rt::TensorMap &tensors,
                                                        unsigned threads) {
  rt::Result<Operands> operands = readOperands(func, tensors);
  if (operands && operands->attend.getGate())
    return rt::inputError("expected an attention without a gate, which has no gradients: multiply the output "
                          "by the gate's sigmoid afterwards");
  if (operands && (operands->outputScale || operands->attend.getOutputScales()))
    return rt::inputError("expected an attention whose output is not quantized, which has no gradients");
  if (!operands)
    return operands.error();
  if (rt::Status status = checkDifferentiable(*operands); !status)
    return status.error();
  rt::Result<ReferenceResult> result = evaluateReference(func, tensors, threads);
  if (!result)
    return result.error();
  rt::Result<const rt::Tensor *> output = findGradient(tensors, "do", result->output);
  if (!output)
    return output.error();
  rt::Result<const rt::Tensor *> lse = findGradient(tensors, "dlse", result->lse);
  if (!lse)
    return lse.error();
  if (!*output)
    return rt::inputError("tensor 'do' is missing");
  return Differentiator(operands->attend, *operands, *result, **output, *lse)
      .differentiate(std::max(1u, threads));
}
