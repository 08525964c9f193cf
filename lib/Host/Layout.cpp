//===- Layout.cpp - Operation numbers and shared memory -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Rewriter.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/AsmState.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"

using namespace mlir;

namespace attn::host {

using rt::host::Access;
using rt::host::HostOpInfo;
using rt::host::Space;

static FileLineColLoc fileLocation(Location loc) {
  FileLineColLoc found;
  loc->walk([&](Location l) {
    if (auto file = dyn_cast<FileLineColLoc>(l)) {
      found = file;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return found;
}

static std::string describe(Location loc) {
  FileLineColLoc file = fileLocation(loc);
  if (!file)
    return {};
  return (file.getFilename().getValue() + ":" + Twine(file.getLine()) + ":" + Twine(file.getColumn())).str();
}

llvm::Error errorAt(Operation *op, const Twine &what) {
  std::string where = describe(op->getLoc());
  return llvm::createStringError((where.empty() ? Twine("error: ") : where + ": error: ") + what);
}

static Space spaceOf(Value pointer) {
  switch (mlir::cast<LLVM::LLVMPointerType>(pointer.getType()).getAddressSpace()) {
  case 1:
    return Space::Global;
  case 3:
  case 7: // of a cluster; only the block's own exists
    return Space::Shared;
  default:
    return Space::Generic;
  }
}

/// Follows a pointer to its allocation. Private memory needs no detector.
static bool isPrivate(Value pointer) {
  while (Operation *def = pointer.getDefiningOp()) {
    if (isa<LLVM::AllocaOp, LLVM::AddressOfOp>(def))
      return true;
    if (!isa<LLVM::GEPOp, LLVM::AddrSpaceCastOp, LLVM::BitcastOp>(def))
      return false;
    pointer = def->getOperand(0);
  }
  return false;
}

/// Returns false if the runtime need not know about the operation.
static bool classify(Operation *op, const DataLayout &layout, HostOpInfo &info) {
  auto memory = [&](Access access, Value pointer, Type type, std::optional<uint64_t> alignment) {
    info.access = access;
    info.space = spaceOf(pointer);
    info.bytes = static_cast<uint16_t>(layout.getTypeSize(type).getFixedValue());
    // Without a promise PTX gets an access of the whole size, aligned to it.
    info.alignment = static_cast<uint16_t>(alignment ? *alignment : llvm::bit_ceil(info.bytes));
    unsigned space = mlir::cast<LLVM::LLVMPointerType>(pointer.getType()).getAddressSpace();
    return space == 1 || space == 3 || space == 7 || (space == 0 && !isPrivate(pointer));
  };
  if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
    info.invariant = load.getInvariant();
    return memory(isAtomicAccess(op) ? Access::Atomic : Access::Load, load.getAddr(), load.getType(),
                  load.getAlignment());
  }
  if (auto store = dyn_cast<LLVM::StoreOp>(op))
    return memory(isAtomicAccess(op) ? Access::Atomic : Access::Store, store.getAddr(),
                  store.getValue().getType(), store.getAlignment());
  if (auto atomic = dyn_cast<LLVM::AtomicRMWOp>(op))
    return memory(Access::Atomic, atomic.getPtr(), atomic.getVal().getType(), atomic.getAlignment());
  if (auto atomic = dyn_cast<LLVM::AtomicCmpXchgOp>(op))
    return memory(Access::Atomic, atomic.getPtr(), atomic.getVal().getType(), atomic.getAlignment());
  if (auto copy = dyn_cast<NVVM::CpAsyncOp>(op)) {
    info.access = Access::AsyncCopy;
    info.space = Space::Shared;
    info.bytes = info.alignment = static_cast<uint16_t>(copy.getSize());
    return true;
  }
  if (isa<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp>(op)) {
    info.access = Access::AsyncCopy;
    info.space = Space::Shared;
    info.alignment = 128;
    return true;
  }
  if (isa<NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp, NVVM::CpAsyncBulkTensorReduceOp>(op)) {
    info.access = isa<NVVM::CpAsyncBulkTensorReduceOp>(op) ? Access::Atomic : Access::Store;
    info.space = Space::Global;
    info.alignment = 16;
    return true;
  }
  if (isa<NVVM::LdMatrixOp, NVVM::StMatrixOp>(op)) {
    info.access = Access::Matrix;
    info.space = Space::Shared;
    info.bytes = info.alignment = 16;
    return true;
  }
  if (isa<NVVM::NVVMDialect>(op->getDialect()) && op->getNumResults() == 0) {
    info.access = Access::Sync;
    return true;
  }
  return isa<NVVM::ShflOp, NVVM::VoteSyncOp, NVVM::MmaOp, NVVM::ElectSyncOp, NVVM::MBarrierArriveOp,
             NVVM::MBarrierArriveExpectTxOp, NVVM::MBarrierTryWaitOp, tile::MoveMatrixOp, tile::WgmmaOp,
             tile::WgmmaWaitOp>(op);
}

llvm::Expected<ModuleLayout> layOut(Operation *module) {
  ModuleLayout layout;
  DataLayout types(module->getParentOfType<ModuleOp>());
  // One numbering of SSA names serves all texts: printing each operation alone would number its function
  // again every time.
  AsmState names(module, OpPrintingFlags().skipRegions());
  layout.ops.push_back({}); // 0: an operation without a number
  module->walk([&](Operation *op) {
    HostOpInfo info;
    if (!classify(op, types, info))
      return;
    llvm::raw_string_ostream os(info.text);
    op->print(os, names);
    if (info.text.size() > 240)
      info.text.replace(237, std::string::npos, "...");
    info.location = describe(op->getLoc());
    layout.opIds[op] = static_cast<uint32_t>(layout.ops.size());
    layout.ops.push_back(std::move(info));
  });

  SmallVector<LLVM::GlobalOp> dynamic;
  for (auto global : module->getRegion(0).getOps<LLVM::GlobalOp>()) {
    unsigned space = global.getAddrSpace();
    if (space == 1 || (space == 0 && !global.getConstant()))
      return errorAt(global, "the host device has no global variables but shared and constant ones");
    if (space != 3)
      continue;
    uint64_t alignment = global.getAlignment().value_or(16);
    auto array = dyn_cast<LLVM::LLVMArrayType>(global.getType());
    if (array && array.getNumElements() == 0) {
      if (dynamic.empty())
        layout.sharedAlignment = 1;
      layout.sharedAlignment = std::max<uint32_t>(layout.sharedAlignment, static_cast<uint32_t>(alignment));
      dynamic.push_back(global);
      continue;
    }
    layout.staticShared = static_cast<uint32_t>(llvm::alignTo(layout.staticShared, alignment));
    layout.sharedOffsets[global.getName()] = layout.staticShared;
    layout.staticShared += static_cast<uint32_t>(types.getTypeSize(global.getType()).getFixedValue());
  }
  // All extern arrays start at the same offset, as in CUDA.
  for (LLVM::GlobalOp global : dynamic)
    layout.sharedOffsets[global.getName()] =
        rt::host::dynamicSharedOffset(layout.staticShared, layout.sharedAlignment);
  return layout;
}

} // namespace attn::host
