//===- AttnOpt.cpp - The attn-opt program ---------------------------------===//
#include "attn/Dialect/Attn/IR/Source.h"
#include "attn/Dialect/Attn/Transforms/Passes.h"
#include "attn/Tools.h"

#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/ToolOutputFile.h"

int mlir::attn::attnOptMain(int argc, char **argv) {
  DialectRegistry registry;
  registry.insert<AttnDialect, arith::ArithDialect, func::FuncDialect, gpu::GPUDialect, LLVM::LLVMDialect,
                  NVVM::NVVMDialect, math::MathDialect, scf::SCFDialect>();
  registerAttnPasses();
  registerTransformsPasses();

  auto [inputName, outputName] =
      registerAndParseCLIOptions(argc, argv, "attn-opt: the attention compiler\n", registry);
  llvm::InitLLVM init(argc, argv);
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> input = openInputFile(inputName, &error);
  std::unique_ptr<llvm::ToolOutputFile> output = input ? openOutputFile(outputName, &error) : nullptr;
  if (!output) {
    llvm::errs() << error << "\n";
    return 2;
  }
  if (failed(MlirOptMain(output->os(), acceptAmpersand(std::move(input)), registry,
                         MlirOptMainConfig::createFromCLOptions())))
    return 2;
  output->keep();
  return 0;
}
