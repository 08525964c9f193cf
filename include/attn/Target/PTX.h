//===- PTX.h - From the machine level to PTX --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TARGET_PTX_H
#define ATTN_TARGET_PTX_H

#include "attn/Support/Chip.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

namespace mlir::attn {

/// Turns the machine operations that NVVM lacks into inline assembly.
void lowerToAsm(gpu::GPUModuleOp module);
/// Turns accesses with a hint to the L2 into inline assembly that passes it.
void lowerCacheHints(gpu::GPUModuleOp module, const Chip &chip);
/// Turns conversions of f8E4M3FN into arithmetic, for chips that have no instruction.
void expandConversions(gpu::GPUModuleOp module);

/// A kernel in LLVM IR, in a context of its own: any thread may go on with it.
struct KernelIR {
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
  bool hoists = false; ///< LLVM moves what does not change out of its loops
};

/// A kernel of a machine-level module, as a module of its own. Errors are diagnostics. Uses the kernel's
/// MLIRContext, so one thread calls it, while no passes of that context run.
FailureOr<KernelIR> translateKernel(LLVM::LLVMFuncOp kernel, const Chip &chip);

/// Through LLVM's NVPTX backend. The text depends on nothing but the kernel and the chip.
llvm::Expected<std::string> printPTX(KernelIR kernel, const Chip &chip);

/// One module of several that were printed for the same chip: what they all begin with is said once.
std::string joinPTX(ArrayRef<StringRef> modules);

} // namespace mlir::attn

#endif
