//===- RowCopyTest.cpp - Operations on a cache, by hand -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Reference/Reference.h"

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

using namespace mlir;
namespace rt = ::attn::rt;

namespace {

/// Returns two layers; features of a token of layer l are 1000 l + first + its number, those of a value 100
/// more.
rt::Tensor numbered(std::vector<int64_t> shape, int64_t tokens, int first) {
  rt::Tensor tensor(rt::DType::F16, std::move(shape));
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<uint16_t>()[i] = uint16_t(1000 * (i / 32 / tokens) + first + i / 32 % tokens);
  return tensor;
}

/// Returns the numbers of the tokens, all of whose features must be equal.
std::vector<int> numbers(const rt::Tensor &tensor) {
  std::vector<int> result;
  for (int64_t i = 0; i < tensor.elements(); i += 32) {
    result.push_back(tensor.data<uint16_t>()[i]);
    for (int64_t j = 1; j < 32; ++j)
      EXPECT_EQ(tensor.data<uint16_t>()[i + j], result.back());
  }
  return result;
}

class RowCopyTest : public ::testing::Test {
protected:
  RowCopyTest() { context.loadDialect<mlir::attn::AttnDialect, func::FuncDialect>(); }

  rt::Result<rt::TensorMap> evaluate(const std::string &arguments, const std::string &body,
                                     const std::string &results = "") {
    const std::string types = R"(
      !rows = tensor<?x?x1x32xf16>
      !slots = tensor<?xi32>
      !paged = !attn.kv<paged<2>, heads = 1, dim = 32, key = f16, value = f16>
      !packed = !attn.kv<packed, heads = 1, dim = 32, key = f16, value = f16>
      !codes = !attn.kv<packed, heads = 1, dim = 32, key = !attn.quantized<i8, per = 16>, value = f16>
      !low = !attn.kv<packed, heads = 1, dim = 32, key = !attn.quantized<i4, per = 32>, value = f16>
      func.func @f()";
    module = parseSourceString<ModuleOp>(types + arguments + ")" + results + " {\n" + body + "\n}", &context);
    EXPECT_TRUE(module);
    return mlir::attn::evaluateRowCopy(*module->getOps<func::FuncOp>().begin(), tensors);
  }
  rt::Result<rt::TensorMap> append() {
    return evaluate(R"(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %c: !paged {attn.name = "c"},
                       %s: !slots {attn.name = "slots"})",
                    "attn.append %k, %v to %c at %s : !rows, !rows, !paged, !slots\nreturn");
  }

  void ints(const std::string &name, std::vector<int32_t> values) {
    tensors[name] = rt::Tensor::ofI32({int64_t(values.size())}, values);
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  rt::TensorMap tensors;
};

TEST_F(RowCopyTest, Append) {
  tensors["c.k_pages"] = numbered({2, 2, 2, 1, 32}, 4, 0);
  tensors["c.v_pages"] = numbered({2, 2, 2, 1, 32}, 4, 100);
  tensors["k"] = numbered({2, 3, 1, 32}, 3, 50);
  tensors["v"] = numbered({2, 3, 1, 32}, 3, 150);
  ints("slots", {2, -1, 0});
  rt::Result<rt::TensorMap> result = append();
  ASSERT_TRUE(bool(result)) << result.error().message;
  ASSERT_EQ(result->size(), 2u);
  EXPECT_EQ(numbers(result->at("c.k_pages")), (std::vector{52, 1, 50, 3, 1052, 1001, 1050, 1003}));
  EXPECT_EQ(numbers(result->at("c.v_pages")), (std::vector{152, 101, 150, 103, 1152, 1101, 1150, 1103}));
  ints("slots", {2, -1, 4});
  EXPECT_EQ(append().error().message, "row 2: slot 4 is outside of the cache");
  tensors.erase("slots");
  EXPECT_EQ(append().error().message, "a tensor of 'k' is missing");
}

TEST_F(RowCopyTest, Move) {
  tensors["c.k"] = numbered({2, 5, 1, 32}, 5, 0);
  tensors["c.v"] = numbered({2, 5, 1, 32}, 5, 100);
  ints("from", {4, -1, 4, 1});
  ints("to", {0, -1, 3, 2});
  rt::Result<rt::TensorMap> result = evaluate(
      R"(%c: !packed {attn.name = "c"}, %f: !slots {attn.name = "from"}, %t: !slots {attn.name = "to"})",
      "attn.move %c from %f to %t : !packed, !slots, !slots\nreturn");
  ASSERT_TRUE(bool(result)) << result.error().message;
  EXPECT_EQ(numbers(result->at("c.k")), (std::vector{4, 1, 1, 4, 4, 1004, 1001, 1001, 1004, 1004}));
  EXPECT_EQ(numbers(result->at("c.v")), (std::vector{104, 101, 101, 104, 104, 1104, 1101, 1101, 1104, 1104}));
}

TEST_F(RowCopyTest, Gather) {
  tensors["c.k"] = numbered({2, 5, 1, 32}, 5, 0);
  tensors["c.v"] = numbered({2, 5, 1, 32}, 5, 100);
  ints("slots", {4, -3, 4});
  rt::Result<rt::TensorMap> result = evaluate(
      R"(%c: !packed {attn.name = "c"}, %s: !slots {attn.name = "slots"})",
      "%k, %v = attn.gather %c at %s : !packed, !slots -> !rows, !rows\nreturn %k, %v : !rows, !rows",
      " -> (!rows, !rows)");
  ASSERT_TRUE(bool(result)) << result.error().message;
  EXPECT_EQ(result->at("k").shape, (std::vector<int64_t>{2, 3, 1, 32}));
  EXPECT_EQ(numbers(result->at("k")), (std::vector{4, 0xffff, 4, 1004, 0xffff, 1004}));
  EXPECT_EQ(numbers(result->at("v")), (std::vector{104, 0xffff, 104, 1104, 0xffff, 1104}));
}

/// Adds one layer of a quantized cache, whose slots of 2 tokens hold 0xee.
void addCodes(rt::TensorMap &tensors, const std::string &name, int64_t bytes, int64_t groups) {
  tensors[name + ".k"] = rt::Tensor(rt::DType::U8, {1, 2, 1, bytes});
  tensors[name + ".k_meta"] = rt::Tensor(rt::DType::F16, {1, 2, 1, groups, 2});
  for (const char *part : {".k", ".k_meta"})
    std::ranges::fill(tensors[name + part].bytes, 0xee);
  tensors[name + ".v"] = numbered({1, 2, 1, 32}, 2, 0);
}

/// Tokens of 16 features each: 0 to 15 and a constant, and then a NaN and an infinite one.
TEST_F(RowCopyTest, AppendOfCodes) {
  addCodes(tensors, "c", 32, 2);
  tensors["k"] = rt::Tensor(rt::DType::F16, {1, 1, 1, 32});
  tensors["v"] = numbered({1, 1, 1, 32}, 1, 7);
  for (int i = 0; i < 32; ++i)
    tensors["k"].data<uint16_t>()[i] = rt::toF16(i < 16 ? i * 17 : 5);
  ints("slots", {1});
  ints("status", {40});
  auto append = [&] {
    return evaluate(
        R"(%k: !rows {attn.name = "k"}, %v: !rows {attn.name = "v"}, %c: !codes {attn.name = "c"},
                       %s: !slots {attn.name = "slots"}, %n: tensor<1xi32> {attn.name = "status"})",
        "attn.append %k, %v to %c at %s status %n : !rows, !rows, !codes, !slots, tensor<1xi32>\nreturn");
  };
  rt::Result<rt::TensorMap> result = append();
  ASSERT_TRUE(bool(result)) << result.error().message;
  EXPECT_EQ(result->size(), 4u); // elements, metadata, values and the status
  const rt::Tensor &codes = result->at("c.k"), &meta = result->at("c.k_meta");
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(codes.bytes[i], 0xee); // the other token
    EXPECT_EQ(codes.bytes[32 + i], i < 16 ? i * 17 : 0);
  }
  EXPECT_EQ(meta.data<uint16_t>()[4], rt::toF16(1));
  EXPECT_EQ(meta.data<uint16_t>()[5], rt::toF16(0));
  EXPECT_EQ(meta.data<uint16_t>()[6], 1); // the smallest scale
  EXPECT_EQ(meta.data<uint16_t>()[7], rt::toF16(5));
  EXPECT_EQ(result->at("status").data<int32_t>()[0], 40);
  EXPECT_EQ(numbers(result->at("c.v")), (std::vector{0, 7}));

  tensors["k"].data<uint16_t>()[3] = 0x7e00;  // NaN: stored as 0
  tensors["k"].data<uint16_t>()[16] = 0xfc00; // -infinity: stored as -65280
  result = append();
  ASSERT_TRUE(bool(result)) << result.error().message;
  EXPECT_EQ(result->at("status").data<int32_t>()[0], 42);
  EXPECT_EQ(result->at("c.k").bytes[32 + 3], 0);
  EXPECT_EQ(result->at("c.k_meta").data<uint16_t>()[7], rt::toF16(-65280));
}

TEST_F(RowCopyTest, GatherAndRequantizeOfCodes) {
  addCodes(tensors, "c", 32, 2);
  for (int i = 0; i < 32; ++i)
    tensors["c.k"].bytes[i] = uint8_t(i % 16 * 17);
  for (int group = 0; group < 2; ++group) {
    tensors["c.k_meta"].data<uint16_t>()[2 * group] = rt::toF16(0.5);
    tensors["c.k_meta"].data<uint16_t>()[2 * group + 1] = rt::toF16(-2);
  }
  ints("slots", {0});
  rt::Result<rt::TensorMap> rows =
      evaluate(R"(%c: !codes {attn.name = "c"}, %s: !slots {attn.name = "slots"})",
               "%k, %v = attn.gather %c at %s : !codes, !slots -> !rows, !rows\nreturn %k, %v : !rows, !rows",
               " -> (!rows, !rows)");
  ASSERT_TRUE(bool(rows)) << rows.error().message;
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(rows->at("k").data<uint16_t>()[i], rt::toF16(i % 16 * 17 * 0.5 - 2));

  addCodes(tensors, "low", 16, 1);
  ints("from", {0});
  ints("to", {1});
  tensors.erase("slots");
  rt::Result<rt::TensorMap> low = evaluate(
      R"(%c: !codes {attn.name = "c"}, %l: !low {attn.name = "low"}, %f: !slots {attn.name = "from"},
         %t: !slots {attn.name = "to"})",
      "attn.requantize %c at %f to %l at %t : !codes, !slots, !low, !slots\nreturn");
  ASSERT_TRUE(bool(low)) << low.error().message;
  EXPECT_EQ(low->count("c.k"), 0u);
  for (int i = 0; i < 16; ++i)
    EXPECT_EQ(low->at("low.k").bytes[16 + i], (2 * i % 16) | (2 * i + 1) % 16 << 4);
  EXPECT_EQ(low->at("low.k_meta").data<uint16_t>()[2], rt::toF16(8.5));
  EXPECT_EQ(numbers(low->at("low.v")), (std::vector{0, 0}));
}

} // namespace
