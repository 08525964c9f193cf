//===- Async.cpp - mbarriers, TMA, proxies, registers ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Rewriter.h"
#include "attn_rt/tensor/BulkTensor.h"

using namespace mlir;

namespace attn::host {

/// Rewrites the operations that only Hopper has. Returns false if `op` is none of them.
llvm::Expected<bool> Rewriter::rewriteAsync(Operation *op) {
  auto done = [&](Value result = {}) {
    replace(op, result);
    return true;
  };
  auto zero = [&] { return constant(0); };
  auto unpredicated = [&](auto mbarrier) -> llvm::Error {
    if (mbarrier.getPredicate())
      return errorAt(op, "the host device cannot execute '" + op->getName().getStringRef() +
                             "' with a predicate");
    return llvm::Error::success();
  };
  auto released = [&](auto mbarrier) -> llvm::Error {
    if (mbarrier.getRelaxed() || mbarrier.getScope() != NVVM::MemScopeKind::CTA)
      return errorAt(op, "the host device executes '" + op->getName().getStringRef() +
                             "' with release or acquire in the block only");
    return llvm::Error::success();
  };
  /// Returns the number of the open phase, as the state; without a result, nothing.
  auto arrive = [&](Value address, Value count, Value bytes) {
    Value state =
        call("attn_host_mbarrier_arrive", i64, {lane, opId(op), plainPointer(address), count, bytes});
    return op->getNumResults() ? done(state) : done();
  };
  /// `ends`: source and destination of a box, followed by its coordinates.
  auto bulk = [&](StringRef function, ArrayRef<Value> ends, ValueRange coordinates) -> llvm::Expected<bool> {
    if (coordinates.empty() || coordinates.size() > rt::maxBulkRank)
      return errorAt(op, "a bulk tensor copy has 1 to 5 coordinates, not " + Twine(coordinates.size()));
    SmallVector<Value> operands{lane, opId(op)};
    llvm::append_range(operands, ends);
    operands.push_back(constant(static_cast<uint32_t>(coordinates.size())));
    llvm::append_range(operands, coordinates);
    operands.resize(operands.size() + rt::maxBulkRank - coordinates.size(), zero());
    return call(function, none, operands), done();
  };
  if (auto init = dyn_cast<NVVM::MBarrierInitOp>(op)) {
    if (llvm::Error error = unpredicated(init))
      return std::move(error);
    call("attn_host_mbarrier_init", none, {lane, opId(op), plainPointer(init.getAddr()), init.getCount()});
    return done();
  }
  if (auto inval = dyn_cast<NVVM::MBarrierInvalOp>(op)) {
    call("attn_host_mbarrier_inval", none, {lane, opId(op), plainPointer(inval.getAddr())});
    return done();
  }
  if (auto one = dyn_cast<NVVM::MBarrierArriveOp>(op)) {
    if (llvm::Error error = released(one))
      return std::move(error);
    return arrive(one.getAddr(), one.getCount() ? one.getCount() : constant(1), zero());
  }
  if (auto expect = dyn_cast<NVVM::MBarrierArriveExpectTxOp>(op)) {
    if (llvm::Error error = unpredicated(expect))
      return std::move(error);
    if (llvm::Error error = released(expect))
      return std::move(error);
    return arrive(expect.getAddr(), constant(1), expect.getTxcount());
  }
  if (auto expect = dyn_cast<NVVM::MBarrierExpectTxOp>(op)) {
    call("attn_host_mbarrier_expect", none,
         {lane, opId(op), plainPointer(expect.getAddr()), expect.getTxcount()});
    return done();
  }
  if (auto wait = dyn_cast<NVVM::MBarrierTryWaitParityOp>(op)) {
    call("attn_host_mbarrier_wait", none, {lane, opId(op), plainPointer(wait.getAddr()), wait.getPhase()});
    return done();
  }
  if (auto wait = dyn_cast<NVVM::MBarrierTryWaitOp>(op)) {
    // It may suspend the thread indefinitely: until the phase is complete.
    if (llvm::Error error = released(wait))
      return std::move(error);
    Value phase = wait.getStateOrPhase();
    if (phase.getType() == i64)
      phase = LLVM::TruncOp::create(b, loc, i32, phase);
    call("attn_host_mbarrier_wait", none, {lane, opId(op), plainPointer(wait.getAddr()), phase});
    return done(LLVM::ConstantOp::create(b, loc, i1, b.getBoolAttr(true)));
  }
  if (auto copies = dyn_cast<NVVM::CpAsyncMBarrierArriveOp>(op)) {
    call("attn_host_cp_mbarrier", none,
         {lane, opId(op), plainPointer(copies.getAddr()), constant(copies.getNoinc())});
    return done();
  }
  if (auto copy = dyn_cast<NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp>(op)) {
    if (llvm::Error error = unpredicated(copy))
      return std::move(error);
    if (copy.getMode() != NVVM::TMALoadMode::TILE || !copy.getIm2colOffsets().empty() ||
        copy.getMulticastMask() || copy.getGroup())
      return errorAt(op, "the host device executes bulk tensor copies of boxes to one block only");
    return bulk("attn_host_bulk_copy",
                {plainPointer(copy.getDstMem()), copy.getTmaDescriptor(), plainPointer(copy.getMbar())},
                copy.getCoordinates());
  }
  if (auto store = dyn_cast<NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp>(op)) {
    if (llvm::Error error = unpredicated(store))
      return std::move(error);
    if (store.getMode() != NVVM::TMAStoreMode::TILE)
      return errorAt(op, "the host device executes bulk tensor stores of boxes only");
    return bulk("attn_host_bulk_store", {plainPointer(store.getSrcMem()), store.getTmaDescriptor()},
                store.getCoordinates());
  }
  if (auto add = dyn_cast<NVVM::CpAsyncBulkTensorReduceOp>(op)) {
    if (add.getMode() != NVVM::TMAStoreMode::TILE || add.getRedKind() != NVVM::TMAReduxKind::ADD)
      return errorAt(op, "the host device adds boxes to tensors, and knows no other reduction");
    return bulk("attn_host_bulk_add", {plainPointer(add.getSrcMem()), add.getTmaDescriptor()},
                add.getCoordinates());
  }
  if (isa<NVVM::CpAsyncBulkCommitGroupOp>(op))
    return call("attn_host_bulk_commit", none, {lane}), done();
  if (auto wait = dyn_cast<NVVM::CpAsyncBulkWaitGroupOp>(op)) {
    call("attn_host_bulk_wait", none,
         {lane, constant(wait.getGroup()), constant(wait.getRead().value_or(false))});
    return done();
  }
  if (isa<NVVM::PrefetchOp, NVVM::CpAsyncBulkTensorPrefetchOp>(
          op)) // changes nothing that a kernel could observe
    return done();
  if (auto grid = dyn_cast<NVVM::GriddepcontrolOp>(op)) {
    // Letting dependents start is a hint: it makes nothing visible to them.
    if (grid.getKind() == NVVM::GridDepActionKind::wait)
      call("attn_host_grid_wait", none, {lane});
    return done();
  }
  if (isa<NVVM::FenceMbarrierInitOp>(op))
    return call("attn_host_fence_mbarrier", none, {lane}), done();
  if (auto fence = dyn_cast<NVVM::FenceProxyOp>(op)) {
    if (fence.getKind() != NVVM::ProxyKind::async && fence.getKind() != NVVM::ProxyKind::async_shared)
      return errorAt(op, "the host device knows the generic and the async proxy only");
    call("attn_host_fence_async", none, {lane});
    return done();
  }
  if (isa<NVVM::WgmmaFenceAlignedOp>(op))
    return call("attn_host_wgmma_fence", none, {lane}), done();
  if (isa<NVVM::WgmmaGroupSyncAlignedOp>(op))
    return call("attn_host_wgmma_commit", none, {lane}), done();
  if (auto wait = dyn_cast<NVVM::WgmmaWaitGroupSyncOp>(op)) {
    Value newest = constant(static_cast<uint32_t>(wait.getGroup()));
    return call("attn_host_wgmma_wait", none, {lane, opId(op), newest, zero()}), done();
  }
  if (auto registers = dyn_cast<NVVM::SetMaxRegisterOp>(op)) {
    bool increase = registers.getAction() == NVVM::SetMaxRegisterAction::increase;
    call("attn_host_set_registers", none,
         {lane, opId(op), constant(registers.getRegCount()), constant(increase)});
    return done();
  }
  if (auto elect = dyn_cast<NVVM::ElectSyncOp>(op)) {
    Value mask = elect.getMembermask() ? elect.getMembermask() : constant(~0u);
    Value chosen = call("attn_host_elect", i32, {lane, opId(op), mask});
    return done(LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, chosen, zero()));
  }
  return false;
}

} // namespace attn::host
