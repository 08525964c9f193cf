//===- AttnOpt.cpp - The attn-opt program ---------------------------------===//
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Tools.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int mlir::attn::attnOptMain(int argc, char **argv) {
  DialectRegistry registry;
  registry.insert<AttnDialect, tile::TileDialect, arith::ArithDialect, func::FuncDialect, gpu::GPUDialect,
                  LLVM::LLVMDialect, NVVM::NVVMDialect, math::MathDialect, scf::SCFDialect>();
  return failed(MlirOptMain(argc, argv, "attn-opt: the attention compiler\n", registry));
}
