//===- Provenance.cpp - Memory that a kernel may write --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks race only on memory that the grid writes. Following each store's pointer back to the kernel's
// parameters finds those allocations. So the detectors need not record the readers of the (large, never
// written) K and V.
//
//===----------------------------------------------------------------------===//
#include "Rewriter.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include <set>

using namespace mlir;

namespace attn::host {

namespace {

class Tracer {
public:
  explicit Tracer(Block &entry) : entry(entry) {}

  /// Returns false if the pointer may come from anywhere.
  bool trace(Value pointer) {
    if (!visited.insert(pointer).second)
      return true;
    if (auto argument = dyn_cast<BlockArgument>(pointer))
      return traceArgument(argument);
    Operation *def = pointer.getDefiningOp();
    if (isa<LLVM::GEPOp, LLVM::AddrSpaceCastOp, LLVM::BitcastOp>(def))
      return trace(def->getOperand(0));
    if (auto select = dyn_cast<LLVM::SelectOp>(def))
      return trace(select.getTrueValue()) && trace(select.getFalseValue());
    return isa<LLVM::AllocaOp, LLVM::AddressOfOp, LLVM::PoisonOp, LLVM::UndefOp, LLVM::ZeroOp>(def);
  }
  std::set<uint32_t> parameters;

private:
  bool traceArgument(BlockArgument argument) {
    Block *block = argument.getOwner();
    if (block == &entry) {
      parameters.insert(argument.getArgNumber());
      return true;
    }
    for (auto it = block->pred_begin(), end = block->pred_end(); it != end; ++it) {
      auto branch = dyn_cast<BranchOpInterface>((*it)->getTerminator());
      if (!branch)
        return false;
      Value passed = branch.getSuccessorOperands(it.getSuccessorIndex())[argument.getArgNumber()];
      if (!passed || !trace(passed))
        return false;
    }
    return true;
  }
  Block &entry;
  llvm::DenseSet<Value> visited;
};

} // namespace

std::optional<std::vector<uint32_t>> writtenParameters(LLVM::LLVMFuncOp kernel) {
  Tracer tracer(kernel.getBody().front());
  WalkResult result = kernel.walk([&](Operation *op) {
    Value pointer;
    if (auto store = dyn_cast<LLVM::StoreOp>(op))
      pointer = store.getAddr();
    else if (auto atomic = dyn_cast<LLVM::AtomicRMWOp>(op))
      pointer = atomic.getPtr();
    else if (auto exchange = dyn_cast<LLVM::AtomicCmpXchgOp>(op))
      pointer = exchange.getPtr();
    else if (auto bulk = dyn_cast<NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp>(op))
      pointer = bulk.getTmaDescriptor(); // the parameter that holds the map
    else if (auto add = dyn_cast<NVVM::CpAsyncBulkTensorReduceOp>(op))
      pointer = add.getTmaDescriptor();
    else if (isa<LLVM::CallOp>(op))
      return WalkResult::interrupt(); // its stores may be anywhere
    if (!pointer || mlir::cast<LLVM::LLVMPointerType>(pointer.getType()).getAddressSpace() == 3 ||
        tracer.trace(pointer))
      return WalkResult::advance();
    return WalkResult::interrupt();
  });
  if (result.wasInterrupted())
    return std::nullopt;
  return std::vector<uint32_t>(tracer.parameters.begin(), tracer.parameters.end());
}

} // namespace attn::host
