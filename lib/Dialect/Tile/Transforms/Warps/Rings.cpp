//===- Rings.cpp - Producers, consumers and uses of rings' tiles ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Rings.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::tile;

Value tile::ringOf(Operation *op) {
  if (auto produce = dyn_cast<ProduceOp>(op))
    return produce.getRing();
  if (auto consume = dyn_cast<ConsumeOp>(op))
    return consume.getRing();
  return {};
}

//===----------------------------------------------------------------------===//
// Producers
//===----------------------------------------------------------------------===//

/// Returns the number of TMA loads on each path through a block; none if paths differ.
static std::optional<int64_t> tmaLoadsOf(Block &block) {
  int64_t count = 0;
  for (Operation &op : block) {
    if (isa<TmaLoadOp>(op)) {
      ++count;
    } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
      std::optional<int64_t> inThen = tmaLoadsOf(*branch.thenBlock());
      std::optional<int64_t> inElse = branch.elseBlock() ? tmaLoadsOf(*branch.elseBlock()) : 0;
      if (!inThen || inThen != inElse)
        return std::nullopt;
      count += *inThen;
    } else if (op.walk([](TmaLoadOp) { return WalkResult::interrupt(); }).wasInterrupted()) {
      return std::nullopt;
    }
  }
  return count;
}

/// Verifies a clear. The TMA load arrives at another barrier if lines are cleared after it, so it must know
/// whether they are.
static LogicalResult verifyClear(ProduceOp produce, ProducedCopies copies) {
  Block &block = produce.getCopies().front();
  if (!copies.tmaLoad || copies.clear->getBlock() != &block || copies.clear.getTile() != block.getArgument(0))
    return copies.clear.emitOpError(
        "expected to clear lines of the tile of a TMA load in the same tile.produce");
  if (copies.clear->isBeforeInBlock(copies.tmaLoad) || copies.clear->getNextNode())
    return copies.clear.emitOpError("expected to be the last operation of a tile.produce");
  for (Operation *op = copies.tmaLoad->getNextNode(); op != copies.clear; op = op->getNextNode())
    if (!isMemoryEffectFree(op))
      return op->emitOpError("expected pure operations between a TMA load and a clear");
  return success();
}

/// Verifies that all producers widen the tile that they produce.
template <typename OpT> static LogicalResult verifyWiden(ProduceOp produce, OpT widen, bool fetches) {
  if (fetches || produce.getWarp())
    return widen.emitOpError("expected a tile.produce of all producers, without TMA loads");
  if (widen->getBlock() != &produce.getCopies().front() ||
      widen.getTarget() != produce.getCopies().front().getArgument(0))
    return widen.emitOpError("expected to widen to the tile of the enclosing tile.produce");
  return success();
}

FailureOr<ProducedCopies> tile::copiesOf(ProduceOp produce) {
  ProducedCopies copies;
  Block &block = produce.getCopies().front();
  bool fetches = false;
  WalkResult found = block.walk([&](Operation *op) -> WalkResult {
    if (auto gather = dyn_cast<GatherOp>(op)) {
      copies.gathers = true;
      if (Scope scope = produce.getWarp() ? Scope::Warp : Scope::Producers; gather.getScope() != scope)
        return gather.emitOpError("expected scope ") << stringifyScope(scope) << " in a tile.produce"
                                                     << (produce.getWarp() ? " of one warp" : ""),
               WalkResult::interrupt();
    } else if (auto tmaLoad = dyn_cast<TmaLoadOp>(op)) {
      fetches = true;
      if (tmaLoad.getBarriers())
        return tmaLoad.emitOpError("expected no barriers in a tile.produce"), WalkResult::interrupt();
      if (tmaLoad->getBlock() == &block)
        copies.tmaLoad = tmaLoad;
    } else if (isa<WidenTileOp, WidenLinesOp>(op)) {
      copies.widen = op;
    } else if (auto clear = dyn_cast<ClearOp>(op)) {
      if (copies.clear)
        return clear.emitOpError("is the second clear of a tile.produce"), WalkResult::interrupt();
      copies.clear = clear;
    }
    return WalkResult::advance();
  });
  if (found.wasInterrupted())
    return failure();
  if (copies.widen) {
    copies.gathers = false; // to other tiles
    auto tile = dyn_cast<WidenTileOp>(copies.widen);
    if (failed(tile ? verifyWiden(produce, tile, fetches)
                    : verifyWiden(produce, cast<WidenLinesOp>(copies.widen), fetches)))
      return failure();
    return copies;
  }
  if (copies.gathers == fetches)
    return produce.emitOpError("expected a TMA load, or gathers");
  if (fetches && !produce.getWarp())
    return produce.emitOpError("needs `warp`: a TMA load is issued by one warp");
  if (fetches && tmaLoadsOf(block) != 1)
    return produce.emitOpError("expected one TMA load on each path through its region");
  if (copies.clear && failed(verifyClear(produce, copies)))
    return failure();
  return copies;
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

namespace {
/// Follows a tile: through overlays, started MMAs and the results of branches.
struct Follower {
  ConsumeOp consume;
  TileUses uses;
  bool onlyMmas = true;

  LogicalResult follow(Value value) {
    for (OpOperand &use : value.getUses())
      if (failed(follow(use)))
        return failure();
    return success();
  }

private:
  LogicalResult follow(OpOperand &use) {
    Operation *user = use.getOwner();
    Operation *inBlock = consume->getBlock()->findAncestorOpInBlock(*user);
    bool carried = isa<scf::ForOp>(user) || (isa<scf::YieldOp>(user) && !isa<scf::IfOp>(user->getParentOp()));
    if (!inBlock || inBlock->hasTrait<OpTrait::IsTerminator>() || carried)
      return consume.emitOpError("expected its uses in the block that consumes the tile, not after it");
    add(inBlock);
    if (isa<scf::YieldOp>(user))
      return follow(user->getParentOp()->getResult(use.getOperandNumber()));
    if (isa<OverlayOp, PanelsOp>(user))
      return follow(user->getResult(0));
    if (auto mma = dyn_cast<StartMmaOp>(user)) {
      if (isa<SharedType>(use.get().getType()))
        uses.mmas.push_back(mma);
      return follow(mma.getResult());
    }
    uses.sent |= isa<TmaStoreOp>(user);
    onlyMmas &= isa<WaitMmasOp>(user);
    return success();
  }

  void add(Operation *op) {
    if (!uses.first || op->isBeforeInBlock(uses.first))
      uses.first = op;
    if (!uses.last || uses.last->isBeforeInBlock(op))
      uses.last = op;
  }
};
} // namespace

FailureOr<TileUses> tile::usesOf(ConsumeOp consume) {
  Follower follower{consume, {}};
  if (failed(follower.follow(consume.getTile())))
    return failure();
  TileUses &uses = follower.uses;
  uses.endsWithMma = follower.onlyMmas && isa_and_nonnull<WaitMmasOp>(uses.last);
  return uses;
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

int64_t Ring::getDepth() const {
  int64_t depth = 0;
  for (Operation *op = produces.front(); (op = op->getParentOfType<scf::ForOp>());)
    ++depth;
  return depth;
}

/// Verifies that all operations on a ring are in loops and branches, and none is in the block of another or
/// inside it.
static LogicalResult verifyPlaces(ArrayRef<Operation *> operations) {
  for (Operation *op : operations) {
    for (Operation *parent = op->getParentOp(); !isa<func::FuncOp>(parent); parent = parent->getParentOp())
      if (!isa<scf::ForOp, scf::IfOp>(parent))
        return op->emitOpError("expected to be in loops and branches alone, found ") << parent->getName();
    for (Operation *other : operations)
      if (other != op && op->getBlock()->findAncestorOpInBlock(*other)) {
        auto diagnostic = op->emitOpError("expected one use of the ring per block");
        diagnostic.attachNote(other->getLoc()) << "found here";
        return diagnostic;
      }
  }
  return success();
}

/// Completes a ring whose produces and consumes are known.
static LogicalResult complete(Ring &ring) {
  auto &[tiles, produces, consumes, gathers, clears, sent, widens, full, empty] = ring;
  if (produces.empty() || consumes.empty())
    return tiles.emitOpError("is a ring that is ")
           << (produces.empty() ? "consumed and not produced" : "produced and not consumed");
  SmallVector<Operation *> operations(produces);
  llvm::append_range(operations, consumes);
  if (failed(verifyPlaces(operations)))
    return failure();
  for (Operation *op : produces) {
    if (!op->use_empty())
      return op->emitOpError("has uses in the producer: --tile-specialize-warps separates them");
    FailureOr<ProducedCopies> copies = copiesOf(cast<ProduceOp>(op));
    if (failed(copies))
      return failure();
    if (op != produces.front() && widens != (copies->widen != nullptr))
      return op->emitOpError("expected all tiles of a ring to be widened, or none");
    if (op != produces.front() && gathers != copies->gathers)
      return op->emitOpError("expected all tiles of a ring to be gathered, or all to be loaded by TMA");
    gathers = copies->gathers, widens = copies->widen != nullptr;
    clears |= copies->clear != nullptr;
  }
  for (Operation *op : consumes) {
    FailureOr<TileUses> uses = usesOf(cast<ConsumeOp>(op));
    if (failed(uses))
      return failure();
    if (uses->sent && !op->getParentOfType<scf::ForOp>())
      return op->emitOpError("expected a loop around a tile that a TMA store reads");
    if (op != consumes.front() && sent != uses->sent)
      return op->emitOpError("expected TMA stores of all tiles of a ring, or of none");
    sent = uses->sent;
  }
  return success();
}

FailureOr<Rings> tile::findRings(func::FuncOp kernel) {
  Rings rings;
  for (auto alloc : kernel.front().getOps<AllocOp>())
    if (isa<RingType>(alloc.getMemory().getType()))
      rings.insert({alloc.getMemory(), Ring{alloc, {}, {}}});
  WalkResult found = kernel.walk([&](Operation *op) -> WalkResult {
    Value ring = ringOf(op);
    if (!ring)
      return WalkResult::advance();
    auto place = rings.find(ring);
    if (place == rings.end())
      return op->emitOpError("expected a ring that the kernel's body allocates"), WalkResult::interrupt();
    (isa<ProduceOp>(op) ? place->second.produces : place->second.consumes).push_back(op);
    return WalkResult::advance();
  });
  rings.remove_if([](auto &entry) { return entry.second.produces.empty() && entry.second.consumes.empty(); });
  if (found.wasInterrupted() ||
      llvm::any_of(rings, [](auto &entry) { return failed(complete(entry.second)); }))
    return failure();
  return rings;
}
