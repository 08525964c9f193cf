//===- CheckTest.cpp - The error metrics ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "run/report/Check.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace attn;
using namespace attn::run;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

rt::Tensor rows(std::vector<double> values, int64_t dim = 2) {
  int64_t count = static_cast<int64_t>(values.size()) / dim;
  return rt::Tensor::ofDoubles(rt::DType::F64, {count, 1, dim}, values);
}

double error(std::vector<double> got, std::vector<double> expected) {
  auto result = compare(rows(got), nullptr, rows(expected), nullptr);
  return result ? result->relErr : -1;
}

double lseError(std::vector<double> got, std::vector<double> expected) {
  int64_t count = static_cast<int64_t>(got.size());
  auto o = rt::Tensor(rt::DType::F64, {count, 1, 1});
  auto a = rt::Tensor::ofDoubles(rt::DType::F64, {count, 1}, got);
  auto b = rt::Tensor::ofDoubles(rt::DType::F64, {count, 1}, expected);
  auto result = compare(o, &a, o, &b);
  return result ? *result->maxErrLse : -1;
}

TEST(Check, IsTheWorstRowNotTheMean) {
  EXPECT_DOUBLE_EQ(error({3, 4, 100, 0}, {3, 4.5, 100, 0}), 0.5 / std::sqrt(29.25));
  EXPECT_DOUBLE_EQ(error({1, 2}, {1, 2}), 0);
}

TEST(Check, ZeroMustBeExactlyZero) {
  EXPECT_EQ(error({0, 0}, {0, 0}), 0);
  EXPECT_EQ(error({-0.0, 0}, {0, 0}), 0);
  EXPECT_EQ(error({1e-30, 0}, {0, 0}), inf);
}

TEST(Check, NaNNeverPasses) {
  EXPECT_EQ(error({nan, 1}, {1, 1}), inf);
  EXPECT_EQ(error({nan, 1}, {nan, 1}), inf);
  EXPECT_EQ(lseError({nan}, {-inf}), inf);
}

TEST(Check, EqualInfinitiesDifferByZero) {
  EXPECT_EQ(error({inf, 1}, {inf, 1}), 0);
  EXPECT_EQ(error({-inf, 1}, {inf, 1}), inf);
  EXPECT_EQ(lseError({-inf, 1}, {-inf, 1.5}), 0.5);
  EXPECT_EQ(lseError({-1e30}, {-inf}), inf);
}

// The second vector's own distance is 0.1, and the mean is 0.05.
TEST(Check, WhatTheInputsMoveIsNoErrorOfGradients) {
  const rt::Tensor reference = rows({3, 4, 0, 5}), moved = rows({3, 4, 0, 5.1});
  const auto error = [&](std::vector<double> got, const rt::Tensor *moved) {
    auto result = compareGradient(rows(std::move(got)), reference, moved);
    return result ? result->relErr : -1;
  };
  EXPECT_NEAR(error({3, 4, 0, 4.9}, nullptr), 0.02, 1e-12);
  EXPECT_NEAR(error({3, 4, 0, 4.9}, &moved), 0, 1e-12);
  EXPECT_NEAR(error({3, 4, 0, 4.8}, &moved), 0.02, 1e-12);
  EXPECT_NEAR(error({3, 4.1, 0, 5}, &moved), 0.01, 1e-12);
}

TEST(Check, ScalesHaveARelativeError) {
  auto worst = [](std::vector<double> got, std::vector<double> expected) {
    const int64_t rows = static_cast<int64_t>(got.size()) / 2;
    return compareScales(rt::Tensor::ofDoubles(rt::DType::F32, {rows, 2}, got),
                         rt::Tensor::ofDoubles(rt::DType::F64, {rows, 2}, expected), 0.25);
  };
  EXPECT_EQ(worst({1, 2, 5, 8}, {1, 2, 4, 8}), "");
  EXPECT_EQ(worst({1, 2, 3, 6}, {1, 2, 4, 4}), "row 1, head 1: expected 4, got 6");
  EXPECT_EQ(worst({1, nan}, {1, 1}), "row 0, head 1: expected 1, got nan");
  EXPECT_NE(worst({1, 1, 1, 1}, {1, 1}), "");
}

TEST(Check, ShapesMustAgree) { EXPECT_FALSE(compare(rows({1, 2}), nullptr, rows({1, 2, 3, 4}), nullptr)); }

} // namespace
