//===- RingCounters.cpp - Counters of rings' tiles ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RingCounters.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/SmallVectorExtras.h"

using namespace mlir;
using namespace mlir::tile;

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

static bool shareRing(ArrayRef<Operation *> some, ArrayRef<Operation *> others) {
  return llvm::any_of(some, [&](Operation *op) {
    return llvm::any_of(others, [&](Operation *other) { return ringOf(op) == ringOf(other); });
  });
}

static SmallVector<Operation *> partIn(Region &region, ArrayRef<Operation *> operations) {
  auto inRegion = [&](Operation *op) { return region.isAncestor(op->getParentRegion()); };
  return llvm::to_vector(llvm::make_filter_range(operations, inRegion));
}

static void findRoles(Block &block, ArrayRef<Operation *> operations, SmallVectorImpl<RingRole> &roles) {
  llvm::MapVector<Operation *, SmallVector<Operation *>> parts;
  for (Operation *op : operations)
    parts[block.findAncestorOpInBlock(*op)].push_back(op);
  RingRole role{&block, {}};
  for (auto &[part, inside] : parts) {
    bool parted = isa<scf::IfOp>(part) && llvm::none_of(parts, [&, part = part, &mine = inside](auto &other) {
                    return other.first != part && shareRing(mine, other.second);
                  });
    if (!parted) {
      llvm::append_range(role.operations, inside);
      continue;
    }
    for (Region &branch : part->getRegions())
      if (SmallVector<Operation *> inBranch = partIn(branch, inside); !inBranch.empty())
        findRoles(branch.front(), inBranch, roles);
  }
  if (!role.operations.empty())
    roles.push_back(role);
}

FailureOr<SmallVector<RingRole>> tile::findRingRoles(func::FuncOp kernel) {
  SmallVector<Operation *> operations;
  kernel.walk([&](Operation *op) {
    if (ringOf(op))
      operations.push_back(op);
  });
  SmallVector<RingRole> roles;
  findRoles(kernel.front(), operations, roles);
  for (const RingRole &role : roles)
    for (Operation *op : role.operations)
      for (Operation *other : role.operations)
        if (isa<ProduceOp>(op) && isa<ConsumeOp>(other) && ringOf(op) == ringOf(other)) {
          auto diagnostic = op->emitOpError("is of a ring that the same warps consume");
          diagnostic.attachNote(other->getLoc()) << "consumed here";
          return diagnostic;
        }
  return roles;
}

//===----------------------------------------------------------------------===//
// Counters
//===----------------------------------------------------------------------===//

RingCounters::RingCounters(const RingRole &role) : role(role), b(role.operations.front()->getContext()) {
  llvm::MapVector<Value, SmallVector<Block *>> blocks;
  for (Operation *op : role.operations)
    blocks[ringOf(op)].push_back(op->getBlock());
  unsigned count = 0;
  for (auto &[ring, places] : blocks) {
    auto same = llvm::find_if(blocks, [&places = places](auto &other) { return other.second == places; });
    tiles[ring] = same->first == ring ? count++ : tiles.lookup(same->first);
  }
  for (Operation *op : role.operations)
    if (auto produce = dyn_cast<ProduceOp>(op);
        produce && !produce.getCopies().front().getOps<ClearOp>().empty())
      if (cleared.try_emplace(produce.getRing(), count).second)
        ++count;
  values.resize(count);
}

void RingCounters::run(Lower lowerBlock) {
  lower = lowerBlock;
  Operation *first = role.block->findAncestorOpInBlock(*role.operations.front());
  b.setInsertionPoint(first);
  Value zero = arith::ConstantIntOp::create(b, first->getLoc(), 0, 32);
  values.assign(values.size(), zero);
  enter(*role.block, role.operations);
}

/// Returns the indices of the values that these produces and consumes count.
SmallVector<unsigned> RingCounters::numbersOf(ArrayRef<Operation *> operations) const {
  llvm::SmallBitVector numbers(values.size());
  for (Operation *op : operations) {
    numbers.set(tiles.lookup(ringOf(op)));
    if (auto clears = cleared.find(ringOf(op)); clears != cleared.end())
      numbers.set(clears->second);
  }
  return SmallVector<unsigned>(numbers.set_bits());
}

SmallVector<Value> RingCounters::pick(ArrayRef<unsigned> numbers) const {
  return llvm::map_to_vector(numbers, [&](unsigned number) { return values[number]; });
}

void RingCounters::assign(ArrayRef<unsigned> numbers, ValueRange from) {
  for (auto [number, value] : llvm::zip_equal(numbers, from))
    values[number] = value;
}

/// Enters a block. Tiles are counted at its end: produces and consumes of a block have equal numbers.
void RingCounters::enter(Block &block, ArrayRef<Operation *> operations) {
  SmallVector<Operation *> here;
  llvm::MapVector<Operation *, SmallVector<Operation *>> around;
  llvm::SmallSetVector<unsigned, 4> counted;
  for (Operation *op : operations) {
    if (op->getBlock() != &block) {
      around[block.findAncestorOpInBlock(*op)].push_back(op);
      continue;
    }
    here.push_back(op);
    counted.insert(tiles.lookup(ringOf(op)));
  }
  if (!here.empty())
    lower(*this, here);
  for (auto &[op, inside] : around) {
    SmallVector<unsigned> numbers = numbersOf(inside);
    SmallVector<Value> before = values;
    Operation *passed = isa<scf::ForOp>(op) ? passLoop(cast<scf::ForOp>(op), numbers, inside)
                                            : passBranch(cast<scf::IfOp>(op), numbers, inside);
    values = before;
    assign(numbers, passed->getResults().take_back(numbers.size()));
  }
  Operation *end = block.getTerminator();
  b.setInsertionPoint(end);
  for (unsigned number : counted) {
    Value one = arith::ConstantIntOp::create(b, end->getLoc(), 1, 32);
    values[number] = arith::AddIOp::create(b, end->getLoc(), values[number], one);
  }
}

Operation *RingCounters::passLoop(scf::ForOp loop, ArrayRef<unsigned> numbers,
                                  ArrayRef<Operation *> operations) {
  b.setInsertionPoint(loop);
  FailureOr<LoopLikeOpInterface> carries = loop.replaceWithAdditionalYields(
      b, pick(numbers), /*replaceInitOperandUsesInLoop=*/false,
      [](OpBuilder &, Location, ArrayRef<BlockArgument> carried) {
        return SmallVector<Value>(carried.begin(), carried.end()); // until the body is known
      });
  loop = cast<scf::ForOp>(*carries); // it cannot fail
  assign(numbers, loop.getRegionIterArgs().take_back(numbers.size()));
  enter(*loop.getBody(), operations);
  Operation *yield = loop.getBody()->getTerminator();
  yield->setOperands(yield->getNumOperands() - numbers.size(), numbers.size(), pick(numbers));
  return loop;
}

Operation *RingCounters::passBranch(scf::IfOp branch, ArrayRef<unsigned> numbers,
                                    ArrayRef<Operation *> operations) {
  b.setInsertionPoint(branch);
  SmallVector<Type> types(branch.getResultTypes());
  types.append(numbers.size(), b.getI32Type());
  auto carries = scf::IfOp::create(b, branch.getLoc(), types, branch.getCondition(), /*addThenBlock=*/false,
                                   /*addElseBlock=*/false);
  SmallVector<Value> before = values;
  SmallVector<Operation *> parts[] = {partIn(branch.getThenRegion(), operations),
                                      partIn(branch.getElseRegion(), operations)};
  for (auto [from, to, inside] : llvm::zip_equal(branch->getRegions(), carries->getRegions(), parts)) {
    if (from.empty()) {
      b.createBlock(&to);
      scf::YieldOp::create(b, branch.getLoc());
    } else {
      to.takeBody(from);
    }
    values = before;
    enter(to.front(), inside);
    Operation *yield = to.front().getTerminator();
    yield->insertOperands(yield->getNumOperands(), pick(numbers));
  }
  b.replaceOp(branch, carries.getResults().take_front(branch.getNumResults()));
  return carries;
}
