//===- Rings.cpp - Fills, takes and uses of rings' tiles ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Rings.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::tile;

Value tile::ringOf(Operation *op) {
  if (auto fill = dyn_cast<FillOp>(op))
    return fill.getRing();
  if (auto take = dyn_cast<TakeOp>(op))
    return take.getRing();
  return {};
}

//===----------------------------------------------------------------------===//
// Fills
//===----------------------------------------------------------------------===//

/// How many fetches each way through a block makes; none where ways differ.
static std::optional<int64_t> fetchesOf(Block &block) {
  int64_t count = 0;
  for (Operation &op : block) {
    if (isa<FetchOp>(op)) {
      ++count;
    } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
      std::optional<int64_t> inThen = fetchesOf(*branch.thenBlock());
      std::optional<int64_t> inElse = branch.elseBlock() ? fetchesOf(*branch.elseBlock()) : 0;
      if (!inThen || inThen != inElse)
        return std::nullopt;
      count += *inThen;
    } else if (op.walk([](FetchOp) { return WalkResult::interrupt(); }).wasInterrupted()) {
      return std::nullopt;
    }
  }
  return count;
}

/// The fetch arrives at another barrier where lines are cleared behind it, so it must know whether they are.
static LogicalResult verifyClear(FillOp fill, FillCopies copies) {
  Block &block = fill.getCopies().front();
  if (!copies.fetch || copies.clear->getBlock() != &block || copies.clear.getTile() != block.getArgument(0))
    return copies.clear.emitOpError("expected to clear lines of the tile that a fetch beside it fills");
  if (copies.clear->isBeforeInBlock(copies.fetch) || copies.clear->getNextNode())
    return copies.clear.emitOpError("expected to be the last operation of a tile.fill");
  for (Operation *op = copies.fetch->getNextNode(); op != copies.clear; op = op->getNextNode())
    if (!isMemoryEffectFree(op))
      return op->emitOpError("expected pure operations between a fetch and a clear");
  return success();
}

FailureOr<FillCopies> tile::copiesOf(FillOp fill) {
  FillCopies copies;
  Block &block = fill.getCopies().front();
  bool fetches = false;
  WalkResult found = block.walk([&](Operation *op) -> WalkResult {
    if (auto gather = dyn_cast<GatherOp>(op)) {
      copies.gathers = true;
      if (Scope scope = fill.getWarp() ? Scope::Warp : Scope::Producers; gather.getScope() != scope)
        return gather.emitOpError("expected scope ")
                   << stringifyScope(scope) << " in a tile.fill" << (fill.getWarp() ? " of one warp" : ""),
               WalkResult::interrupt();
    } else if (auto fetch = dyn_cast<FetchOp>(op)) {
      fetches = true;
      if (fetch.getBarriers())
        return fetch.emitOpError("expected no barriers in a tile.fill"), WalkResult::interrupt();
      if (fetch->getBlock() == &block)
        copies.fetch = fetch;
    } else if (auto clear = dyn_cast<ClearOp>(op)) {
      if (copies.clear)
        return clear.emitOpError("is the second of a tile.fill"), WalkResult::interrupt();
      copies.clear = clear;
    }
    return WalkResult::advance();
  });
  if (found.wasInterrupted())
    return failure();
  if (copies.gathers == fetches)
    return fill.emitOpError("expected a fetch, or gathers");
  if (fetches && !fill.getWarp())
    return fill.emitOpError("fetches: expected the number of the only warp that does");
  if (fetches && fetchesOf(block) != 1)
    return fill.emitOpError("expected one fetch on each way through its region");
  if (copies.clear && failed(verifyClear(fill, copies)))
    return failure();
  return copies;
}

//===----------------------------------------------------------------------===//
// Takes
//===----------------------------------------------------------------------===//

namespace {
/// Follows a tile: through overlays, started dots and the results of branches.
struct Follower {
  TakeOp take;
  TileUses uses;
  bool onlyDots = true;

  LogicalResult follow(Value value) {
    for (OpOperand &use : value.getUses())
      if (failed(follow(use)))
        return failure();
    return success();
  }

private:
  LogicalResult follow(OpOperand &use) {
    Operation *user = use.getOwner();
    Operation *inBlock = take->getBlock()->findAncestorOpInBlock(*user);
    bool carried = isa<scf::ForOp>(user) || (isa<scf::YieldOp>(user) && !isa<scf::IfOp>(user->getParentOp()));
    if (!inBlock || inBlock->hasTrait<OpTrait::IsTerminator>() || carried)
      return take.emitOpError("expected its uses in the block that takes the tile, not in what follows it");
    add(inBlock);
    if (isa<scf::YieldOp>(user))
      return follow(user->getParentOp()->getResult(use.getOperandNumber()));
    if (auto overlay = dyn_cast<OverlayOp>(user))
      return follow(overlay.getResult());
    if (auto dot = dyn_cast<StartDotOp>(user)) {
      if (isa<SharedType>(use.get().getType()))
        uses.dots.push_back(dot);
      return follow(dot.getResult());
    }
    uses.sent |= isa<SendOp>(user);
    onlyDots &= isa<FinishDotsOp>(user);
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

FailureOr<TileUses> tile::usesOf(TakeOp take) {
  Follower follower{take, {}};
  if (failed(follower.follow(take.getTile())))
    return failure();
  TileUses &uses = follower.uses;
  uses.endsWithDot = follower.onlyDots && isa_and_nonnull<FinishDotsOp>(uses.last);
  return uses;
}

//===----------------------------------------------------------------------===//
// Rings
//===----------------------------------------------------------------------===//

int64_t Ring::getDepth() const {
  int64_t depth = 0;
  for (Operation *op = fills.front(); (op = op->getParentOfType<scf::ForOp>());)
    ++depth;
  return depth;
}

/// All operations on a ring are in loops and branches, none in the block of another or within it.
static LogicalResult verifyPlaces(ArrayRef<Operation *> operations) {
  for (Operation *op : operations) {
    for (Operation *parent = op->getParentOp(); !isa<func::FuncOp>(parent); parent = parent->getParentOp())
      if (!isa<scf::ForOp, scf::IfOp>(parent))
        return op->emitOpError("expected to be in loops and branches alone, found ") << parent->getName();
    for (Operation *other : operations)
      if (other != op && op->getBlock()->findAncestorOpInBlock(*other)) {
        auto diagnostic = op->emitOpError("expected nothing else of its ring in the block");
        diagnostic.attachNote(other->getLoc()) << "found here";
        return diagnostic;
      }
  }
  return success();
}

/// Finds out about a ring whose fills and takes are known.
static LogicalResult complete(Ring &ring) {
  auto &[tiles, fills, takes, gathers, clears, sent, full, empty] = ring;
  if (fills.empty() || takes.empty())
    return tiles.emitOpError("is a ring that is ")
           << (fills.empty() ? "taken and not filled" : "filled and not taken");
  SmallVector<Operation *> operations(fills);
  llvm::append_range(operations, takes);
  if (failed(verifyPlaces(operations)))
    return failure();
  for (Operation *op : fills) {
    if (!op->use_empty())
      return op->emitOpError("has uses where it is filled: --tile-specialize-warps parts them");
    FailureOr<FillCopies> copies = copiesOf(cast<FillOp>(op));
    if (failed(copies))
      return failure();
    if (op != fills.front() && gathers != copies->gathers)
      return op->emitOpError("expected all fills of a ring to gather, or all to fetch");
    gathers = copies->gathers;
    clears |= copies->clear != nullptr;
  }
  for (Operation *op : takes) {
    FailureOr<TileUses> uses = usesOf(cast<TakeOp>(op));
    if (failed(uses))
      return failure();
    if (uses->sent && !op->getParentOfType<scf::ForOp>())
      return op->emitOpError("expected a loop around a tile that is sent");
    if (op != takes.front() && sent != uses->sent)
      return op->emitOpError("expected all tiles of a ring to be sent, or none");
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
    (isa<FillOp>(op) ? place->second.fills : place->second.takes).push_back(op);
    return WalkResult::advance();
  });
  rings.remove_if([](auto &entry) { return entry.second.fills.empty() && entry.second.takes.empty(); });
  if (found.wasInterrupted() ||
      llvm::any_of(rings, [](auto &entry) { return failed(complete(entry.second)); }))
    return failure();
  return rings;
}
