//===- ChangesTest.cpp - Where an operation on states may stand -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The page's operation in places that the page only names: between updates, in
// front of them, in two chains that are merged.
//
//===----------------------------------------------------------------------===//
#include "ScaleValues.h"

#include "OnlineKernels.h"

#include "attn/Pipelines/Pipelines.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace attn;

namespace changes {

/// One that takes a tensor, too.
struct GateOp : mlir::Op<GateOp, mlir::OpTrait::ZeroRegions, mlir::OpTrait::OneResult,
                         mlir::OpTrait::NOperands<2>::Impl, mlir::attn::OnlineOpInterface::Trait> {
  using Op::Op;
  static llvm::StringRef getOperationName() { return "changes.gate"; }
  static llvm::ArrayRef<llvm::StringRef> getAttributeNames() { return {}; }
  bool commutesWithMerge() { return true; }
};

struct ChangesDialect : mlir::Dialect {
  explicit ChangesDialect(mlir::MLIRContext *context)
      : Dialect(getDialectNamespace(), context, mlir::TypeID::get<ChangesDialect>()) {
    addOperations<GateOp>();
  }
  static llvm::StringRef getDialectNamespace() { return "changes"; }
};

} // namespace changes

namespace {

std::string function(const std::string &body, const std::string &attributes = "") {
  return R"(
    !q = tensor<?x8x64xbf16>
    !pages = !attn.kv<paged<16>, heads = 2, dim = 64, key = bf16, value = bf16>
    !dense = !attn.kv<dense, heads = 2, dim = 64, key = bf16, value = bf16>
    !lse = tensor<?x8xf32>
    !s = !attn.state<heads = 8, value_dim = 64>
    func.func @scaled(%q: !q {attn.name = "q", attn.dims = ["rows"]},
                      %a: !pages {attn.name = "a", attn.dims = ["batch", "a_len"]},
                      %b: !dense {attn.name = "b", attn.dims = ["batch", "b_len"]},
                      %sinks: tensor<8xf32> {attn.name = "sink_logits"}) -> (!q, !lse) )" +
         attributes + "{\n" + body + "return %o, %l : !q, !lse\n}";
}
std::string online(const std::string &body, const std::string &attributes = "") {
  return function(body + "%o, %l = attn.finish %state : !s -> !q, !lse\n", attributes);
}

const std::string both = function(R"(
      %o, %l = attn.attend %q over (%a see causal), (%b see all) scale 0.125 sinks %sinks
          : !q, !pages, !dense, tensor<8xf32> -> !q, !lse
)");
const std::string pagesAlone = function(R"(
      %o, %l = attn.attend %q over (%a see causal) scale 0.125 sinks %sinks
          : !q, !pages, tensor<8xf32> -> !q, !lse
)");

const std::string updatePages = R"(
      %0 = attn.init %q sinks %sinks : !q, tensor<8xf32> -> !s
      %1 = attn.update %0, %q, %a see causal scale 0.125 : !q, !pages -> !s
)";
const std::string between = updatePages + R"(
      %2 = example.scale_values %1 by 0.5 : !s
      %state = attn.update %2, %q, %b see all scale 0.125 : !q, !dense -> !s
)";
/// It does nothing to a state that has no values yet, though it has a sink.
const std::string inFront = R"(
      %0 = attn.init %q sinks %sinks : !q, tensor<8xf32> -> !s
      %1 = example.scale_values %0 by 0.5 : !s
      %2 = attn.update %1, %q, %a see causal scale 0.125 : !q, !pages -> !s
      %3 = example.scale_values %2 by 0.5 : !s
      %state = attn.update %3, %q, %b see all scale 0.125 : !q, !dense -> !s
)";
const std::string twoChains = updatePages + R"(
      %2 = example.scale_values %1 by 0.5 : !s
      %3 = attn.init %q : !q -> !s
      %4 = attn.update %3, %q, %b see all scale 0.125 : !q, !dense -> !s
      %state = attn.merge %2, %4 : !s
)";
const std::string twice = updatePages + R"(
      %2 = example.scale_values %1 by 0.25 : !s
      %3 = attn.init %q : !q -> !s
      %4 = attn.update %3, %q, %b see all scale 0.125 : !q, !dense -> !s
      %5 = example.scale_values %4 by 0.5 : !s
      %6 = attn.merge %2, %5 : !s
      %state = example.scale_values %6 by 2.0 : !s
)";

class Changes : public testing::TestWithParam<std::string> {};

TEST_P(Changes, halveWhatThePagesAdd) {
  auto kernels = test::OnlineKernels::with<example::ExampleDialect>();
  // No single chain: these kernels are on mma.
  ASSERT_NO_FATAL_FAILURE(kernels->compile(online(GetParam()), "wgmma"));
  rt::PlanOptions whole, split;
  whole.gpu = split.gpu = &rt::defaultGpu();
  split.fixedSplit = 64;
  for (const rt::PlanOptions &options : {whole, split})
    for (const char *dims :
         {"batch=2 q_len=2 a_len=40..300 b_len=1..200", "batch=2 q_len=40 a_len=70..200 b_len=90"}) {
      test::OnlineResults results, pages;
      ASSERT_NO_FATAL_FAILURE(kernels->run(both, dims, options, results));
      ASSERT_NO_FATAL_FAILURE(kernels->run(pagesAlone, dims, options, pages));
      rt::Tensor &output = results.reference.output;
      const rt::Tensor &lse = results.reference.lse;
      for (int64_t i = 0; i < output.elements(); ++i) {
        double share = std::exp(pages.reference.lse.get(i / 64) - lse.get(i / 64));
        output.set(i, output.get(i) - 0.5 * share * pages.reference.output.get(i));
      }
      expectNear(results);
    }
}

INSTANTIATE_TEST_SUITE_P(Places, Changes, testing::Values(between, inFront, twoChains, twice));

/// What the compiler says of a function at the online level.
std::string errorOf(const std::string &text) {
  mlir::DialectRegistry registry;
  mlir::attn::registerDialects(registry);
  registry.insert<example::ExampleDialect, changes::ChangesDialect>();
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  std::string error;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
      error = diagnostic.str();
    return mlir::success();
  });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  EXPECT_TRUE(module);
  mlir::PassManager manager(&context);
  mlir::attn::addStage(manager, mlir::attn::Stage::Tile, {"sm_90a", "auto"});
  EXPECT_TRUE(mlir::failed(manager.run(*module)));
  return error;
}

TEST(Changes, betweenUpdatesAreRefusedWhereWgmmaIsGiven) {
  const std::string given =
      "attributes {tile.schedules = [#tile.schedule<wgmma, rows = 128, keys = 128, warps = 8, "
      "stages = 2, blocks = 1, split_keys = false, query_in_registers = false>]}";
  std::string error = errorOf(online(between, given));
  EXPECT_NE(
      error.find("'example.scale_values' op expected a single chain of updates for #tile.schedule<wgmma"),
      std::string::npos)
      << error;
  EXPECT_NE(error.find("mma takes branches, and operations between updates"), std::string::npos) << error;
}

TEST(Changes, takeNothingThatLoopsDoNotLeave) {
  std::string error = errorOf(online(updatePages + R"(
      %state = "changes.gate"(%1, %sinks) : (!s, tensor<8xf32>) -> !s
)"));
  EXPECT_EQ(error, "'changes.gate' op expected constants and states of its result's type as operands, got "
                   "'tensor<8xf32>'");
}

} // namespace
