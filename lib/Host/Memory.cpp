//===- Memory.cpp - Addresses, loads, stores, atomics ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A shared address is an offset in the block's window: an integer alone, or a pointer with the window's base
// added. The window is aligned to 256 KiB, so the low 18 bits of both agree, and descriptors and swizzles use
// only these.
//
//===----------------------------------------------------------------------===//
#include "Rewriter.h"

using namespace mlir;

namespace attn::host {

static unsigned addressSpace(Value pointer) {
  return mlir::cast<LLVM::LLVMPointerType>(pointer.getType()).getAddressSpace();
}

bool isAtomicAccess(Operation *op) {
  if (auto load = dyn_cast<LLVM::LoadOp>(op))
    return load.getOrdering() != LLVM::AtomicOrdering::not_atomic;
  if (auto store = dyn_cast<LLVM::StoreOp>(op))
    return store.getOrdering() != LLVM::AtomicOrdering::not_atomic;
  return isa<LLVM::AtomicRMWOp, LLVM::AtomicCmpXchgOp>(op);
}

llvm::Error Rewriter::rewriteAccess(Operation *op, unsigned pointerOperand, StringRef function) {
  // The runtime checks the kernel's promises; here a broken promise must not trap. Atomic accesses keep their
  // alignment, without which they would be calls of a library that takes locks.
  const bool isAtomic = isAtomicAccess(op);
  if (auto load = dyn_cast<LLVM::LoadOp>(op); load && !isAtomic)
    load.setAlignment(1);
  else if (auto store = dyn_cast<LLVM::StoreOp>(op); store && !isAtomic)
    store.setAlignment(1);
  if (isAtomic)
    function = "attn_host_atomic";
  if (!check || !layout.opIds.count(op))
    return llvm::Error::success();
  Value pointer = op->getOperand(pointerOperand);
  Value usable = call(function, ptr, {lane, opId(op), plainPointer(pointer)});
  op->setOperand(pointerOperand, cast(usable, pointer.getType()));
  return llvm::Error::success();
}

llvm::Error Rewriter::rewriteAtomic(LLVM::AtomicRMWOp op) {
  bool deferred = addressSpace(op.getPtr()) == 1 && op.getBinOp() == LLVM::AtomicBinOp::fadd &&
                  op.getVal().getType() == f32 && op.getResult().use_empty();
  if (!deferred)
    return rewriteAccess(op, 0, "attn_host_atomic");
  call("attn_host_add_f32", none, {lane, opId(op), plainPointer(op.getPtr()), op.getVal()});
  op->erase();
  return llvm::Error::success();
}

void Rewriter::rewriteAddressOf(LLVM::AddressOfOp op) {
  auto it = layout.sharedOffsets.find(op.getGlobalName());
  if (it == layout.sharedOffsets.end())
    return;
  Value window = laneField(rt::host::kLaneSharedOffset, ptr);
  Value at = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), window,
                                 ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(it->second)});
  replace(op, cast(at, op.getType()));
}

void Rewriter::rewritePointerCasts(Operation *op) {
  if (auto toInt = dyn_cast<LLVM::PtrToIntOp>(op)) {
    if (addressSpace(toInt.getArg()) != 3)
      return;
    Value window = LLVM::PtrToIntOp::create(b, loc, i64, laneField(rt::host::kLaneSharedOffset, ptr));
    Value full = LLVM::PtrToIntOp::create(b, loc, i64, toInt.getArg());
    Value offset = LLVM::SubOp::create(b, loc, full, window);
    Type type = toInt.getType();
    replace(op, type == i64 ? offset : LLVM::TruncOp::create(b, loc, type, offset).getResult());
    return;
  }
  auto toPointer = mlir::cast<LLVM::IntToPtrOp>(op);
  if (addressSpace(toPointer.getResult()) != 3)
    return;
  Value offset = toPointer.getArg();
  if (offset.getType() != i64)
    offset = LLVM::ZExtOp::create(b, loc, i64, offset);
  Value window = laneField(rt::host::kLaneSharedOffset, ptr);
  Value at = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), window, ArrayRef<LLVM::GEPArg>{offset});
  replace(op, cast(at, toPointer.getType()));
}

} // namespace attn::host
