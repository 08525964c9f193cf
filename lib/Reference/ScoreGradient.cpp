//===- ScoreGradient.cpp - The derivative of a score region ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScoreGradient.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <numbers>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

namespace {
/// Partial derivatives by the operands a, b and c of an operation with result r.
using Partials = std::array<double, 3>;
using PartialsFunction = Partials (*)(double, double, double, double);

double signOf(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
/// Returns the chosen operand of a maximum or minimum: the first one if both are equal, or both are NaN.
Partials chosen(double a, double r) { return a == r || std::isnan(a) ? Partials{1, 0} : Partials{0, 1}; }

/// Returns the derivatives of an operation; null if it passes no gradients on.
PartialsFunction partialsOf(Operation &op) {
#define ATTN_PARTIALS(OP, ...)                                                                               \
  Case([](OP) -> PartialsFunction {                                                                          \
    return [](double a, [[maybe_unused]] double b, [[maybe_unused]] double c,                                \
              [[maybe_unused]] double r) -> Partials { return __VA_ARGS__; };                                \
  })
  return llvm::TypeSwitch<Operation *, PartialsFunction>(&op)
      .ATTN_PARTIALS(arith::AddFOp, {1, 1})
      .ATTN_PARTIALS(arith::SubFOp, {1, -1})
      .ATTN_PARTIALS(arith::MulFOp, {b, a})
      .ATTN_PARTIALS(arith::DivFOp, {1 / b, -r / b})
      .ATTN_PARTIALS(arith::NegFOp, {-1})
      .ATTN_PARTIALS(arith::MaximumFOp, chosen(a, r))
      .ATTN_PARTIALS(arith::MinimumFOp, chosen(a, r))
      .ATTN_PARTIALS(arith::MaxNumFOp, chosen(a, r))
      .ATTN_PARTIALS(arith::MinNumFOp, chosen(a, r))
      .ATTN_PARTIALS(math::TanhOp, {1 - r * r})
      .ATTN_PARTIALS(math::ExpOp, {r})
      .ATTN_PARTIALS(math::Exp2Op, {r * std::numbers::ln2})
      .ATTN_PARTIALS(math::LogOp, {1 / a})
      .ATTN_PARTIALS(math::Log2Op, {1 / (a * std::numbers::ln2)})
      .ATTN_PARTIALS(math::AbsFOp, {signOf(a)})
      .ATTN_PARTIALS(math::SqrtOp, {1 / (2 * r)})
      .ATTN_PARTIALS(math::FmaOp, {b, a, 1})
      .Default(PartialsFunction(nullptr));
#undef ATTN_PARTIALS
}
} // namespace

ScoreGradient::ScoreGradient(mlir::Region &region, const ScoreProgram &program) : program(program) {
  if (region.empty())
    return;
  for (Operation &op : llvm::reverse(region.front().without_terminator()))
    if (Step step = differentiate(op))
      steps.push_back(std::move(step));
}

void ScoreGradient::run(const Operands &operands, const ScoreProgram::Lanes &lanes, Adjoints &adjoints,
                        std::span<double> gradients, TableGradients &tables) const {
  adjoints.resize(program.floatCount);
  for (auto &adjoint : adjoints)
    adjoint.fill(0);
  std::copy(gradients.begin(), gradients.end(), adjoints[program.yielded].begin());
  for (const Step &step : steps)
    step({operands, lanes, adjoints, tables});
  std::copy_n(adjoints[program.score].begin(), gradients.size(), gradients.begin());
}

ScoreGradient::Step ScoreGradient::differentiate(Operation &op) const {
  if (auto read = dyn_cast<ReadOp>(op))
    return differentiateRead(read);
  if (isa<arith::SelectOp>(op) && op.getResult(0).getType().isF32())
    return differentiateSelect(op);
  PartialsFunction partials = partialsOf(op);
  if (!partials)
    return nullptr;
  const unsigned count = op.getNumOperands(), result = numberOf(op.getResult(0));
  std::array<unsigned, 3> places;
  for (unsigned i = 0; i < 3; ++i)
    places[i] = numberOf(op.getOperand(std::min(i, count - 1)));
  return [=](const Pass &pass) {
    const auto &floats = pass.lanes.floats;
    for (int64_t i = 0; i < pass.lanes.count; ++i) {
      const double adjoint = pass.adjoints[result][i];
      if (adjoint == 0)
        continue;
      const Partials by =
          partials(floats[places[0]][i], floats[places[1]][i], floats[places[2]][i], floats[result][i]);
      for (unsigned operand = 0; operand < count; ++operand)
        if (by[operand] != 0)
          pass.adjoints[places[operand]][i] += adjoint * by[operand];
    }
  };
}

ScoreGradient::Step ScoreGradient::differentiateSelect(Operation &select) const {
  unsigned condition = numberOf(select.getOperand(0)), result = numberOf(select.getResult(0));
  unsigned chosen = numberOf(select.getOperand(1)), other = numberOf(select.getOperand(2));
  return [=](const Pass &pass) {
    for (int64_t i = 0; i < pass.lanes.count; ++i)
      pass.adjoints[pass.lanes.integers[condition][i] ? chosen : other][i] += pass.adjoints[result][i];
  };
}

ScoreGradient::Step ScoreGradient::differentiateRead(ReadOp read) const {
  unsigned argument = cast<BlockArgument>(read.getTensor()).getArgNumber();
  SmallVector<unsigned> indices;
  for (Value index : read.getIndices())
    indices.push_back(numberOf(index));
  return [=, result = numberOf(read.getElement())](const Pass &pass) {
    const Table &table = pass.operands.tables.at(argument);
    std::vector<double> &gradients = pass.tables[argument];
    gradients.resize(table.numbers.size());
    for (int64_t i = 0; i < pass.lanes.count; ++i)
      gradients[ScoreProgram::offsetOf(table, indices, pass.lanes, i)] += pass.adjoints[result][i];
  };
}
