//===- ReferenceTest.cpp - The yardstick against hand-computed cases ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Queries and keys have one feature that is not zero, so that a score is a product of two numbers, and a
// value is its token's number in every feature. The expected results then fit on a line.
//
//===----------------------------------------------------------------------===//
#include "attn/Reference/Reference.h"

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

using namespace mlir;
using mlir::attn::ReferenceResult;
namespace rt = ::attn::rt;

namespace {

constexpr int64_t kDim = 32;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns a rows x heads (or tokens x heads) tensor whose first feature is value(row, head) and the others
/// `rest`.
template <typename Function>
rt::Tensor features(std::vector<int64_t> shape, Function value, bool everywhere,
                    rt::DType dtype = rt::DType::F16) {
  rt::Tensor tensor(dtype, shape);
  int64_t heads = shape[shape.size() - 2];
  for (int64_t i = 0; i < tensor.elements(); ++i)
    if (everywhere || i % kDim == 0)
      tensor.set(i, value(i / kDim / heads, i / kDim % heads));
  return tensor;
}

rt::Tensor ints(std::vector<int32_t> values) { return rt::Tensor::ofI32({int64_t(values.size())}, values); }

/// Returns the softmax-weighted mean of values, and the LSE, from pairs of score and value.
std::pair<double, double> softmax(std::vector<std::pair<double, double>> tokens) {
  double sum = 0, mean = 0;
  for (auto [score, value] : tokens) {
    sum += std::exp(score);
    mean += std::exp(score) * value;
  }
  return {sum ? mean / sum : 0, std::log(sum)};
}

class ReferenceTest : public ::testing::Test {
protected:
  ReferenceTest() {
    context.loadDialect<mlir::attn::AttnDialect, func::FuncDialect, arith::ArithDialect, math::MathDialect>();
  }

  func::FuncOp parse(const std::string &text) {
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module) << text;
    return *module->getOps<func::FuncOp>().begin();
  }

  /// Returns a function over one dense operand, scale 1, with optional extra arguments and clauses.
  func::FuncOp dense(int queryHeads, int keyHeads, const std::string &see, const std::string &clauses = "",
                     const std::string &arguments = "", const std::string &types = "") {
    std::string q = "tensor<?x" + std::to_string(queryHeads) + "x32xf16>";
    std::string kv =
        "!attn.kv<dense, heads = " + std::to_string(keyHeads) + ", dim = 32, key = f16, value = f16>";
    return parse("func.func @f(%q: " + q + " {attn.name = \"q\"}, %kv: " + kv + " {attn.name = \"kv\"}" +
                 arguments + ") -> " + q + " {\n  %o = attn.attend %q over (%kv see " + see + ") scale 1.0 " +
                 clauses + " : " + q + ", " + kv + types + " -> " + q + "\n  return %o : " + q + "\n}\n");
  }

  ReferenceResult evaluate(func::FuncOp func, unsigned threads = 2) {
    rt::Result<ReferenceResult> result = mlir::attn::evaluateReference(func, tensors, threads);
    EXPECT_TRUE(bool(result)) << (result ? "" : result.error().message);
    return result ? *result : ReferenceResult();
  }

  void expectError(func::FuncOp func, const std::string &message) {
    rt::Result<ReferenceResult> result = mlir::attn::evaluateReference(func, tensors);
    ASSERT_FALSE(bool(result));
    EXPECT_EQ(result.error().message, message);
  }

  void expectRow(const ReferenceResult &result, int64_t index, std::pair<double, double> expected) {
    for (int64_t d : {int64_t(0), kDim - 1})
      EXPECT_NEAR(result.output.get(index * kDim + d), expected.first, 1e-12) << "row and head " << index;
    double lse = result.lse.get(index);
    if (std::isinf(expected.second))
      EXPECT_EQ(lse, expected.second) << "row and head " << index;
    else
      EXPECT_NEAR(lse, expected.second, 1e-12) << "row and head " << index;
  }

  /// Makes one sequence of `tokens` tokens with scores q * k(t): k(t) = t / 4, v(t) = t.
  void oneSequence(int64_t tokens, std::vector<double> queries) {
    int64_t rows = int64_t(queries.size());
    tensors["q"] = features({rows, 1, kDim}, [&](int64_t r, int64_t) { return queries[r]; }, false);
    tensors["q_start"] = ints({0, int32_t(rows)});
    tensors["kv.k"] = features({1, tokens, 1, kDim}, [](int64_t t, int64_t) { return double(t) / 4; }, false);
    tensors["kv.v"] = features({1, tokens, 1, kDim}, [](int64_t t, int64_t) { return double(t); }, true);
    tensors["kv.lengths"] = ints({int32_t(tokens)});
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  rt::TensorMap tensors;
};

TEST_F(ReferenceTest, OneRowSeesAll) {
  oneSequence(3, {2.0});
  expectRow(evaluate(dense(1, 1, "all")), 0, softmax({{0, 0}, {0.5, 1}, {1, 2}}));
}

/// A value is the first features of its key: here a quarter of the token's number, and seven zeros.
TEST_F(ReferenceTest, ValuesThatAreAPartOfKeys) {
  oneSequence(3, {2.0});
  tensors.erase("kv.v");
  const std::string q = "tensor<?x1x32xf16>", o = "tensor<?x1x8xf16>";
  const std::string kv = "!attn.kv<dense, heads = 1, dim = 32, key = f16, value = first<8>>";
  ReferenceResult result = evaluate(parse("func.func @f(%q: " + q + " {attn.name = \"q\"}, %kv: " + kv +
                                          " {attn.name = \"kv\"}) -> " + o +
                                          " {\n  %o = attn.attend %q over (%kv see all) scale 1.0 : " + q +
                                          ", " + kv + " -> " + o + "\n  return %o : " + o + "\n}\n"));
  auto [mean, lse] = softmax({{0, 0}, {0.5, 0.25}, {1, 0.5}});
  EXPECT_EQ(result.output.shape, (std::vector<int64_t>{1, 1, 8}));
  EXPECT_NEAR(result.output.get(0), mean, 1e-12);
  EXPECT_EQ(result.output.get(1), 0);
  EXPECT_NEAR(result.lse.get(0), lse, 1e-12);
}

TEST_F(ReferenceTest, RowsAreTheLastOfTheirSequence) {
  oneSequence(4, {1.0, -1.0});
  ReferenceResult result = evaluate(dense(1, 1, "causal"));
  expectRow(result, 0, softmax({{0, 0}, {0.25, 1}, {0.5, 2}}));
  expectRow(result, 1, softmax({{0, 0}, {-0.25, 1}, {-0.5, 2}, {-0.75, 3}}));
}

TEST_F(ReferenceTest, PositionsMayBeGiven) {
  oneSequence(4, {1.0, 1.0});
  tensors["q_pos"] = ints({11, 0});
  tensors["kv.pos0"] = ints({10});
  ReferenceResult result = evaluate(dense(1, 1, "causal"));
  expectRow(result, 0, softmax({{0, 0}, {0.25, 1}}));
  expectRow(result, 1, {0, -kInfinity});
}

TEST_F(ReferenceTest, Visibility) {
  oneSequence(6, {0.0});
  auto expectSees = [&](const std::string &see, int32_t position, std::vector<double> tokens) {
    SCOPED_TRACE(see);
    tensors["q_pos"] = ints({position});
    std::vector<std::pair<double, double>> pairs;
    for (double token : tokens)
      pairs.emplace_back(0, token);
    expectRow(evaluate(dense(1, 1, see)), 0, softmax(pairs));
  };
  expectSees("window(2)", 3, {2, 3});
  expectSees("window(2)", 5, {4, 5});
  expectSees("window(2)", 6, {5});
  expectSees("recent(1)", 0, {0});
  expectSees("sink(2)", 0, {0, 1});
  expectSees("causal and sink(2)", 0, {0});
  expectSees("sink(1) | recent(2)", 4, {0, 3, 4});
  expectSees("causal and (sink(3) | recent(1))", 1, {0, 1});
  expectSees("window(0)", 3, {});
}

TEST_F(ReferenceTest, QueryHeadsShareKeyHeads) {
  tensors["q"] = features({1, 4, kDim}, [](int64_t, int64_t h) { return double(h); }, false);
  tensors["kv.k"] = features({1, 2, 2, kDim}, [](int64_t t, int64_t) { return double(t); }, false);
  tensors["kv.v"] = features({1, 2, 2, kDim}, [](int64_t t, int64_t h) { return double(10 * h + t); }, true);
  tensors["kv.lengths"] = ints({2});
  ReferenceResult result = evaluate(dense(4, 2, "all"));
  expectRow(result, 0, softmax({{0, 0}, {0, 1}}));
  expectRow(result, 1, softmax({{0, 0}, {1, 1}}));
  expectRow(result, 2, softmax({{0, 10}, {2, 11}}));
  expectRow(result, 3, softmax({{0, 10}, {3, 11}}));
}

TEST_F(ReferenceTest, ZeroLengthAndSinks) {
  tensors["q"] = features({2, 2, kDim}, [](int64_t, int64_t) { return 1.0; }, false);
  tensors["kv.k"] = features({2, 4, 1, kDim}, [](int64_t, int64_t) { return 0.0; }, false);
  tensors["kv.v"] = features({2, 4, 1, kDim}, [](int64_t t, int64_t) { return double(t); }, true);
  tensors["kv.lengths"] = ints({0, 2});
  ReferenceResult plain = evaluate(dense(2, 1, "causal"));
  expectRow(plain, 0, {0, -kInfinity});
  expectRow(plain, 2, softmax({{0, 4}, {0, 5}}));

  tensors["sink_logits"] = rt::Tensor::ofDoubles(rt::DType::F32, {2}, std::vector<double>{1.5, -kInfinity});
  ReferenceResult sinks = evaluate(dense(
      2, 1, "causal", "sinks %s", ", %s: tensor<2xf32> {attn.name = \"sink_logits\"}", ", tensor<2xf32>"));
  expectRow(sinks, 0, {0, 1.5});
  expectRow(sinks, 1, {0, -kInfinity});
  expectRow(sinks, 2, softmax({{0, 4}, {0, 5}, {1.5, 0}}));
  expectRow(sinks, 3, softmax({{0, 4}, {0, 5}}));
}

/// A shuffled block table; NaN in all unlisted slots.
TEST_F(ReferenceTest, Paged) {
  func::FuncOp func = parse(R"(
    !kv = !attn.kv<paged<2>, heads = 1, dim = 32, key = f16, value = f16>
    func.func @f(%q: tensor<?x1x32xf16> {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> tensor<?x1x32xf16> {
      %o = attn.attend %q over (%kv see all) scale 1.0 : tensor<?x1x32xf16>, !kv -> tensor<?x1x32xf16>
      return %o : tensor<?x1x32xf16>
    })");
  tensors["q"] = features({2, 1, kDim}, [](int64_t, int64_t) { return 1.0; }, false);
  // Slots 4, 5, 2 hold tokens 0, 1, 2 of instance 0; slot 6 token 0 of instance 1.
  auto value = [](int64_t slot, int64_t) { return slot == 3 || slot < 2 || slot > 6 ? NAN : double(slot); };
  tensors["kv.k_pages"] =
      features({4, 2, 1, kDim}, [&](int64_t s, int64_t h) { return value(s, h) / 8; }, false);
  tensors["kv.v_pages"] = features({4, 2, 1, kDim}, value, true);
  tensors["kv.block_table"] = rt::Tensor::ofI32({2, 2}, std::vector<int32_t>{2, 1, 3, -7});
  tensors["kv.lengths"] = ints({3, 1});
  ReferenceResult result = evaluate(func);
  expectRow(result, 0, softmax({{0.5, 4}, {0.625, 5}, {0.25, 2}}));
  expectRow(result, 1, softmax({{0.75, 6}}));

  tensors["kv.lengths"] = ints({3, 3});
  expectError(func, "token 2 of instance 1 of 'kv': expected a slot from 0 to 7, got -14");
  tensors["kv.lengths"] = ints({5, 1});
  expectError(func, "length of instance 0 of 'kv': expected 0 to 4, got 5");
}

/// Two heads with separate tokens and pages: head 0 has three tokens in slots 4, 5 and 2, head 1 one token,
/// in slot 4, too. The rows are the last of the longest head.
TEST_F(ReferenceTest, Ragged) {
  func::FuncOp func = parse(R"(
    !kv = !attn.kv<paged<2>, ragged, heads = 2, dim = 32, key = f16, value = f16>
    func.func @f(%q: tensor<?x2x32xf16> {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> tensor<?x2x32xf16> {
      %o = attn.attend %q over (%kv see causal and recent(2)) scale 1.0 : tensor<?x2x32xf16>, !kv -> tensor<?x2x32xf16>
      return %o : tensor<?x2x32xf16>
    })");
  tensors["q"] = features({2, 2, kDim}, [](int64_t, int64_t) { return 1.0; }, false);
  tensors["q_start"] = ints({0, 2});
  auto value = [](int64_t slot, int64_t head) {
    bool listed = head ? slot == 4 : slot == 4 || slot == 5 || slot == 2;
    return listed ? double(slot + 10 * head) : NAN;
  };
  tensors["kv.k_pages"] =
      features({4, 2, 2, kDim}, [&](int64_t s, int64_t h) { return value(s, h) / 8; }, false);
  tensors["kv.v_pages"] = features({4, 2, 2, kDim}, value, true);
  tensors["kv.block_table"] = rt::Tensor::ofI32({1, 2, 2}, std::vector<int32_t>{2, 1, 2, -7});
  tensors["kv.lengths"] = rt::Tensor::ofI32({1, 2}, std::vector<int32_t>{3, 1});
  ReferenceResult result = evaluate(func); // rows at positions 1 and 2
  expectRow(result, 0, softmax({{0.5, 4}, {0.625, 5}}));
  expectRow(result, 1, softmax({{1.75, 14}}));
  expectRow(result, 2, softmax({{0.625, 5}, {0.25, 2}}));
  expectRow(result, 3, {0, -kInfinity}); // the one token is further away than two

  tensors["kv.lengths"] = rt::Tensor::ofI32({1, 2}, std::vector<int32_t>{3, 3});
  expectError(func, "token 2 of instance 0, head 1 of 'kv': expected a slot from 0 to 7, got -14");
  tensors["kv.lengths"] = rt::Tensor::ofI32({1, 2}, std::vector<int32_t>{3, 5});
  expectError(func, "length of instance 0, head 1 of 'kv': expected 0 to 4, got 5");
  tensors["kv.lengths"] = ints({3});
  expectError(func, "tensor 'kv.lengths': expected i32[-1, 2], got i32[1]");
}

/// A context that all rows share and a private rest mean the same as one instance per sequence.
TEST_F(ReferenceTest, RegionsAreOneSet) {
  func::FuncOp func = parse(R"(
    !dense = !attn.kv<dense, heads = 1, dim = 32, key = f16, value = f16>
    !packed = !attn.kv<packed, heads = 1, dim = 32, key = f16, value = f16>
    func.func @f(%q: tensor<?x1x32xf16> {attn.name = "q"}, %a: !dense {attn.name = "context"},
                 %b: !packed {attn.name = "response"}) -> tensor<?x1x32xf16> {
      %o = attn.attend %q over (%a see all), (%b see causal) scale 1.0
          : tensor<?x1x32xf16>, !dense, !packed -> tensor<?x1x32xf16>
      return %o : tensor<?x1x32xf16>
    })");
  tensors["q"] = features({3, 1, kDim}, [](int64_t, int64_t) { return 1.0; }, false);
  tensors["q_start"] = ints({0, 1, 3});
  auto key = [](int64_t t, int64_t) { return double(t) / 2; };
  auto value = [](int64_t t, int64_t) { return double(t); };
  tensors["context.k"] = features({1, 2, 1, kDim}, key, false);
  tensors["context.v"] = features({1, 2, 1, kDim}, value, true);
  tensors["context.lengths"] = ints({2});
  tensors["context.rows"] = rt::Tensor::ofI32({1, 2}, std::vector<int32_t>{0, 3});
  tensors["response.k"] = features({3, 1, kDim}, key, false);
  tensors["response.v"] = features({3, 1, kDim}, value, true);
  tensors["response.start"] = ints({0, 1, 3});
  tensors["response.pos0"] = ints({2, 2});
  ReferenceResult result = evaluate(func);
  expectRow(result, 0, softmax({{0, 0}, {0.5, 1}, {0, 0}}));
  expectRow(result, 1, softmax({{0, 0}, {0.5, 1}, {0.5, 1}}));
  expectRow(result, 2, softmax({{0, 0}, {0.5, 1}, {0.5, 1}, {1, 2}}));
}

/// Two regions, three KV heads with two query heads each; a class narrows both regions, by positions that run
/// through them. Tokens 0..2 are the context's, 3..5 the response's, the row is the last.
TEST_F(ReferenceTest, HeadClasses) {
  func::FuncOp func = parse(R"(
    !dense = !attn.kv<dense, heads = 3, dim = 32, key = f16, value = f16>
    func.func @f(%q: tensor<?x6x32xf16> {attn.name = "q"}, %a: !dense {attn.name = "context"},
                 %b: !dense {attn.name = "response"}, %c: tensor<3xi32> {attn.name = "classes"},
                 %s: tensor<6xf32> {attn.name = "sink_logits"}) -> tensor<?x6x32xf16> {
      %o = attn.attend %q over (%a see all), (%b see causal)
          heads %c {retrieval: see all, streaming: see sink(1) | recent(2), context: see sink(3)} scale 1.0 sinks %s
          : tensor<?x6x32xf16>, !dense, !dense, tensor<3xi32>, tensor<6xf32> -> tensor<?x6x32xf16>
      return %o : tensor<?x6x32xf16>
    })");
  tensors["q"] = features({1, 6, kDim}, [](int64_t, int64_t h) { return double(h); }, false);
  tensors["q_pos"] = ints({5});
  for (int first : {0, 3}) {
    std::string name = first ? "response" : "context";
    tensors[name + ".k"] = features(
        {1, 3, 3, kDim}, [&](int64_t t, int64_t h) { return double(first + t) / 8 + double(h); }, false);
    tensors[name + ".v"] =
        features({1, 3, 3, kDim}, [&](int64_t t, int64_t h) { return double(100 * h + first + t); }, true);
    tensors[name + ".lengths"] = ints({3});
    tensors[name + ".pos0"] = ints({first});
  }
  tensors["sink_logits"] = rt::Tensor::ofDoubles(rt::DType::F32, {6}, std::vector<double>(6, 0.25));
  auto expectSees = [&](const ReferenceResult &result, int64_t queryHead, std::vector<int64_t> seen) {
    int64_t head = queryHead / 2;
    std::vector<std::pair<double, double>> pairs{{0.25, 0}};
    for (int64_t t : seen)
      pairs.emplace_back(double(queryHead) * (double(t) / 8 + double(head)), double(100 * head + t));
    expectRow(result, queryHead, softmax(pairs));
  };
  tensors["classes"] = ints({1, 0, 2});
  ReferenceResult result = evaluate(func);
  for (int64_t member : {0, 1}) {
    expectSees(result, member, {0, 4, 5});
    expectSees(result, 2 + member, {0, 1, 2, 3, 4, 5});
    expectSees(result, 4 + member, {0, 1, 2});
  }
  tensors["classes"] = ints({2, 2, 1});
  result = evaluate(func);
  expectSees(result, 1, {0, 1, 2});
  expectSees(result, 3, {0, 1, 2});
  expectSees(result, 5, {0, 4, 5});

  tensors["classes"] = ints({0, 3, 0});
  expectError(func, "tensor 'classes': expected a class from 0 to 2 for KV head 1, got 3");
  tensors["classes"] = ints({0, 0, -1});
  expectError(func, "tensor 'classes': expected a class from 0 to 2 for KV head 2, got -1");
  tensors["classes"] = ints({0, 0});
  expectError(func, "tensor 'classes': expected i32[3], got i32[2]");
  tensors.erase("classes");
  expectError(func, "tensor 'classes' is missing");
}

TEST_F(ReferenceTest, LongerThanAChunk) {
  oneSequence(600, {0.0, 0.0});
  ReferenceResult result = evaluate(dense(1, 1, "causal"));
  expectRow(result, 0, {299, std::log(599)});
  expectRow(result, 1, {299.5, std::log(600)});
}

TEST_F(ReferenceTest, ThreadsKeepTheBits) {
  tensors["q"] = features({1, 6, kDim}, [](int64_t, int64_t h) { return 0.3 * double(h) - 1; }, true);
  tensors["kv.k"] = features({1, 300, 1, kDim}, [](int64_t t, int64_t) { return std::sin(double(t)); }, true);
  tensors["kv.v"] = features({1, 300, 1, kDim}, [](int64_t t, int64_t) { return std::cos(double(t)); }, true);
  tensors["kv.lengths"] = ints({300});
  func::FuncOp func = dense(6, 1, "causal");
  ReferenceResult one = evaluate(func, 1);
  for (unsigned threads : {2, 4, 9}) {
    ReferenceResult many = evaluate(func, threads);
    EXPECT_EQ(one.output.bytes, many.output.bytes);
    EXPECT_EQ(one.lse.bytes, many.lse.bytes);
  }
}

TEST_F(ReferenceTest, ScoreRegion) {
  oneSequence(3, {4.0});
  expectRow(evaluate(dense(1, 1, "all", R"(score {
      ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
        %cap = arith.constant 2.0 : f32
        %x = arith.divf %s, %cap : f32
        %y = math.tanh %x : f32
        %z = arith.mulf %y, %cap : f32
        attn.yield %z : f32
      })")),
            0, softmax({{0, 0}, {2 * std::tanh(0.5), 1}, {2 * std::tanh(1.0), 2}}));

  // A mask: -inf has no weight, and a row of only -inf sees nothing.
  auto mask = [](const std::string &predicate) {
    return R"(score {
      ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
        %inf = arith.constant 0xFF800000 : f32
        %c = arith.cmpi )" +
           predicate + R"(, %k_pos, %q_pos : i32
        %t = arith.select %c, %s, %inf : f32
        attn.yield %t : f32
      })";
  };
  expectRow(evaluate(dense(1, 1, "all", mask("slt"))), 0, softmax({{0, 0}, {1, 1}}));
  expectRow(evaluate(dense(1, 1, "all", mask("sgt"))), 0, {0, -kInfinity});
}

TEST_F(ReferenceTest, ReadsAreClamped) {
  oneSequence(4, {0.0});
  tensors["bias"] = rt::Tensor::ofDoubles(rt::DType::F32, {1, 2}, std::vector<double>{1, 2});
  std::string read = R"(score {
      ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
        %one = arith.constant 1 : i32
        %i = arith.subi %k_pos, %one : i32
        %t = attn.read %bias[%q_pos, %i] : tensor<?x2xf32>
        attn.yield %t : f32
      })";
  expectRow(evaluate(dense(1, 1, "all", read,
                           ", %bias: tensor<?x2xf32> {attn.name = \"bias\", attn.dims = [\"n\"]}")),
            0, softmax({{1, 0}, {1, 1}, {2, 2}, {2, 3}}));
}

/// Tests one operation after another, on the position of the key or on a constant.
TEST_F(ReferenceTest, Operations) {
  oneSequence(1, {0.0});
  tensors["q_pos"] = ints({0});
  tensors["kv.pos0"] = ints({-7});
  struct Case {
    const char *text; // yields %t
    double expected;
  };
  const Case cases[] = {
      {"%i = arith.divsi %k, %two : i32  %t = arith.sitofp %i : i32 to f32", -3},
      {"%i = arith.remsi %k, %two : i32  %t = arith.sitofp %i : i32 to f32", -1},
      {"%i = arith.divui %k, %two : i32  %t = arith.sitofp %i : i32 to f32", 2147483644},
      {"%i = arith.remui %k, %two : i32  %t = arith.sitofp %i : i32 to f32", 1},
      {"%i = arith.shrsi %k, %two : i32  %t = arith.sitofp %i : i32 to f32", -2},
      {"%i = arith.shrui %k, %two : i32  %t = arith.sitofp %i : i32 to f32", 1073741822},
      {"%i = arith.shli %k, %two : i32  %t = arith.sitofp %i : i32 to f32", -28},
      {"%i = arith.muli %k, %k : i32  %t = arith.sitofp %i : i32 to f32", 49},
      {"%i = arith.maxsi %k, %two : i32  %t = arith.sitofp %i : i32 to f32", 2},
      {"%i = arith.maxui %k, %two : i32  %t = arith.sitofp %i : i32 to f32", -7},
      {"%i = arith.minsi %k, %two : i32  %t = arith.sitofp %i : i32 to f32", -7},
      {"%i = arith.minui %k, %two : i32  %t = arith.sitofp %i : i32 to f32", 2},
      {"%i = arith.andi %k, %two : i32  %t = arith.sitofp %i : i32 to f32", 0},
      {"%i = arith.ori %k, %two : i32  %t = arith.sitofp %i : i32 to f32", -5},
      {"%i = arith.xori %k, %two : i32  %t = arith.sitofp %i : i32 to f32", -5},
      {"%t = arith.uitofp %k : i32 to f32", 4294967289},
      {"%c = arith.cmpi ugt, %k, %two : i32  %i = arith.extsi %c : i1 to i32  %t = arith.sitofp %i : i32 to "
       "f32",
       -1},
      {"%c = arith.cmpi slt, %k, %two : i32  %t = arith.uitofp %c : i1 to f32", 1},
      {"%c = arith.trunci %k : i32 to i1  %i = arith.extui %c : i1 to i32  %t = arith.sitofp %i : i32 to f32",
       1},
      {"%c = arith.trunci %k : i32 to i1  %t = arith.select %c, %x, %s : f32", 2.5},
      {"%c = arith.cmpf olt, %x, %s : f32  %i = arith.select %c, %k, %two : i32  %t = arith.sitofp %i : i32 "
       "to f32",
       2},
      {"%i = arith.fptosi %x : f32 to i32  %t = arith.sitofp %i : i32 to f32", 2},
      {"%t = arith.negf %x : f32", -2.5},
      {"%t = arith.subf %s, %x : f32", -2.5},
      {"%t = arith.divf %x, %x : f32", 1},
      {"%t = arith.maximumf %x, %s : f32", 2.5},
      {"%t = arith.minimumf %x, %s : f32", 0},
      {"%t = arith.maxnumf %x, %s : f32", 2.5},
      {"%t = arith.minnumf %x, %s : f32", 0},
      {"%t = math.exp %x : f32", std::exp(2.5)},
      {"%t = math.exp2 %x : f32", std::exp2(2.5)},
      {"%t = math.log %x : f32", std::log(2.5)},
      {"%t = math.log2 %x : f32", std::log2(2.5)},
      {"%t = math.sqrt %x : f32", std::sqrt(2.5)},
      {"%y = arith.negf %x : f32  %t = math.absf %y : f32", 2.5},
      {"%t = math.fma %x, %x, %x : f32", 8.75},
      {"%t = arith.constant 3.0 : f32", 3},
  };
  for (const Case &c : cases) {
    SCOPED_TRACE(c.text);
    std::string text = c.text;
    for (size_t at; (at = text.find("  ")) != std::string::npos;)
      text.replace(at, 2, "\n");
    ReferenceResult result = evaluate(dense(1, 1, "all",
                                            "score {\n^bb0(%s: f32, %h: i32, %q_pos: i32, %k: i32):\n"
                                            "%two = arith.constant 2 : i32\n%x = arith.constant 2.5 : f32\n" +
                                                text + "\nattn.yield %t : f32\n}"));
    EXPECT_NEAR(result.lse.get(0), c.expected, 1e-9 * std::max(1.0, std::fabs(c.expected)));
  }
}

TEST_F(ReferenceTest, Errors) {
  oneSequence(4, {1.0});
  func::FuncOp func = dense(1, 1, "causal");
  rt::TensorMap good = tensors;
  tensors.erase("kv.v");
  expectError(func, "tensor 'kv.v' is missing");
  tensors = good;
  tensors["q"] = rt::Tensor(rt::DType::BF16, {1, 1, kDim});
  expectError(func, "tensor 'q': expected f16[-1, 1, 32], got bf16[1, 1, 32]");
  tensors = good;
  tensors["kv.lengths"] = ints({-1});
  expectError(func, "length of instance 0 of 'kv': expected 0 to 4, got -1");
  tensors = good;
  tensors["kv.rows"] = rt::Tensor::ofI32({1, 2}, std::vector<int32_t>{0, 2});
  expectError(func, "rows of instance 0 of 'kv': expected a range inside [0, 1), got [0, 2)");
  tensors = good;
  tensors["q_start"] = ints({0, 1, 1});
  expectError(func, "tensor 'kv.rows' is missing, and there are 1 instances for 2 sequences");
}

} // namespace
