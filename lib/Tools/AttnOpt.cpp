//===- AttnOpt.cpp - The attn-opt program ---------------------------------===//
#include "attn/Pipelines/Pipelines.h"
#include "attn/Tools.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int mlir::attn::attnOptMain(int argc, char **argv) {
  DialectRegistry registry;
  registerEverything(registry);
  return failed(MlirOptMain(argc, argv, "attn-opt: the attention compiler\n", registry));
}
