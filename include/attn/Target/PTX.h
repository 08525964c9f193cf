//===- PTX.h - From the machine level to PTX --------------------*- C++ -*-===//
#ifndef ATTN_TARGET_PTX_H
#define ATTN_TARGET_PTX_H

#include "attn/Target/Chip.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::attn {

/// Turns the machine operations that NVVM lacks into inline assembly.
void lowerToAsm(gpu::GPUModuleOp module);

/// Translates the kernels of a machine-level module through LLVM's NVPTX backend. Errors are reported at the
/// module. The text depends on nothing but the module and the chip. Not safe to call from two threads with
/// modules of one MLIRContext whose passes are still running.
FailureOr<std::string> emitPTX(gpu::GPUModuleOp module, const Chip &chip);

} // namespace mlir::attn

#endif
