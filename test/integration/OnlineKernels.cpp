//===- OnlineKernels.cpp - Kernels of text at the online level ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "OnlineKernels.h"

#include "attn/Pipelines/Pipelines.h"
#include "attn/Target/GpuCode.h"
#include "attn/Target/Manifest.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/session/Session.h"
#include "run/inputs/Problem.h"
#include "run/report/Check.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

namespace attn::test {

constexpr const char *target = "sm_90a";

static mlir::gpu::GPUModuleOp kernelsOf(mlir::ModuleOp machine) {
  return *machine.getOps<mlir::gpu::GPUModuleOp>().begin();
}

static const mlir::DialectRegistry &withAttn(mlir::DialectRegistry &registry) {
  mlir::attn::registerDialects(registry);
  return registry;
}

OnlineKernels::OnlineKernels(mlir::DialectRegistry &registry)
    : context(withAttn(registry), mlir::MLIRContext::Threading::DISABLED) {}

void OnlineKernels::compile(const std::string &text, const std::string &schedule) {
  machine = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  ASSERT_TRUE(machine);
  auto described = mlir::attn::describeProblem(*machine->getOps<mlir::func::FuncOp>().begin());
  ASSERT_TRUE(mlir::succeeded(described));
  manifest = std::move(*described);
  mlir::PassManager manager(&context);
  mlir::attn::addStage(manager, mlir::attn::Stage::Tile, {target, schedule, steps});
  mlir::attn::addStage(manager, mlir::attn::Stage::Machine, {target, schedule});
  ASSERT_TRUE(mlir::succeeded(manager.run(*machine)));
  ASSERT_TRUE(mlir::succeeded(
      mlir::attn::describeKernels(kernelsOf(*machine), *mlir::attn::findChip(target), manifest)));
  auto loaded = host::loadForHost(kernelsOf(*machine));
  ASSERT_TRUE(static_cast<bool>(loaded)) << llvm::toString(loaded.takeError());
  code = std::move(*loaded);
}

std::string OnlineKernels::ptx() {
  auto gpu = mlir::attn::emitGpuCode(kernelsOf(*machine), *mlir::attn::findChip(target), /*assembles=*/false);
  EXPECT_TRUE(mlir::succeeded(gpu));
  return mlir::succeeded(gpu) ? gpu->ptx() : "";
}

void OnlineKernels::run(const std::string &problem, const std::string &dims, const rt::PlanOptions &options,
                        OnlineResults &results) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(problem, &context);
  ASSERT_TRUE(module);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  attn::run::Dims given;
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(dims).split(words, ' ');
  for (llvm::StringRef word : words)
    ASSERT_TRUE(given.add(word.str()));
  auto inputs = attn::run::generateInputs(*attn::run::readArguments(function), given, /*seed=*/0);
  ASSERT_TRUE(inputs) << inputs.error().message;
  ASSERT_TRUE(rt::addDefaults(manifest, *inputs));
  auto reference = mlir::attn::evaluateReference(function, *inputs);
  ASSERT_TRUE(reference) << reference.error().message;
  results.reference = std::move(*reference);

  auto device = rt::makeHostDevice({});
  rt::ModuleSource source;
  source.name = manifest.entry;
  source.hostKernels = code->kernels();
  auto batch = rt::batchFromTensors(manifest, *inputs);
  auto session = rt::Session::create(*device, manifest, source);
  ASSERT_TRUE(batch && session);
  auto plan = rt::makePlan(manifest, *batch, options);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(session->bind(*inputs, *batch));
  const auto limits = rt::PlanLimits::of(manifest, *batch);
  ASSERT_TRUE(session->reserve(rt::planCapacity(manifest, limits, options)));
  ASSERT_TRUE(session->run(*plan));
  auto outputs = session->outputs();
  ASSERT_TRUE(outputs);
  results.outputs = std::move(*outputs);
  EXPECT_TRUE(device->report().clean()) << device->report().describe();
}

void expectNear(const OnlineResults &results) {
  const mlir::attn::ReferenceResult &reference = results.reference;
  auto comparison = attn::run::compare(results.outputs.at("o"), &results.outputs.at("lse"), reference.output,
                                       &reference.lse);
  ASSERT_TRUE(comparison);
  EXPECT_LT(comparison->relErr, 8e-3) << comparison->worst;
  EXPECT_LT(*comparison->maxErrLse, 2e-3) << comparison->worstLse;
}

} // namespace attn::test
