//===- Mutations.cpp - Kernels with one operation too few or too many -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mutations.h"

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Builders.h"

using namespace mlir;

namespace attn::test {

static bool writes(Operation *op) {
  return isa<LLVM::StoreOp, NVVM::StMatrixOp, NVVM::CpAsyncOp, NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp,
             NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp>(op);
}

static bool synchronizes(Operation *op) {
  return isa<NVVM::Barrier0Op, NVVM::BarrierOp, NVVM::BarrierArriveOp, NVVM::SyncWarpOp,
             NVVM::CpAsyncCommitGroupOp, NVVM::CpAsyncWaitGroupOp, NVVM::CpAsyncMBarrierArriveOp,
             NVVM::CpAsyncBulkCommitGroupOp, NVVM::CpAsyncBulkWaitGroupOp, NVVM::MBarrierInitOp,
             NVVM::MBarrierArriveOp, NVVM::MBarrierArriveExpectTxOp, NVVM::MBarrierTryWaitParityOp,
             NVVM::FenceMbarrierInitOp, NVVM::FenceProxyOp, NVVM::WgmmaFenceAlignedOp,
             NVVM::WgmmaGroupSyncAlignedOp, tile::WgmmaWaitOp, NVVM::GriddepcontrolOp,
             NVVM::SetMaxRegisterOp>(op);
}

/// Whether doubling changes something. Doubled stores, barriers, waits and fences repeat themselves, which is
/// no mistake. Neither is a doubled commit: its group is empty, and a wait that leaves it unfinished covers
/// one more of the other groups.
static bool counts(Operation *op) {
  return (writes(op) && !isa<LLVM::StoreOp, NVVM::StMatrixOp>(op)) ||
         isa<NVVM::BarrierArriveOp, NVVM::CpAsyncMBarrierArriveOp, NVVM::MBarrierInitOp,
             NVVM::MBarrierArriveOp, NVVM::MBarrierArriveExpectTxOp>(op);
}

static bool isShifted(Operation *op) {
  if (op->use_empty())
    return false;
  auto load = dyn_cast<LLVM::LoadOp>(op);
  if (load)
    return load.getAddr().getType().getAddressSpace() == 1 &&
           (load.getType().isF32() || load.getType().isInteger(32));
  return isa<LLVM::URemOp>(op) && op->getResult(0).getType().isInteger(32);
}

static void shift(Operation *op) {
  OpBuilder b(op);
  b.setInsertionPointAfter(op);
  Value number = op->getResult(0), more;
  if (number.getType().isF32())
    more = LLVM::FAddOp::create(b, op->getLoc(), number,
                                LLVM::ConstantOp::create(b, op->getLoc(), b.getF32FloatAttr(1)));
  else
    more = LLVM::AddOp::create(b, op->getLoc(), number,
                               LLVM::ConstantOp::create(b, op->getLoc(), b.getI32IntegerAttr(1)));
  number.replaceAllUsesExcept(more, more.getDefiningOp());
}

std::vector<Mutant> listMutants(LLVM::LLVMFuncOp kernel, bool shifts) {
  std::vector<Mutant> mutants;
  std::map<std::string, unsigned> ordinals;
  size_t position = 0;
  kernel.walk([&](Operation *op) {
    const size_t here = position++;
    const bool shifted = shifts && isShifted(op);
    if (!writes(op) && !synchronizes(op) && !shifted)
      return;
    Mutant mutant{
        shifted ? Mutation::Shift : Mutation::Drop, here, op->getName().getStringRef().str(), 0, {}};
    mutant.ordinal = ordinals[mutant.op]++;
    llvm::raw_string_ostream(mutant.text) << *op;
    mutants.push_back(mutant);
    if (counts(op)) {
      mutant.mutation = Mutation::Double;
      mutants.push_back(std::move(mutant));
    }
  });
  return mutants;
}

void mutate(LLVM::LLVMFuncOp kernel, const Mutant &mutant) {
  Operation *found = nullptr;
  size_t position = 0;
  kernel.walk([&](Operation *op) {
    if (position++ == mutant.position)
      found = op;
  });
  if (mutant.mutation == Mutation::Shift)
    return shift(found);
  OpBuilder b(found);
  if (mutant.mutation == Mutation::Double) {
    b.clone(*found);
    return;
  }
  if (auto wait = dyn_cast<tile::WgmmaWaitOp>(found)) // users of its results then use its operands
    wait->replaceAllUsesWith(wait.getRegisters());
  found->dropAllUses();
  found->erase();
}

} // namespace attn::test
