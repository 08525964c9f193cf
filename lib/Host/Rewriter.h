//===- Rewriter.h - From NVVM operations to calls ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_HOST_REWRITER_H
#define ATTN_LIB_HOST_REWRITER_H

#include "attn/Host/Host.h"
#include "attn_rt/host/Abi.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::tile {
class WgmmaWaitOp;
}

namespace attn::host {

/// Facts about the module before its operations are rewritten.
struct ModuleLayout {
  std::vector<rt::host::HostOpInfo> ops;
  llvm::DenseMap<mlir::Operation *, uint32_t> opIds; ///< operations reported to the runtime
  llvm::StringMap<uint32_t> sharedOffsets;           ///< offsets of shared globals in the window
  uint32_t staticShared = 0, sharedAlignment = 16;
};

/// Numbers the operations and places shared memory. Does not change the module.
llvm::Expected<ModuleLayout> layOut(mlir::Operation *module);

/// Returns the parameters of a kernel from which its stores and atomics may derive their pointers; none if
/// that is unknown.
std::optional<std::vector<uint32_t>> writtenParameters(mlir::LLVM::LLVMFuncOp kernel);

struct Batcher;

/// Fails for matrices other than 8x8 of 16-bit elements, which are not executed.
llvm::Error checkMatrix(mlir::Operation *op, mlir::NVVM::LdStMatrixEltType type,
                        mlir::NVVM::LdStMatrixShapeAttr shape);

/// Rewrites one function in place: adds a leading lane parameter, and calls for NVVM operations. A kernel
/// becomes `name(lane, args)`.
class Rewriter {
public:
  Rewriter(mlir::ModuleOp module, const ModuleLayout &layout, bool check);
  llvm::Error rewrite(mlir::LLVM::LLVMFuncOp function, bool isKernel);
  std::vector<rt::host::WarpProgram> programs; ///< of all functions so far
  std::vector<rt::host::WgmmaProgram> wgmmaPrograms;

private:
  using Value = mlir::Value;
  using Type = mlir::Type;
  using Operation = mlir::Operation;

  // Rewriter.cpp
  void changeSignature(mlir::LLVM::LLVMFuncOp function, bool isKernel);
  llvm::Error rewriteOp(Operation *op);
  llvm::Error rewriteLLVM(Operation *op);
  llvm::Error rewriteIntrinsic(mlir::LLVM::CallIntrinsicOp op);
  // Operations.cpp
  llvm::Error rewriteNVVM(Operation *op);
  llvm::Error rewriteStmatrix(mlir::NVVM::StMatrixOp op);
  llvm::Error rewritePermute(mlir::NVVM::PermuteOp op);
  llvm::Error rewriteShuffle(mlir::NVVM::ShflOp op);
  bool rewriteSpecialRegister(Operation *op);
  // Programs.cpp
  llvm::Error batchMatrices(mlir::Block &block);
  void emitProgram(Batcher &batch);
  // Wgmma.cpp
  llvm::Error batchWgmma(mlir::Block &block);
  void markWgmmaMisuse(mlir::LLVM::LLVMFuncOp function);
  llvm::Error rewriteWgmmaWait(mlir::tile::WgmmaWaitOp op);
  // Async.cpp
  llvm::Expected<bool> rewriteAsync(Operation *op);
  // Memory.cpp
  llvm::Error rewriteAccess(Operation *op, unsigned pointerOperand, llvm::StringRef function);
  llvm::Error rewriteAtomic(mlir::LLVM::AtomicRMWOp op);
  void rewriteAddressOf(mlir::LLVM::AddressOfOp op);
  void rewritePointerCasts(Operation *op);

  Value constant(uint32_t value);
  Value opId(Operation *op) { return constant(layout.opIds.lookup(op)); }
  Value call(llvm::StringRef name, Type result, llvm::ArrayRef<Value> operands);
  Value laneField(uint32_t offset, Type type);
  Value exchangeSlot(unsigned word);
  void put(unsigned word, Value value);
  Value get(unsigned word, Type type);
  Value plainPointer(Value pointer);
  Value cast(Value value, Type type);
  void replace(Operation *op, Value value);

  mlir::ModuleOp module;
  const ModuleLayout &layout;
  bool check;
  mlir::OpBuilder b;
  mlir::Location loc;
  Value lane;
  llvm::DenseSet<Operation *> erased; ///< erased by batching
  Type i1, i32, i64, f32, ptr, none;
};

/// Returns the error "file:line:col: error: what".
llvm::Error errorAt(mlir::Operation *op, const llvm::Twine &what);
/// Whether it is an atomic operation, or a load or a store with an order.
bool isAtomicAccess(mlir::Operation *op);

} // namespace attn::host

#endif
