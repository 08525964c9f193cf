//===- PlanTermsTest.cpp - Formulas of values are those of integers -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every formula of the planner is computed on integers, as the planner on the host does, and on constants of
// a kernel, which fold to the number that the kernel would compute.
//
//===----------------------------------------------------------------------===//
#include "AttnToTile/Kernel/ValueNumber.h"

#include "attn_rt/plan/PlanTerms.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

namespace {

using Range = rt::RangeOf<int64_t>;
using NumberRange = rt::RangeOf<ValueNumber>;
using Bounds = rt::PositionBounds<int64_t>;

class PlanTerms : public testing::Test {
protected:
  PlanTerms() {
    context.loadDialect<arith::ArithDialect, func::FuncDialect, tile::TileDialect>();
    OpBuilder builder(&context);
    module = ModuleOp::create(builder.getUnknownLoc());
    builder.setInsertionPointToEnd(module->getBody());
    kernel =
        func::FuncOp::create(builder, builder.getUnknownLoc(), "kernel", builder.getFunctionType({}, {}));
    kernel.addEntryBlock();
    b.emplace(kernel);
    b->setInsertionPointToEnd(&kernel.front());
  }

  int64_t below(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(random); }
  /// Returns a range that ends after its begin, at its begin or, like an empty intersection, before it.
  Range range(int64_t most) { return {below(most), below(most)}; }
  Range tokens(int64_t most) {
    const int64_t begin = below(most);
    return {begin, begin + (below(8) ? below(most) : 0)};
  }
  Bounds bounds(int64_t most) {
    Bounds found;
    if (below(4))
      found.begin = below(2 * most) - most;
    if (below(4))
      found.end = below(2 * most) - most;
    return found;
  }

  ValueNumber number(int64_t n) { return {*b, b->i32(n)}; }
  NumberRange number(Range range) { return {number(range.begin), number(range.end)}; }
  rt::PositionBounds<ValueNumber> number(const Bounds &bounds) {
    rt::PositionBounds<ValueNumber> numbers;
    if (bounds.begin)
      numbers.begin = number(*bounds.begin);
    if (bounds.end)
      numbers.end = number(*bounds.end);
    return numbers;
  }

  /// Returns the constant to which a value has folded.
  static int64_t valueOf(Value value) {
    APInt constant;
    EXPECT_TRUE(matchPattern(value, m_ConstantInt(&constant)));
    return value.getType().isInteger(1) ? constant.getZExtValue() : constant.getSExtValue();
  }
  static void compare(int64_t expected, const ValueNumber &found) { EXPECT_EQ(expected, valueOf(found)); }
  static void compare(const Range &expected, const NumberRange &found) {
    compare(expected.begin, found.begin);
    compare(expected.end, found.end);
  }
  static void compare(const Bounds &expected, const rt::PositionBounds<ValueNumber> &found) {
    ASSERT_EQ(expected.begin.has_value(), found.begin.has_value());
    ASSERT_EQ(expected.end.has_value(), found.end.has_value());
    if (expected.begin)
      compare(*expected.begin, *found.begin);
    if (expected.end)
      compare(*expected.end, *found.end);
  }

  /// Compares a formula of these numbers and ranges on both sides.
  template <typename Formula, typename... Numbers>
  void expectSame(Formula formula, const Numbers &...numbers) {
    compare(formula(numbers...), formula(number(numbers)...));
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp kernel;
  std::optional<KernelBuilder> b;
  std::mt19937_64 random{5};
};

#define FORMULA(formula) [](auto... n) { return formula(n...); }

TEST_F(PlanTerms, OfTokenRanges) {
  for (int round = 0; round < 2000 && !HasFailure(); ++round) {
    const int64_t most = 1 + below(round % 2 ? 40 : 5000), pos0 = below(most), length = below(most);
    expectSame(FORMULA(rt::positionOf), below(most), below(most), pos0 + length);
    const Bounds lower = bounds(most),
                 upper{lower.begin, lower.end ? std::optional(below(most)) : std::nullopt}; // of a term
    expectSame(FORMULA(rt::rangeOfRows), lower, upper);
    expectSame(FORMULA(rt::rangeOfRows), range(most), range(most));
    expectSame(FORMULA(rt::commonOf), bounds(most), bounds(most));
    expectSame(FORMULA(rt::tokensOf), bounds(most), pos0, length);
    expectSame(FORMULA(rt::tokensOf), range(most), pos0, length);
    expectSame(FORMULA(rt::commonOf), range(most), range(most));
    expectSame(FORMULA(rt::touches), range(most), range(most));
    expectSame(FORMULA(rt::joined), range(most), range(most));
    expectSame(FORMULA(rt::overlaps), range(most), range(most));
    expectSame(FORMULA(rt::fullOf), range(most), range(most), range(most));
    expectSame(FORMULA(rt::fullWithin), range(most), range(most));
    expectSame(FORMULA(rt::listOfHead), below(most), 1 + below(8), below(8));
    const int64_t align = 1 + below(64);
    expectSame([&](auto range) { return rt::alignedTo(align, range); }, tokens(most));
  }
}

TEST_F(PlanTerms, OfRowsAndTiles) {
  for (int round = 0; round < 2000 && !HasFailure(); ++round) {
    const int64_t group = 1 + below(12), tileRows = 1 + below(128), keys = int64_t{16} << below(4);
    const int64_t rows = 1 + below(round % 2 ? 20 : 4000), packed = below(rows * group), heads = group * 8;
    expectSame([&](auto rows, auto tile) { return rt::tilesOfRows(rows, group, tile); }, rows, tileRows);
    expectSame([&](auto packed, auto rows, auto tile) { return rt::packedInTile(packed, rows, group, tile); },
               packed, rows, tileRows);
    expectSame([&](auto packed) { return rt::rowOf(packed, group); }, packed);
    expectSame([&](auto packed, auto count) { return rt::rowEndOf(packed, count, group); }, packed,
               1 + below(tileRows));
    expectSame(
        [&](auto row, auto head, auto member) { return rt::outputOf(row, head, member, heads, group); },
        below(rows), below(8), below(group));
    const int64_t most = 1 + below(4000), first = below(20), begin = below(40);
    expectSame(FORMULA(rt::tilesOf), tokens(most), keys);
    expectSame(FORMULA(rt::tokensOfTiles), tokens(most), first, begin, begin + below(40), keys);
  }
}

TEST_F(PlanTerms, OfCutsAndCosts) {
  for (int round = 0; round < 2000 && !HasFailure(); ++round) {
    const int64_t keys = int64_t{16} << below(4), chunk = keys * (1 + below(6)), most = 1 + below(4000);
    const int64_t origin = rt::chunkOrigin(below(most) - most / 4);
    expectSame(FORMULA(rt::chunkOrigin), below(2 * most) - most);
    expectSame(FORMULA(rt::chunkOfToken), origin, below(most), chunk);
    expectSame(FORMULA(rt::cutsInside), tokens(most), origin, chunk);
    expectSame(FORMULA(rt::tileOfCut), tokens(most), origin, 1 + below(20), chunk, keys);
    const int64_t tiles = below(5000), overhead = 1 + below(100), shares = 1 + below(300);
    expectSame(FORMULA(rt::costOfTask), overhead, tiles);
    expectSame(FORMULA(rt::tilesOfCost), overhead + below(50000), overhead);
    expectSame(FORMULA(rt::mostShares), shares, tiles, 1 + below(9));
    expectSame(FORMULA(rt::equalShare), below(1 << 20), shares);
    expectSame(FORMULA(rt::scoreTasksOf), below(9000));
    expectSame(FORMULA(rt::scoreTaskEnd), below(9) * rt::scoreTaskTokens, below(9000));
    expectSame(FORMULA(rt::scoreWordsOf), below(9000), 1 + below(12));
    expectSame(FORMULA(rt::tilesBound), below(9000), 1 + below(128), below(300));
    expectSame(FORMULA(rt::cutRowsBound), shares, 1 + below(128), below(9000));
    const int64_t page = round % 2 ? int64_t{1} << below(9) : 16 * (1 + below(128));
    const rt::Store store{.kind = rt::StoreKind::Paged, .page = page};
    expectSame([&](auto token) { return store.entryOf(token); }, below(9000));
    expectSame([&](auto tokens) { return store.entriesOf(tokens); }, 1 + below(9000));
    expectSame([&](auto entries) { return store.tokensOf(entries); }, below(300));
  }
}

// A multiplication and a shift equal a division, for every legal divisor.
TEST_F(PlanTerms, OfDivisors) {
  for (int round = 0; round < 20000 && !HasFailure(); ++round) {
    const auto n = static_cast<int32_t>(1 + below(int64_t{1} << (1 + below(30))));
    const auto x = static_cast<int32_t>(below(round % 3 ? int64_t{1} << 31 : 2 * int64_t{n}));
    const rt::PlanDivisor divisor = rt::PlanDivisor::of(n);
    ASSERT_EQ(divisor.number, n);
    ASSERT_EQ(rt::quotientBy(x, divisor.factor, divisor.shift), x / n) << x << " / " << n;
    compare(x / n, rt::quotientBy(number(x), number(divisor.factor), number(divisor.shift)));
  }
}

// A dimension of the planning kernel that is a divisor becomes a parameter.
TEST_F(PlanTerms, DivideByDimensions) {
  ValueNumber quotient = number(7) / ValueDivisor(*b, rt::PlanDim::Keys);
  EXPECT_EQ(kernel.getNumArguments(), 2u); // the factor and the shift
  EXPECT_FALSE(matchPattern(Value(quotient), m_Constant()));
  ValueNumber rest = number(7) % ValueDivisor(*b, rt::PlanDim::Keys);
  EXPECT_EQ(kernel.getNumArguments(), 3u); // and the number
  EXPECT_FALSE(matchPattern(Value(rest), m_Constant()));
}

// Offsets of arrays in scratch memory, and its size.
TEST_F(PlanTerms, OfScratchMemory) {
  const rt::PlanScratchSizes<int64_t> sizes{5, 2, 11, 17, 23};
  rt::PlanScratchOf<int64_t> arrays;
  rt::PlanScratchOf<ValueNumber> values;
  std::vector<int64_t> here, there;
  sizes.forEach(arrays, [&](int64_t &, int64_t words) { here.push_back(words); });
  rt::PlanScratchSizes<ValueNumber>{number(5), number(2), number(11), number(17), number(23)}.forEach(
      values, [&](ValueNumber &, ValueNumber words) { there.push_back(valueOf(words)); });
  EXPECT_EQ(here, there);
  EXPECT_EQ(here.size(), sizeof(arrays) / sizeof(int64_t));
}

} // namespace
