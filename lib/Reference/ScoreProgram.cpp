//===- ScoreProgram.cpp - A score region as a list of loops ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScoreProgram.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <limits>

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
/// result[i] = function(arrays[i]...) for every token.
template <typename Function, typename Result, typename... Arrays>
void forEach(int64_t count, Function function, Result &result, const Arrays &...arrays) {
  for (int64_t i = 0; i < count; ++i)
    result[i] = function(arrays[i]...);
}

double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }

int32_t toInteger(double value) {
  if (std::isnan(value))
    return 0;
  return int32_t(std::clamp(std::trunc(value), -2147483648.0, 2147483647.0));
}

bool compare(arith::CmpFPredicate predicate, double a, double b) {
  using P = arith::CmpFPredicate;
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (predicate) {
  case P::AlwaysFalse:
    return false;
  case P::OEQ:
    return a == b;
  case P::OGT:
    return a > b;
  case P::OGE:
    return a >= b;
  case P::OLT:
    return a < b;
  case P::OLE:
    return a <= b;
  case P::ONE:
    return !unordered && a != b;
  case P::ORD:
    return !unordered;
  case P::UEQ:
    return unordered || a == b;
  case P::UGT:
    return unordered || a > b;
  case P::UGE:
    return unordered || a >= b;
  case P::ULT:
    return unordered || a < b;
  case P::ULE:
    return unordered || a <= b;
  case P::UNE:
    return unordered || a != b;
  case P::UNO:
    return unordered;
  case P::AlwaysTrue:
    return true;
  }
  llvm_unreachable("unknown predicate");
}

bool compare(arith::CmpIPredicate predicate, int32_t a, int32_t b) {
  using P = arith::CmpIPredicate;
  switch (predicate) {
  case P::eq:
    return a == b;
  case P::ne:
    return a != b;
  case P::slt:
    return a < b;
  case P::sle:
    return a <= b;
  case P::sgt:
    return a > b;
  case P::sge:
    return a >= b;
  case P::ult:
    return uint32_t(a) < uint32_t(b);
  case P::ule:
    return uint32_t(a) <= uint32_t(b);
  case P::ugt:
    return uint32_t(a) > uint32_t(b);
  case P::uge:
    return uint32_t(a) >= uint32_t(b);
  }
  llvm_unreachable("unknown predicate");
}

using FloatFunction = double (*)(double, double, double);

/// The meaning of an operation from floats to a float, on as many operands as it has; null for another.
FloatFunction floatFunction(Operation &op) {
#define ATTN_FLOAT(OP, EXPRESSION)                                                                           \
  Case([](OP) -> FloatFunction {                                                                             \
    return                                                                                                   \
        [](double a, [[maybe_unused]] double b, [[maybe_unused]] double c) -> double { return EXPRESSION; }; \
  })
  return llvm::TypeSwitch<Operation *, FloatFunction>(&op)
      .ATTN_FLOAT(arith::AddFOp, a + b)
      .ATTN_FLOAT(arith::SubFOp, a - b)
      .ATTN_FLOAT(arith::MulFOp, a * b)
      .ATTN_FLOAT(arith::DivFOp, a / b)
      .ATTN_FLOAT(arith::NegFOp, -a)
      .ATTN_FLOAT(arith::MaximumFOp, maximum(a, b))
      .ATTN_FLOAT(arith::MinimumFOp, minimum(a, b))
      .ATTN_FLOAT(arith::MaxNumFOp, std::fmax(a, b))
      .ATTN_FLOAT(arith::MinNumFOp, std::fmin(a, b))
      .ATTN_FLOAT(math::TanhOp, std::tanh(a))
      .ATTN_FLOAT(math::ExpOp, std::exp(a))
      .ATTN_FLOAT(math::Exp2Op, std::exp2(a))
      .ATTN_FLOAT(math::LogOp, std::log(a))
      .ATTN_FLOAT(math::Log2Op, std::log2(a))
      .ATTN_FLOAT(math::AbsFOp, std::fabs(a))
      .ATTN_FLOAT(math::SqrtOp, std::sqrt(a))
      .ATTN_FLOAT(math::FmaOp, a * b + c)
      .Default(FloatFunction(nullptr));
#undef ATTN_FLOAT
}

using IntegerFunction = int32_t (*)(int32_t, int32_t);

/// The meaning of an operation on two i32 that wraps as they do; null for another.
IntegerFunction integerFunction(Operation &op) {
#define ATTN_INTEGER(OP, EXPRESSION)                                                                         \
  Case([](OP) -> IntegerFunction { return [](int32_t a, int32_t b) -> int32_t { return EXPRESSION; }; })
  return llvm::TypeSwitch<Operation *, IntegerFunction>(&op)
      .ATTN_INTEGER(arith::AddIOp, int32_t(uint32_t(a) + uint32_t(b)))
      .ATTN_INTEGER(arith::SubIOp, int32_t(uint32_t(a) - uint32_t(b)))
      .ATTN_INTEGER(arith::MulIOp, int32_t(uint32_t(a) * uint32_t(b)))
      .ATTN_INTEGER(arith::DivSIOp, a / b)
      .ATTN_INTEGER(arith::DivUIOp, int32_t(uint32_t(a) / uint32_t(b)))
      .ATTN_INTEGER(arith::RemSIOp, a % b)
      .ATTN_INTEGER(arith::RemUIOp, int32_t(uint32_t(a) % uint32_t(b)))
      .ATTN_INTEGER(arith::ShLIOp, int32_t(uint32_t(a) << b))
      .ATTN_INTEGER(arith::ShRSIOp, a >> b)
      .ATTN_INTEGER(arith::ShRUIOp, int32_t(uint32_t(a) >> b))
      .ATTN_INTEGER(arith::AndIOp, a & b)
      .ATTN_INTEGER(arith::OrIOp, a | b)
      .ATTN_INTEGER(arith::XOrIOp, a ^ b)
      .ATTN_INTEGER(arith::MaxSIOp, std::max(a, b))
      .ATTN_INTEGER(arith::MinSIOp, std::min(a, b))
      .ATTN_INTEGER(arith::MaxUIOp, int32_t(std::max(uint32_t(a), uint32_t(b))))
      .ATTN_INTEGER(arith::MinUIOp, int32_t(std::min(uint32_t(a), uint32_t(b))))
      .ATTN_INTEGER(arith::ExtSIOp, -a)
      .ATTN_INTEGER(arith::ExtUIOp, a)
      .ATTN_INTEGER(arith::TruncIOp, a & 1)
      .Default(IntegerFunction(nullptr));
#undef ATTN_INTEGER
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
