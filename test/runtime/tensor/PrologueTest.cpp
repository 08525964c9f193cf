//===- PrologueTest.cpp - Norm and rotation of a head of a row ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Prologue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

using namespace attn::rt;

namespace {

std::vector<float> numbers(size_t count, double seed) {
  std::vector<float> made(count);
  for (size_t i = 0; i < count; ++i)
    made[i] = static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i * i)));
  return made;
}

TEST(Prologue, NormsAreThoseOfFloat64) {
  for (const size_t dim : {8, 24, 64, 80, 96, 128, 192, 248, 256})
    for (const double factor : {1e-6, 1.0, 3e4}) {
      std::vector<float> row = numbers(dim, static_cast<double>(dim)), weight = numbers(dim, 3);
      double sum = 0;
      for (float &x : row) {
        x *= static_cast<float>(factor);
        sum += double{x} * x;
      }
      const std::vector<float> given = row;
      normalizeRow(row, weight, 1e-5F);
      const double root = 1 / std::sqrt(sum / static_cast<double>(dim) + double{1e-5F});
      for (size_t i = 0; i < dim; ++i)
        EXPECT_NEAR(row[i], given[i] * root * weight[i],
                    1e-6 * std::abs(given[i] * root * weight[i]) + 1e-30);
    }
}

TEST(Prologue, OnlyFeaturesWithWeightsAreNormalized) {
  for (const auto &[dim, normal] : {std::pair<size_t, size_t>{48, 32}, {576, 512}, {512, 512}, {288, 256}}) {
    std::vector<float> row = numbers(dim, 2);
    const std::vector<float> given = row, weight = numbers(normal, 3);
    double sum = 0;
    for (size_t i = 0; i < normal; ++i)
      sum += double{row[i]} * row[i];
    normalizeRow(row, weight, 1e-6F);
    const double root = 1 / std::sqrt(sum / static_cast<double>(normal) + double{1e-6F});
    for (size_t i = 0; i < normal; ++i)
      EXPECT_NEAR(row[i], given[i] * root * weight[i], 1e-6 * std::abs(given[i] * root * weight[i]) + 1e-30);
    for (size_t i = normal; i < dim; ++i)
      EXPECT_EQ(row[i], given[i]);
  }
}

TEST(Prologue, ZerosStayZeros) {
  std::vector<float> row(64), weight(64, 1);
  normalizeRow(row, weight, 0);
  EXPECT_EQ(row, std::vector<float>(64));
}

TEST(Prologue, PairsOfTheFirstFeaturesTurn) {
  for (const bool interleaved : {false, true}) {
    std::vector<float> row = numbers(16, 1), cos(3), sin(3);
    const std::vector<float> given = row;
    for (size_t i = 0; i < 3; ++i)
      cos[i] = static_cast<float>(std::cos(0.3 + double(i))),
      sin[i] = static_cast<float>(std::sin(0.3 + double(i)));
    rotateRow(row, cos, sin, interleaved);
    for (size_t i = 0; i < 3; ++i) {
      const size_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + 3;
      EXPECT_NEAR(row[a], given[a] * cos[i] - given[b] * sin[i], 1e-6);
      EXPECT_NEAR(row[b], given[b] * cos[i] + given[a] * sin[i], 1e-6);
    }
    for (size_t i = 6; i < 16; ++i)
      EXPECT_EQ(row[i], given[i]);
  }
}

} // namespace
