//===- ScoreProgram.cpp - A score region as a list of loops ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScoreProgram.h"

#include "ScoreFunctions.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

ScoreProgram::ScoreProgram(mlir::Region &region, const Operands &operands) {
  if (region.empty())
    return;
  Block &block = region.front();
  score = floatOf(block.getArgument(0));
  head = integerOf(block.getArgument(1));
  queryPosition = integerOf(block.getArgument(2));
  keyPosition = integerOf(block.getArgument(3));
  for (Operation &op : block.without_terminator())
    if (!isa<arith::ConstantOp>(op))
      steps.push_back(compile(op, operands));
  yielded = floatOf(cast<YieldOp>(block.getTerminator()).getScore());
  // A region of constants alone still replaces the score.
  steps.push_back([](Lanes &) {});
}

ScoreProgram::Lanes ScoreProgram::makeLanes() const {
  Lanes lanes;
  lanes.floats.resize(floatCount);
  lanes.integers.resize(integerCount);
  for (auto [number, value] : floatConstants)
    lanes.floats[number].fill(value);
  for (auto [number, value] : integerConstants)
    lanes.integers[number].fill(value);
  return lanes;
}

void ScoreProgram::run(Lanes &lanes, std::span<double> scores, int32_t headIndex, int32_t position,
                       std::span<const int32_t> keyPositions) const {
  lanes.count = int64_t(scores.size());
  std::copy(scores.begin(), scores.end(), lanes.floats[score].begin());
  std::copy(keyPositions.begin(), keyPositions.end(), lanes.integers[keyPosition].begin());
  lanes.integers[head].fill(headIndex);
  lanes.integers[queryPosition].fill(position);
  for (const Step &step : steps)
    step(lanes);
  std::copy_n(lanes.floats[yielded].begin(), scores.size(), scores.begin());
}

unsigned ScoreProgram::floatOf(Value value) {
  auto [it, inserted] = numbers.try_emplace(value, floatCount);
  if (inserted) {
    FloatAttr constant;
    if (matchPattern(value, m_Constant(&constant)))
      floatConstants.emplace_back(floatCount, constant.getValueAsDouble());
    ++floatCount;
  }
  return it->second;
}

unsigned ScoreProgram::integerOf(Value value) {
  auto [it, inserted] = numbers.try_emplace(value, integerCount);
  if (inserted) {
    APInt constant;
    if (matchPattern(value, m_ConstantInt(&constant)))
      integerConstants.emplace_back(integerCount, value.getType().isInteger(1)
                                                      ? int32_t(constant.getZExtValue())
                                                      : int32_t(constant.getSExtValue()));
    ++integerCount;
  }
  return it->second;
}

namespace {
/// Computes result[i] = function(arrays[i]...) for every token.
template <typename Function, typename Result, typename... Arrays>
void forEach(int64_t count, Function function, Result &result, const Arrays &...arrays) {
  for (int64_t i = 0; i < count; ++i)
    result[i] = function(arrays[i]...);
}
} // namespace

ScoreProgram::Step ScoreProgram::compileFloat(Operation &op) {
  FloatFunction function = floatFunction(op);
  unsigned operands[3];
  for (unsigned i = 0; i < 3; ++i)
    operands[i] = floatOf(op.getOperand(std::min(i, op.getNumOperands() - 1)));
  unsigned result = floatOf(op.getResult(0));
  return [=, a = operands[0], b = operands[1], c = operands[2]](Lanes &lanes) {
    forEach(lanes.count, function, lanes.floats[result], lanes.floats[a], lanes.floats[b], lanes.floats[c]);
  };
}

ScoreProgram::Step ScoreProgram::compileInteger(Operation &op) {
  IntegerFunction function = integerFunction(op);
  unsigned a = integerOf(op.getOperand(0)), b = integerOf(op.getOperand(op.getNumOperands() - 1));
  unsigned result = integerOf(op.getResult(0));
  return [=](Lanes &lanes) {
    forEach(lanes.count, function, lanes.integers[result], lanes.integers[a], lanes.integers[b]);
  };
}

int64_t ScoreProgram::offsetOf(const Table &table, ArrayRef<unsigned> indices, const Lanes &lanes,
                               int64_t i) {
  int64_t offset = 0;
  for (auto [dim, index] : llvm::enumerate(indices))
    offset =
        offset * table.shape[dim] + std::clamp<int64_t>(lanes.integers[index][i], 0, table.shape[dim] - 1);
  return offset;
}

ScoreProgram::Step ScoreProgram::compileRead(ReadOp read, const Operands &operands) {
  const Table *table = &operands.tables.at(cast<BlockArgument>(read.getTensor()).getArgNumber());
  SmallVector<unsigned> indices;
  for (Value index : read.getIndices())
    indices.push_back(integerOf(index));
  unsigned result = floatOf(read.getElement());
  return [=](Lanes &lanes) {
    for (int64_t i = 0; i < lanes.count; ++i)
      lanes.floats[result][i] = table->numbers[offsetOf(*table, indices, lanes, i)];
  };
}

ScoreProgram::Step ScoreProgram::compile(Operation &op, const Operands &operands) {
  if (floatFunction(op))
    return compileFloat(op);
  if (integerFunction(op))
    return compileInteger(op);
  return llvm::TypeSwitch<Operation *, Step>(&op)
      .Case([&](ReadOp read) { return compileRead(read, operands); })
      .Case([&](arith::CmpFOp op) -> Step {
        unsigned a = floatOf(op.getLhs()), b = floatOf(op.getRhs()), result = integerOf(op.getResult());
        return [=, predicate = op.getPredicate()](Lanes &lanes) {
          auto function = [&](double x, double y) { return compare(predicate, x, y); };
          forEach(lanes.count, function, lanes.integers[result], lanes.floats[a], lanes.floats[b]);
        };
      })
      .Case([&](arith::CmpIOp op) -> Step {
        unsigned a = integerOf(op.getLhs()), b = integerOf(op.getRhs()), result = integerOf(op.getResult());
        return [=, predicate = op.getPredicate()](Lanes &lanes) {
          auto function = [&](int32_t x, int32_t y) { return compare(predicate, x, y); };
          forEach(lanes.count, function, lanes.integers[result], lanes.integers[a], lanes.integers[b]);
        };
      })
      .Case([&](arith::SelectOp op) -> Step {
        auto choose = [](bool condition, auto x, auto y) { return condition ? x : y; };
        unsigned condition = integerOf(op.getCondition());
        if (op.getType().isF32()) {
          unsigned a = floatOf(op.getTrueValue()), b = floatOf(op.getFalseValue()),
                   result = floatOf(op.getResult());
          return [=](Lanes &lanes) {
            forEach(lanes.count, choose, lanes.floats[result], lanes.integers[condition], lanes.floats[a],
                    lanes.floats[b]);
          };
        }
        unsigned a = integerOf(op.getTrueValue()), b = integerOf(op.getFalseValue());
        unsigned result = integerOf(op.getResult());
        return [=](Lanes &lanes) {
          forEach(lanes.count, choose, lanes.integers[result], lanes.integers[condition], lanes.integers[a],
                  lanes.integers[b]);
        };
      })
      .Case<arith::SIToFPOp, arith::UIToFPOp>([&](auto op) -> Step {
        unsigned a = integerOf(op.getIn()), result = floatOf(op.getOut());
        bool isSigned = isa<arith::SIToFPOp>(op);
        return [=](Lanes &lanes) {
          auto function = [&](int32_t x) { return isSigned ? double(x) : double(uint32_t(x)); };
          forEach(lanes.count, function, lanes.floats[result], lanes.integers[a]);
        };
      })
      .Case([&](arith::FPToSIOp op) -> Step {
        unsigned a = floatOf(op.getIn()), result = integerOf(op.getOut());
        return
            [=](Lanes &lanes) { forEach(lanes.count, toInteger, lanes.integers[result], lanes.floats[a]); };
      })
      .DefaultUnreachable("the verifier admits no other operation");
}
