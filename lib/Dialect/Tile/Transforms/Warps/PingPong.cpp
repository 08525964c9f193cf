//===- PingPong.cpp - Ping-pong of warpgroups ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Warpgroups that compute the same loop on different rows need the tensor cores at the same time, and leave
// them idle at the same time. If the schedule says `ping_pong`, they alternate (ping-pong, FlashAttention-3).
// A warpgroup starts an iteration's MMAs, lets the next warpgroup start its own, and computes while the
// tensor cores work for the others.
//
//   for each consumer loop:   sync(own barrier); wait; start MMAs; arrive(next barrier);
//                             finish them, compute
//
// Each warpgroup has a named barrier for its turn. It completes when the warpgroup waits at it and the
// previous one has arrived. All warpgroups must take equally many turns. The first turn is the first
// warpgroup's, for which the last warpgroup arrives before the outermost loop. So at the end one turn is left
// over, and the first warpgroup waits for it when it has nothing else left to do.
//
// A loop that consumes tiles and computes nothing passes its turn on at once, and releases the tiles without
// having waited for them. No warpgroup may be two phases of a barrier ahead, or parities would be confused.
// Turns guarantee this: a warpgroup that has started an iteration's MMAs has waited for the tiles that they
// read, of this iteration and, for a late MMA, of the previous one. Only then is it the next warpgroup's
// turn.
//
//===----------------------------------------------------------------------===//
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#define DEBUG_TYPE "tile-consume-turns"

namespace mlir::tile {
#define GEN_PASS_DEF_PINGPONGPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Threads of the two warpgroups that pass a turn on.
constexpr int64_t turnThreads = 2 * ScheduleAttr::groupWarps * 32;

bool startsMmas(Operation *op) {
  return op->walk([](StartMmaOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Inserts turns into the loops inside an outermost loop of the consumers.
class Turns {
public:
  Turns(scf::ForOp outermost, ScheduleAttr schedule)
      : outermost(outermost), schedule(schedule), b(outermost.getLoc(), outermost) {}
  /// Returns the number of loops with turns.
  unsigned insert();

private:
  Value i32(int64_t value) { return arith::ConstantIntOp::create(b, value, 32); }
  /// Returns the number of this warp, which the kernel may compute already.
  Value warp();
  void await() { NamedBarrierSyncOp::create(b, arith::AddIOp::create(b, warpgroup, i32(1)), turnThreads); }
  void passOn() {
    Value next = arith::AddIOp::create(b, warpgroup, i32(1));
    next = arith::RemUIOp::create(b, next, i32(schedule.getConsumers()));
    NamedBarrierArriveOp::create(b, arith::AddIOp::create(b, next, i32(1)), turnThreads);
  }
  /// Writes code of only one warpgroup.
  void only(int64_t which, function_ref<void()> body);
  bool insert(scf::ForOp loop);
  /// Passes the turn on where the block, or branches in it, first wait for MMAs.
  void passOnBeforeFinish(Block *block);

  scf::ForOp outermost;
  ScheduleAttr schedule;
  ImplicitLocOpBuilder b;
  Value warpgroup;
};

Value Turns::warp() {
  Block &entry = outermost->getParentOfType<func::FuncOp>().front();
  for (auto known : entry.getOps<WarpIdOp>())
    if (known->isBeforeInBlock(entry.findAncestorOpInBlock(*outermost)))
      return known;
  return WarpIdOp::create(b, b.getI32Type());
}

void Turns::only(int64_t which, function_ref<void()> body) {
  Value isIt = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, warpgroup, i32(which));
  auto branch = scf::IfOp::create(b, isIt, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenYield());
  body();
}

unsigned Turns::insert() {
  Value consumer = arith::SubIOp::create(b, warp(), i32(schedule.getProducerWarps()));
  warpgroup = arith::DivUIOp::create(b, consumer, i32(ScheduleAttr::groupWarps));
  only(schedule.getConsumers() - 1, [&] { passOn(); });
  unsigned loops = 0;
  outermost.walk([&](scf::ForOp loop) {
    if (loop.getBody()->walk([](scf::ForOp) { return WalkResult::interrupt(); }).wasInterrupted())
      return;
    loops += insert(loop);
  });
  b.setInsertionPoint(outermost->getBlock()->getTerminator());
  only(0, [&] { await(); });
  return loops;
}

bool Turns::insert(scf::ForOp loop) {
  Block *body = loop.getBody();
  auto awaits = body->getOps<MbarrierWaitOp>();
  bool computes = startsMmas(loop);
  if (awaits.empty() && !computes)
    return decline(DEBUG_TYPE, loop, "it neither waits for tiles nor starts MMAs");
  auto first = llvm::find_if(*body, [](Operation &op) { return isa<MbarrierWaitOp>(op) || startsMmas(&op); });
  b.setInsertionPoint(body, first);
  await();
  if (computes) {
    passOnBeforeFinish(body);
    return true;
  }
  passOn();
  // The other operations here are only legal if no tile is used.
  auto isWait = [](Operation &op) { return isa<MbarrierWaitOp, SyncOp>(op); };
  if (!llvm::all_of(body->without_terminator(), [&](Operation &op) {
        return isWait(op) || isa<ArriveOp, NamedBarrierSyncOp, NamedBarrierArriveOp>(op) ||
               isMemoryEffectFree(&op);
      }))
    return true;
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*body)))
    if (isWait(op) || isOpTriviallyDead(&op))
      op.erase();
  return true;
}

void Turns::passOnBeforeFinish(Block *block) {
  auto finishes = [](Operation &op) {
    return op.walk([](WaitMmasOp) { return WalkResult::interrupt(); }).wasInterrupted();
  };
  auto place = llvm::find_if(block->without_terminator(), finishes);
  auto branch = dyn_cast<scf::IfOp>(*place);
  if (branch && branch.elseBlock()) {
    passOnBeforeFinish(branch.thenBlock());
    return passOnBeforeFinish(branch.elseBlock());
  }
  b.setInsertionPoint(block, place);
  passOn();
}

struct PingPong : tile::impl::PingPongPassBase<PingPong> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      auto schedule = tile::scheduleAttr.get(kernel);
      if (!schedule || schedule.getKind() != ScheduleKind::Wgmma || !schedule.getPingPong().value_or(false))
        continue;
      SmallVector<scf::ForOp> found;
      kernel.walk<WalkOrder::PreOrder>([&](scf::ForOp loop) {
        if (startsMmas(loop))
          found.push_back(loop);
        return WalkResult::skip();
      });
      if (found.size() != 1) {
        kernel.emitOpError("expected one outermost loop that starts MMAs, got ")
            << found.size() << ": its schedule says that warpgroups take turns";
        return signalPassFailure();
      }
      loops += Turns(found.front(), schedule).insert();
    }
  }
};

} // namespace
