//===- GradientsTest.cpp - Gradients against differences of the forward ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every input with a gradient is given in f64, so that a step of 1e-3 is exact; differences over one and two
// steps together have an error of its fourth power.
//
//===----------------------------------------------------------------------===//
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Reference/Reference.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace mlir;
using mlir::attn::ReferenceResult;
namespace rt = ::attn::rt;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

rt::Tensor ints(std::vector<int32_t> values) { return rt::Tensor::ofI32({int64_t(values.size())}, values); }

class GradientsTest : public ::testing::Test {
protected:
  GradientsTest() {
    context.loadDialect<mlir::attn::AttnDialect, func::FuncDialect, arith::ArithDialect, math::MathDialect>();
  }

  /// Parses 4 query heads over 2 of keys, 8 features of keys and 16 of values. `regions`: as in
  /// `%a see causal, ...`; `arguments` and `types`: inputs of the clauses.
  void parse(const std::string &regions, const std::string &clauses = "", const std::string &arguments = "",
             const std::string &types = "", int operandCount = 1) {
    std::string kvs, kvTypes,
        text = "!q = tensor<?x4x8xbf16>\n!o = tensor<?x4x16xbf16>\n"
               "!dense = !attn.kv<dense, heads = 2, dim = 8, value_dim = 16, key = bf16, value = bf16>\n"
               "!packed = !attn.kv<packed, heads = 2, dim = 8, value_dim = 16, key = bf16, value = bf16>\n";
    const char *names[] = {"a", "b"}, *stores[] = {"!dense", "!packed"};
    for (int i = 0; i < operandCount; ++i) {
      kvs += std::string(", %") + names[i] + ": " + stores[i] + " {attn.name = \"" + names[i] + "\"}";
      kvTypes += std::string(", ") + stores[i];
    }
    text += "func.func @f(%q: !q {attn.name = \"q\"}" + kvs + arguments +
            ") -> (!o, tensor<?x?xf32>) {\n  %o, %lse = attn.attend %q over " + regions + " scale 0.375 " +
            clauses + " : !q" + kvTypes + types +
            " -> !o, tensor<?x?xf32>\n  return %o, %lse : !o, tensor<?x?xf32>\n}\n";
    module = parseSourceString<ModuleOp>(text, &context);
    ASSERT_TRUE(module) << text;
    func = *module->getOps<func::FuncOp>().begin();
  }

  void random(const std::string &name, std::vector<int64_t> shape, double from = -2, double to = 2) {
    std::uniform_real_distribution<double> draw(from, to);
    rt::Tensor &tensor = tensors[name] = rt::Tensor(rt::DType::F64, shape);
    for (double &number : tensor.as<double>())
      number = draw(generator);
  }

  /// Makes two sequences of 3 and 2 rows over 4 and 3 of 5 tokens.
  void denseSequences() {
    random("q", {5, 4, 8});
    tensors["q_start"] = ints({0, 3, 5});
    random("a.k", {2, 5, 2, 8});
    random("a.v", {2, 5, 2, 16});
    tensors["a.lengths"] = ints({4, 3});
    random("do", {5, 4, 16}, -1, 1);
    random("dlse", {5, 4}, -1, 1);
  }

  rt::TensorMap gradients(unsigned threads = 2) {
    rt::Result<rt::TensorMap> result = mlir::attn::evaluateGradients(func, tensors, threads);
    EXPECT_TRUE(bool(result)) << (result ? "" : result.error().message);
    return result ? *result : rt::TensorMap();
  }

  void expectError(const std::string &message) {
    rt::Result<rt::TensorMap> result = mlir::attn::evaluateGradients(func, tensors);
    ASSERT_FALSE(bool(result));
    EXPECT_EQ(result.error().message, message);
  }

  /// Returns sum(o * do) + sum(lse * dlse): rows that see nothing have an LSE of -inf, and add nothing.
  double loss() {
    rt::Result<ReferenceResult> result = mlir::attn::evaluateReference(func, tensors);
    EXPECT_TRUE(bool(result)) << (result ? "" : result.error().message);
    double sum = 0;
    for (int64_t i = 0; i < result->output.elements(); ++i)
      sum += result->output.get(i) * tensors["do"].get(i);
    for (int64_t i = 0; tensors.count("dlse") && i < result->lse.elements(); ++i)
      if (result->lse.get(i) != -kInfinity)
        sum += result->lse.get(i) * tensors["dlse"].get(i);
    return sum;
  }

  double difference(double &number) {
    const double at = number, step = 1e-3;
    auto slope = [&](double h) {
      number = at + h;
      double above = loss();
      number = at - h;
      double below = loss();
      number = at;
      return (above - below) / (2 * h);
    };
    return (4 * slope(step) - slope(2 * step)) / 3;
  }

  /// Tests the derivatives of every `stride`-th element of each tensor with a gradient.
  void expectDerivatives(std::vector<std::string> names, int64_t stride = 1) {
    rt::TensorMap found = gradients();
    EXPECT_EQ(found.size(), names.size());
    for (const std::string &name : names) {
      size_t point = name.find('.');
      std::string dName =
          point == std::string::npos ? "d" + name : name.substr(0, point + 1) + "d" + name.substr(point + 1);
      ASSERT_TRUE(found.count(dName)) << dName;
      ASSERT_EQ(found[dName].shape, tensors[name].shape) << dName;
      double largest = 0;
      for (int64_t i = 0; i < tensors[name].elements(); i += stride) {
        double expected = difference(tensors[name].as<double>()[i]);
        EXPECT_NEAR(found[dName].get(i), expected, 1e-8 * (1 + std::abs(expected)))
            << dName << "[" << i << "]";
        largest = std::max(largest, std::abs(expected));
      }
      EXPECT_GT(largest, 1e-3) << dName << " is tested on zeros alone";
    }
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp func;
  rt::TensorMap tensors;
  std::mt19937 generator{7};
};

TEST_F(GradientsTest, GroupedHeadsOverCausalSequences) {
  parse("(%a see causal)");
  denseSequences();
  expectDerivatives({"q", "a.k", "a.v"});
  rt::TensorMap found = gradients();
  for (int64_t i = 0; i < 2 * 8; ++i) // the token after the first instance's last
    EXPECT_EQ(found["a.dk"].get(4 * 2 * 8 + i), 0);
}

TEST_F(GradientsTest, WindowsAndSinkTokens) {
  parse("(%a see causal and (sink(1) | recent(2)))");
  denseSequences();
  expectDerivatives({"q", "a.k", "a.v"}, 3);
}

TEST_F(GradientsTest, TheLseAloneAndTheOutputAlone) {
  parse("(%a see causal)");
  denseSequences();
  rt::Tensor ofOutput = tensors["do"];
  tensors["do"].fill(0);
  rt::TensorMap lse = gradients();
  for (int64_t i = 0; i < lse["a.dv"].elements(); ++i)
    EXPECT_EQ(lse["a.dv"].get(i), 0);
  rt::TensorMap both = (tensors["do"] = ofOutput, gradients());
  tensors.erase("dlse");
  rt::TensorMap output = gradients();
  for (int64_t i = 0; i < both["dq"].elements(); ++i)
    EXPECT_NEAR(both["dq"].get(i), lse["dq"].get(i) + output["dq"].get(i), 1e-13);
}

TEST_F(GradientsTest, SinkLogits) {
  parse("(%a see causal)", "sinks %s", ", %s: tensor<4xf32> {attn.name = \"sink_logits\"}",
        ", tensor<4xf32>");
  denseSequences();
  tensors["a.lengths"] = ints({1, 3}); // the first two rows see the sink alone
  random("sink_logits", {4});
  expectDerivatives({"q", "a.k", "a.v", "sink_logits"}, 2);
  tensors["sink_logits"].set(1, -kInfinity);
  EXPECT_EQ(gradients()["dsink_logits"].get(1), 0);
}

/// Regions that share a softmax, one of them seen by all rows.
TEST_F(GradientsTest, TwoRegions) {
  parse("(%a see all), (%b see causal)", "", "", "", 2);
  denseSequences();
  random("a.k", {1, 3, 2, 8});
  random("a.v", {1, 3, 2, 16});
  tensors["a.lengths"] = ints({3});
  tensors["a.rows"] = rt::Tensor::ofI32({1, 2}, std::vector<int32_t>{0, 5});
  random("b.k", {7, 2, 8});
  random("b.v", {7, 2, 16});
  tensors["b.start"] = ints({0, 4, 7});
  tensors["b.pos0"] = ints({3, 3});
  expectDerivatives({"q", "a.k", "a.v", "b.k", "b.v"}, 3);
}

/// A tree: instances whose rows lie inside the rows of others.
TEST_F(GradientsTest, NestedInstances) {
  parse("(%a see causal)");
  denseSequences();
  random("a.k", {2, 5, 2, 8});
  random("a.v", {2, 5, 2, 16});
  tensors["a.lengths"] = ints({3, 2});
  tensors["a.pos0"] = ints({0, 3});
  tensors["a.rows"] = rt::Tensor::ofI32({2, 2}, std::vector<int32_t>{0, 5, 3, 5});
  expectDerivatives({"q", "a.k", "a.v"}, 3);
}

/// Every operation that passes a gradient on, with a table by position and one by head.
TEST_F(GradientsTest, ScoreRegions) {
  const std::string arguments = ", %slopes: tensor<4xf32> {attn.name = \"slopes\"}, %bias: tensor<?x?xf32> "
                                "{attn.name = \"bias\", attn.dims = [\"x\", \"y\"]}";
  const std::string read = "%w = attn.read %slopes[%h] : tensor<4xf32>\n"
                           "%b = attn.read %bias[%qi, %ki] : tensor<?x?xf32>\n"
                           "%one = arith.constant 1.5 : f32\n%c = arith.constant 0.25 : f32\n";
  const char *bodies[] = {
      "%t = arith.mulf %s, %w : f32\n%r = arith.addf %t, %b : f32\n",
      "%t = arith.divf %s, %w : f32\n%u = math.tanh %t : f32\n%x = arith.mulf %u, %w : f32\n%r = arith.subf "
      "%x, %b : f32\n",
      "%t = math.fma %s, %w, %b : f32\n%n = arith.negf %t : f32\n%r = math.absf %n : f32\n",
      "%t = math.exp %b : f32\n%u = math.exp2 %w : f32\n%x = arith.addf %t, %u : f32\n%y = math.log %x : "
      "f32\n"
      "%z = math.log2 %x : f32\n%p = arith.mulf %y, %z : f32\n%r = arith.addf %s, %p : f32\n",
      "%t = math.absf %s : f32\n%u = arith.addf %t, %w : f32\n%x = math.sqrt %u : f32\n%r = arith.addf %x, "
      "%b : f32\n",
      "%t = arith.maximumf %s, %b : f32\n%u = arith.minimumf %s, %w : f32\n"
      "%x = arith.maxnumf %b, %c : f32\n%y = arith.minnumf %s, %one : f32\n"
      "%m = arith.addf %t, %u : f32\n%n = arith.addf %x, %y : f32\n%r = arith.addf %m, %n : f32\n",
      // The other side of a select has no derivative at all: the root of a negative number.
      "%zero = arith.constant 0.0 : f32\n%p = arith.cmpf ogt, %s, %zero : f32\n%t = math.sqrt %s : f32\n"
      "%u = arith.mulf %s, %w : f32\n%x = arith.select %p, %t, %u : f32\n%r = arith.addf %x, %b : f32\n",
      // A mask inside the score; integers and conversions pass nothing on.
      "%no = arith.constant 0xFF800000 : f32\n%p = arith.cmpi sgt, %qi, %ki : i32\n%f = arith.sitofp %ki : "
      "i32 to f32\n"
      "%t = arith.mulf %f, %w : f32\n%u = arith.addf %s, %t : f32\n%v = arith.addf %u, %b : f32\n"
      "%e = arith.cmpi eq, %ki, %h : i32\n%m = arith.andi %p, %e : i1\n%r = arith.select %m, %no, %v : f32\n",
  };
  denseSequences();
  random("slopes", {4}, 0.5, 2);
  random("bias", {4, 4});
  for (const char *body : bodies) {
    SCOPED_TRACE(body);
    parse("(%a see causal)",
          "score { ^bb0(%s: f32, %h: i32, %qi: i32, %ki: i32):\n" + read + body + "attn.yield %r : f32 }",
          arguments);
    expectDerivatives({"q", "a.k", "a.v", "slopes", "bias"}, 5);
  }
}

/// A maximum of equals has the derivative of its first operand; the score, as its operand, has derivative
/// one.
TEST_F(GradientsTest, DerivativesWhereThereAreNone) {
  denseSequences();
  auto of = [&](const char *body) {
    parse("(%a see causal)",
          std::string("score { ^bb0(%s: f32, %h: i32, %qi: i32, %ki: i32):\n") + body + " }");
    return gradients()["dq"].toDoubles();
  };
  std::vector<double> plain = of("attn.yield %s : f32");
  EXPECT_EQ(plain, of("%r = arith.maximumf %s, %s : f32\nattn.yield %r : f32"));
  EXPECT_EQ(std::vector<double>(plain.size()), of("%r = arith.constant 1.0 : f32\nattn.yield %r : f32"));
  tensors["q"].fill(0);
  EXPECT_EQ(std::vector<double>(plain.size()), of("%r = math.absf %s : f32\nattn.yield %r : f32"));
}

TEST_F(GradientsTest, RowsThatSeeNothing) {
  parse("(%a see causal)");
  denseSequences();
  tensors["q_pos"] = ints({-1, 0, 1, -1, -1});
  rt::TensorMap found = gradients();
  for (int64_t row : {0, 3, 4})
    for (int64_t i = 0; i < 4 * 8; ++i)
      EXPECT_EQ(found["dq"].get(row * 4 * 8 + i), 0);
  for (int64_t i = found["a.dk"].elements() / 2; i < found["a.dk"].elements(); ++i)
    EXPECT_EQ(found["a.dk"].get(i), 0);
  expectDerivatives({"q", "a.k", "a.v"}, 7);
}

TEST_F(GradientsTest, ANanStaysInItsSequenceAndHead) {
  parse("(%a see causal)");
  denseSequences();
  rt::TensorMap clean = gradients();
  tensors["do"].set((3 * 4 + 2) * 16,
                    NAN); // the first row of the second sequence, a head that reads KV head 1
  rt::TensorMap found = gradients();
  for (const auto &[name, gradient] : found)
    for (int64_t i = 0; i < gradient.elements(); ++i) {
      int64_t head = name == "dq" ? i / 8 % 4 : i / (name == "a.dk" ? 8 : 16) % 2;
      int64_t sequence = name == "dq" ? i / (3 * 4 * 8) : 2 * i / gradient.elements();
      if (sequence == 0 || (name == "dq" ? head != 2 : head != 1)) {
        EXPECT_EQ(gradient.get(i), clean[name].get(i)) << name << "[" << i << "]";
      }
    }
  EXPECT_TRUE(std::isnan(found["dq"].get((3 * 4 + 2) * 8)));
}

TEST_F(GradientsTest, BitsDoNotDependOnThreads) {
  parse("(%a see causal)",
        "score { ^bb0(%s: f32, %h: i32, %qi: i32, %ki: i32):\n%w = attn.read %slopes[%ki] : tensor<4xf32>\n"
        "%r = arith.mulf %s, %w : f32\nattn.yield %r : f32 }",
        ", %slopes: tensor<4xf32> {attn.name = \"slopes\"}");
  denseSequences();
  random("slopes", {4});
  rt::TensorMap one = gradients(1), many = gradients(5);
  for (const auto &[name, gradient] : one)
    EXPECT_EQ(gradient.bytes, many[name].bytes) << name;
}

/// Inputs stored in 16 bits have the gradients of the numbers that they represent.
TEST_F(GradientsTest, StoredNumbers) {
  parse("(%a see causal)");
  denseSequences();
  rt::TensorMap stored = tensors;
  for (const char *name : {"q", "a.k", "a.v"}) {
    stored[name] = rt::Tensor::ofDoubles(rt::DType::BF16, tensors[name].shape, tensors[name].as<double>());
    tensors[name] = rt::Tensor::ofDoubles(rt::DType::F64, tensors[name].shape, stored[name].toDoubles());
  }
  rt::TensorMap exact = gradients();
  std::swap(tensors, stored);
  rt::TensorMap found = gradients();
  for (const auto &[name, gradient] : exact)
    EXPECT_EQ(gradient.bytes, found[name].bytes) << name;
}

TEST_F(GradientsTest, Refusals) {
  parse("(%a see causal)");
  denseSequences();
  tensors["do"] = rt::Tensor(rt::DType::F64, {5, 4, 8});
  expectError("tensor 'do': expected floats [5, 4, 16], got f64[5, 4, 8]");
  tensors["do"] = rt::Tensor(rt::DType::I32, {5, 4, 16});
  expectError("tensor 'do': expected floats [5, 4, 16], got i32[5, 4, 16]");
  tensors["do"] = rt::Tensor(rt::DType::F32, {5, 4, 16});
  tensors["dlse"] = rt::Tensor(rt::DType::F64, {4, 5});
  expectError("tensor 'dlse': expected floats [5, 4], got f64[4, 5]");
  tensors.erase("do");
  tensors.erase("dlse");
  expectError("tensor 'do' is missing");
}

TEST_F(GradientsTest, PagesAndCodesHaveNone) {
  auto refused = [&](const std::string &store, const std::string &key, const std::string &message) {
    std::string kv = "!attn.kv<" + store + ", heads = 1, dim = 32, key = " + key + ", value = bf16>";
    module = parseSourceString<ModuleOp>(
        "func.func @f(%q: tensor<?x1x32xbf16> {attn.name = \"q\"}, %kv: " + kv +
            " {attn.name = \"kv\"}) -> tensor<?x1x32xbf16> {\n  %o = attn.attend %q over (%kv see all) : "
            "tensor<?x1x32xbf16>, " +
            kv + " -> tensor<?x1x32xbf16>\n  return %o : tensor<?x1x32xbf16>\n}\n",
        &context);
    ASSERT_TRUE(module);
    func = *module->getOps<func::FuncOp>().begin();
    expectError(message);
  };
  tensors["q"] = rt::Tensor(rt::DType::BF16, {1, 1, 32});
  tensors["kv.lengths"] = ints({4});
  tensors["kv.k_pages"] = tensors["kv.v_pages"] = rt::Tensor(rt::DType::BF16, {1, 16, 1, 32});
  tensors["kv.block_table"] = rt::Tensor::ofI32({1, 1}, std::vector<int32_t>{0});
  refused("paged<16>", "bf16",
          "'kv': expected a dense or packed store, got a paged one, which has no gradients");
  tensors["kv.k"] = rt::Tensor(rt::DType::U8, {1, 4, 1, 32});
  tensors["kv.k_meta"] = rt::Tensor(rt::DType::F16, {1, 4, 1, 1, 2});
  tensors["kv.v"] = rt::Tensor(rt::DType::BF16, {1, 4, 1, 32});
  refused("dense", "!attn.quantized<i8, per = 32>",
          "'kv': expected keys and values of 16 bits, got quantized ones, which have no gradients");
}

} // namespace
