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
/// Turns accesses with an L2 hint into inline assembly that passes the hint.
void lowerCacheHints(gpu::GPUModuleOp module, const Chip &chip);
/// Turns conversions of f8E4M3FN into arithmetic, for chips without the instruction.
void expandConversions(gpu::GPUModuleOp module);

/// A kernel in LLVM IR, in a context of its own, so that any thread may continue with it.
struct KernelIR {
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
  bool hoists = false;   ///< whether LLVM hoists invariants out of its loops
  bool contracts = true; ///< whether a product and a sum may become one fma, which rounds once
};

/// Translates a kernel of a machine-level module into a module of its own. Errors are diagnostics. Uses the
/// kernel's MLIRContext, so only one thread may call it, while no passes of that context run.
FailureOr<KernelIR> translateKernel(LLVM::LLVMFuncOp kernel, const Chip &chip);

/// Prints PTX through LLVM's NVPTX backend. The text depends only on the kernel and the chip.
llvm::Expected<std::string> printPTX(KernelIR kernel, const Chip &chip);

/// Joins modules printed for the same chip into one, with their common beginning once.
std::string joinPTX(ArrayRef<StringRef> modules);

} // namespace mlir::attn

#endif
