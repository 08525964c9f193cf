//===- Pipelines.cpp - The order of passes --------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Pipelines/Pipelines.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::attn;

/// Adds the lowerings of steps. Each step of an update on a tile has its own pass, and their order does not
/// matter.
static void addStepLowerings(OpPassManager &kernels) {
  kernels.addPass(createLowerScoresPass());
  kernels.addPass(createLowerGroupSumsPass());
  kernels.addPass(createLowerGroupScoresPass());
  kernels.addPass(createLowerAccumulatePass());
  kernels.addPass(createLowerDequantizePass());
  kernels.addPass(createLowerScoreFnPass());
  kernels.addPass(createLowerMaskPass());
  kernels.addPass(createLowerListMaskPass());
  kernels.addPass(createLowerSoftmaxStepPass());
  kernels.addPass(createLowerRescalePass());
  kernels.addPass(createLowerWeightsPass());
  kernels.addPass(createLowerScoreGradPass());
  kernels.addPass(createLowerLiftPass());
  kernels.addPass(createLowerScaleWeightsPass());
}

/// Adds passes from online operations to tile operations; returns the manager for further passes on kernels.
static OpPassManager &addKernelPasses(OpPassManager &manager, const PipelineOptions &options) {
  manager.addPass(createMakeKernelsPass());
  OpPassManager &kernels = manager.nest<gpu::GPUModuleOp>();
  kernels.addPass(createDifferentiatePass());
  kernels.addPass(createWritePlanPass());
  kernels.addPass(createWeighScoresPass());
  kernels.addPass(createSumPartsPass());
  kernels.addPass(createWalkPlanPass());
  kernels.addPass(createStageOperandsPass());
  kernels.addPass(createExpandOnlinePass());
  if (options.steps)
    options.steps(kernels);
  addStepLowerings(kernels);
  kernels.addPass(createWalkRowsPass({options.target}));
  kernels.addPass(createExpandRowsPass());
  kernels.addPass(createManagePagesPass());
  kernels.addPass(tile::createSpreadChecksPass());
  kernels.addPass(tile::createSpecializeWarpsPass());
  kernels.addPass(tile::createUnswitchLoopsPass());
  kernels.addPass(tile::createInsertBarriersPass());
  kernels.addPass(tile::createOverlapMmasPass());
  kernels.addPass(tile::createStartEarlyPass());
  kernels.addPass(tile::createPingPongPass());
  kernels.addPass(tile::createLookAheadPass());
  kernels.addPass(tile::createReadAheadPass());
  return kernels;
}

void mlir::attn::addStage(OpPassManager &manager, Stage stage, const PipelineOptions &options) {
  switch (stage) {
  case Stage::Problem:
    manager.addNestedPass<func::FuncOp>(createCheckSignaturePass());
    manager.addNestedPass<func::FuncOp>(createNormalizePass());
    return;
  case Stage::Online:
    manager.addNestedPass<func::FuncOp>(createSplitRegionsPass());
    manager.addNestedPass<func::FuncOp>(createCanonicalizerPass());
    return;
  case Stage::Tile: {
    manager.addNestedPass<func::FuncOp>(createChooseSchedulePass({options.target, options.schedule}));
    OpPassManager &kernels = addKernelPasses(manager, options);
    kernels.addPass(tile::createInferLayoutsPass());
    kernels.addPass(tile::createPipelineCopiesPass());
    kernels.addPass(tile::createAllocateSharedPass());
    kernels.addPass(tile::createHoistUniformPass());
    kernels.addPass(createCSEPass());
    kernels.addPass(tile::createFoldConstantsPass());
    return;
  }
  case Stage::Machine: {
    OpPassManager &kernels = manager.nest<gpu::GPUModuleOp>();
    kernels.addPass(tile::createSkipFullMasksPass());
    kernels.addPass(tile::createUnrollLoopsPass());
    kernels.addPass(createTileToMachinePass());
    kernels.addPass(createMachineToLLVMPass());
    return;
  }
  }
}

void mlir::attn::addStagesUpTo(OpPassManager &manager, Stage stage, const PipelineOptions &options) {
  for (Stage s : {Stage::Problem, Stage::Online, Stage::Tile, Stage::Machine}) {
    addStage(manager, s, options);
    if (s == stage)
      return;
  }
}

void mlir::attn::registerDialects(DialectRegistry &registry) {
  registry
      .insert<AttnDialect, tile::TileDialect, arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect,
              gpu::GPUDialect, LLVM::LLVMDialect, NVVM::NVVMDialect, math::MathDialect, scf::SCFDialect>();
  registerOnlineModels(registry);
}

const DialectRegistry &mlir::attn::allDialects() {
  static const DialectRegistry registry = [] {
    DialectRegistry all;
    registerDialects(all);
    return all;
  }();
  return registry;
}

void mlir::attn::registerEverything(DialectRegistry &registry) {
  registerDialects(registry);
  registerAttnPasses();
  registerAttnConversionPasses();
  tile::registerTilePasses();
  registerCanonicalizerPass();
  registerCSEPass();
  PassPipelineRegistration<>("attn-to-tile",
                             "From functions with schedules to kernels of tile operations without layouts: "
                             "from attn-make-kernels to tile-read-ahead",
                             [](OpPassManager &manager) { addKernelPasses(manager, {}); });
  PassPipelineRegistration<>("attn-pipeline",
                             "All passes from the problem level to the machine level, for sm_90a",
                             [](OpPassManager &manager) { addStagesUpTo(manager, Stage::Machine, {}); });
}
