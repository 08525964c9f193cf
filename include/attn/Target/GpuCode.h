//===- GpuCode.h - Code of kernels for a GPU --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TARGET_GPUCODE_H
#define ATTN_TARGET_GPUCODE_H

#include "attn/Support/Chip.h"
#include "attn/Target/Ptxas.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace mlir::attn {

/// The kernels of a machine-level module, in its order, each in a module of its own.
struct GpuCode {
  struct Kernel {
    std::string name, ptx;
    Cubin cubin; ///< empty if not requested
  };
  std::vector<Kernel> kernels;
  std::string refusal;   ///< why cubins are missing, if ptxas failed: its words, and the command to repeat it
  double ptxSeconds = 0; ///< from the call until all kernels were PTX

  /// All kernels in one module of PTX.
  std::string ptx() const;
  /// Returns the outputs of ptxas for all kernels, concatenated.
  std::string log() const;
};

/// Makes PTX of every kernel, and with `assembles` a cubin. Errors are diagnostics, except `refusal`. Blocks
/// until all is done; uses the module's MLIRContext from the calling thread only, while no passes of it run.
FailureOr<GpuCode> emitGpuCode(gpu::GPUModuleOp module, const Chip &chip, bool assembles);

} // namespace mlir::attn

#endif
