//===- RowCopyTest.cpp - Operations on a cache, by hand -------------------===//
#include "attn/Reference/Reference.h"

#include "attn/Dialect/Attn/IR/Attn.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <numeric>

using namespace mlir;
namespace rt = ::attn::rt;

namespace {

/// Two layers; in the features of a token of layer l stand 1000 l + first + its number, of a value 100 more.
rt::Tensor numbered(std::vector<int64_t> shape, int64_t tokens, int first) {
  rt::Tensor tensor(rt::DType::F16, std::move(shape));
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.data<uint16_t>()[i] = uint16_t(1000 * (i / 32 / tokens) + first + i / 32 % tokens);
  return tensor;
}

/// The numbers of the tokens, all of whose features must be the same.
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

} // namespace
