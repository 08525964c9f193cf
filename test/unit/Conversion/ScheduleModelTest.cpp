//===- ScheduleModelTest.cpp - Kernels use the memory of their schedules --===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/ScheduleModel.h"
#include "attn/Pipelines/Pipelines.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::attn;
using tile::ScheduleAttr;

namespace {

struct Problem {
  int64_t heads, kvHeads, keyDim, valueDim;
  const char *store;
  const char *key = "f16", *value = "f16", *see = "causal", *attributes = "";

  std::string text() const {
    std::string dims = std::to_string(keyDim), values = std::to_string(valueDim);
    std::string all = std::to_string(heads), stored = std::to_string(kvHeads);
    return "!query = tensor<?x" + all + "x" + dims + "xf16>\n!output = tensor<?x" + all + "x" + values +
           "xf16>\n!kv = !attn.kv<" + store + ", heads = " + stored + ", dim = " + dims +
           (valueDim == keyDim ? "" : ", value_dim = " + values) + ", key = " + key + ", value = " + value +
           ">\n" + R"(
      func.func @f(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !output )" +
           attributes + R"( {
        %o = attn.attend %q over (%kv see )" +
           see + R"() : !query, !kv -> !output
        return %o : !output
      })";
  }
};

/// The shared memory of a problem's attend kernels, as allocated. A kernel that uses another amount than its
/// schedule says is an error of the pipeline.
class Kernels {
public:
  Kernels(MLIRContext &context, const Problem &problem, StringRef target, StringRef schedule)
      : module(parseSourceString<ModuleOp>(problem.text(), &context)) {
    PassManager manager(&context);
    addStagesUpTo(manager, Stage::Tile, {target.str(), schedule.str()});
    compiled = module && succeeded(manager.run(*module));
  }

  template <typename Function> void forEach(Function function) {
    module->walk([&](func::FuncOp kernel) {
      if (auto schedule = kernel->getAttrOfType<ScheduleAttr>("tile.schedule"))
        function(schedule, kernel->getAttrOfType<IntegerAttr>("tile.shared_bytes").getInt());
    });
  }

  OwningOpRef<ModuleOp> module;
  bool compiled = false;
};

class KernelsTakeWhatTheirSchedulesSay : public testing::Test {
protected:
  KernelsTakeWhatTheirSchedulesSay()
      : context(
            [] {
              DialectRegistry registry;
              registerDialects(registry);
              return registry;
            }(),
            MLIRContext::Threading::DISABLED),
        remarks(&context, [](Diagnostic &diagnostic) {
          return success(diagnostic.getSeverity() == DiagnosticSeverity::Remark);
        }) {}

  void check(const Problem &problem, StringRef target, StringRef schedule) {
    Kernels kernels(context, problem, target, schedule);
    ASSERT_TRUE(kernels.compiled) << target.str() << " " << problem.text();
    kernels.forEach([&](ScheduleAttr said, int64_t takes) {
      EXPECT_TRUE(said.isComplete());
      EXPECT_EQ(said.getSharedBytes(), takes) << target.str() << " " << problem.text();
      EXPECT_LE(takes, findChip(target)->sharedPerBlock) << target.str() << " " << problem.text();
      ++compiled;
    });
  }

  MLIRContext context;
  ScopedDiagnosticHandler remarks;
  int compiled = 0;
};

TEST_F(KernelsTakeWhatTheirSchedulesSay, floats) {
  for (int64_t keyDim = 8; keyDim <= 256; keyDim += 8) {
    for (int64_t valueDim : {keyDim, (keyDim * 5 + 88) % 256 + 8}) {
      if (valueDim % 8 != 0)
        continue;
      const char *stores[] = {"dense", "paged<1>", "paged<16>", "packed", "paged<64>"};
      const Problem problem{keyDim % 16 ? 28 : 32, keyDim % 16 ? 4 : 8, keyDim, valueDim,
                            stores[(keyDim / 8 + valueDim / 8) % 5]};
      for (auto [target, schedule] : {std::pair{"sm_80", "mma"}, {"sm_89", "mma"}, {"sm_90a", "auto"}})
        ASSERT_NO_FATAL_FAILURE(check(problem, target, schedule));
    }
  }
  EXPECT_GT(compiled, 300);
}

TEST_F(KernelsTakeWhatTheirSchedulesSay, codes) {
  for (int64_t keyDim = 16; keyDim <= 256; keyDim += 16) {
    const int64_t valueDim = keyDim % 64 ? keyDim : 272 - keyDim;
    const char *key = keyDim % 48 ? "!attn.quantized<f8E4M3FN, per = head>" : "f16";
    const char *value = keyDim % 80 && keyDim % 48 ? "f16" : "!attn.quantized<f8E4M3FN, per = token>";
    for (auto [target, schedule] : {std::pair{"sm_89", "mma"}, {"sm_90a", "auto"}})
      ASSERT_NO_FATAL_FAILURE(check({32, 8, keyDim, valueDim, "paged<16>", key, value}, target, schedule));
  }
  EXPECT_EQ(compiled, 64);
}

// Fused gradient kernels state their memory, and exchange through two tiles if those fit.
TEST_F(KernelsTakeWhatTheirSchedulesSay, fusedGradients) {
  int turns = 0, fused = 0;
  for (int64_t keyDim : {64, 128})
    for (int64_t valueDim = 8; valueDim <= 160; valueDim += 8)
      for (const char *see : {"causal", "window(100)"}) {
        const Problem problem{8,        2,        keyDim,
                              valueDim, "packed", "f16",
                              "f16",    see,      "attributes {attn.backward, attn.ordered = false}"};
        Kernels kernels(context, problem, "sm_90a", "auto");
        ASSERT_TRUE(kernels.compiled) << problem.text();
        kernels.forEach([&](ScheduleAttr said, int64_t takes) {
          EXPECT_LE(takes, findChip("sm_90a")->sharedPerBlock) << problem.text();
          if (!said.getExchangeStages())
            return;
          EXPECT_EQ(said.getSharedBytes(), takes) << problem.text();
          ++fused, turns += said.getExchanges() > 1;
        });
      }
  EXPECT_GT(turns, 40);
  EXPECT_LT(turns, fused);
}

// Two tiles of queries and the rings are 226 KiB of the 227; the barriers do not fit the rest.
TEST(ScheduleModelTest, BarriersCount) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  auto kv = cast<KVType>(
      parseType("!attn.kv<dense, heads = 8, dim = 176, value_dim = 192, key = f16, value = f16>", &context));
  ScheduleShape shape;
  shape.keyDim = 176;
  shape.valueDim = 192;
  shape.element = Float16Type::get(&context);
  shape.regions = {kv};
  ScheduleModel model(shape, *findChip("sm_90a"));
  ScheduleAttr open = ScheduleAttr::get(&context, tile::ScheduleKind::Wgmma, 128, 96, 8, 2, 1, false, false);
  tile::ScheduleFields two = open.getFields();
  two.queryStages = 2;
  ScheduleAttr largest = model.complete(ScheduleAttr::get(&context, two));
  EXPECT_EQ(largest.getSharedBytes(), 226 * 1024 + 1024 + 72);
  EXPECT_FALSE(model.fitsBlock(largest));
  EXPECT_EQ(model.complete(open).getQueryStages(), 1);
}

// Fields given by a user stay, and dependent fields are chosen.
TEST(ScheduleModelTest, CompletionKeepsWhatIsSaid) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  ScheduleShape shape;
  shape.keyDim = shape.valueDim = 128;
  shape.element = Float16Type::get(&context);
  shape.regions = {
      cast<KVType>(parseType("!attn.kv<paged<16>, heads = 8, dim = 128, key = f16, value = f16>", &context))};
  ScheduleModel model(shape, *findChip("sm_90a"));
  tile::ScheduleFields fields =
      ScheduleAttr::get(&context, tile::ScheduleKind::Wgmma, 128, 64, 8, 2, 1, false, false).getFields();
  auto complete = [&] { return model.complete(ScheduleAttr::get(&context, fields)); };
  EXPECT_EQ(complete().getKeyCopies(), ArrayRef<int64_t>{16});
  EXPECT_TRUE(complete().storesResultsByTma());
  EXPECT_EQ(complete().getProducerRegisters(), 40);
  fields.keyCopies = {ScheduleAttr::gathered};
  EXPECT_FALSE(complete().loadsTokensByTma());
  EXPECT_FALSE(complete().loadsQueriesByTma());
  EXPECT_EQ(complete().getValueBoxes(), 0);
  EXPECT_FALSE(complete().storesResultsByTma());
  EXPECT_EQ(complete().getProducerRegisters(), 56);
  fields.keyCopies.clear();
  fields.epilogue = tile::Epilogue::Store;
  fields.pingPong = true;
  EXPECT_EQ(complete().getQueryCopy(), 128);
  EXPECT_EQ(complete().getQueryStages(), 2);
  EXPECT_EQ(complete().getPingPong(), true);
}

} // namespace
