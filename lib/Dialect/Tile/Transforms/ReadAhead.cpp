//===- ReadAhead.cpp - Loops carry the next iteration's record ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   for i = a to b:              r = record[a]
//     r = record[i]              for i = a to b carrying r:
//     use r               =>       use r
//                                  next = record[i + 1] if i + 1 < b
//
// A loop inside such a loop that runs over a range from the outer record finds its own first record carried,
// too. The outer loop requests it as soon as the record with the range has arrived. So an inner loop starts
// without waiting for a record, unless there was no time to read it.
//
// The next record is requested at the end of an iteration or, if the body reads its own record again, before
// that read: there the kernel has registers again. An inner loop requests it after its last MMA if what
// follows reads memory, too, as the fold of a part: both are waited for at once.
//
// Loops without an MMA are unchanged. Warps that only copy have few registers, and time to wait.
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
#include "mlir/IR/PatternMatch.h"

#define DEBUG_TYPE "tile-read-ahead"

namespace mlir::tile {
#define GEN_PASS_DEF_READAHEADPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Whether an operation is an MMA, or has one in it.
bool multiplies(Operation *op) {
  return op
      ->walk([](Operation *inner) {
        return isa<MmaOp, StartMmaOp>(inner) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Returns the records of an iteration that its body reads, in order: at least the first, if it reads any.
SmallVector<RecordOp> recordsOf(scf::ForOp loop) {
  SmallVector<RecordOp> records;
  for (auto record : loop.getBody()->getOps<RecordOp>())
    if (record.getIndex() == loop.getInductionVar() &&
        (records.empty() || record.getBuffer() == records.front().getBuffer()))
      records.push_back(record);
  return records;
}

/// A loop in the body of another, over records [begin, end) from two fields of the outer loop's record.
struct Inner {
  scf::ForOp loop;
  RecordOp record;
  unsigned begin, end;
};

class Reader {
public:
  Reader(scf::ForOp loop) : rewriter(loop.getContext()), loop(loop) {}

  /// Lets the loop carry its record and the first records of loops in it. Returns the number of loops that
  /// carry records.
  size_t run();

private:
  SmallVector<Inner> innerLoops(RecordOp record);
  /// Reads record `index` of the array of `like` if `exists`; otherwise returns zeros.
  SmallVector<Value> readIf(ImplicitLocOpBuilder &b, Value exists, RecordOp like, Value index);
  Value less(ImplicitLocOpBuilder &b, Value x, Value y) {
    return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::slt, x, y);
  }
  /// Reads the record after the iteration's own.
  SmallVector<Value> readNext(ImplicitLocOpBuilder &b, scf::ForOp loop, RecordOp like) {
    Value next = b.createOrFold<arith::AddIOp>(loop.getInductionVar(), loop.getStep());
    return readIf(b, less(b, next, loop.getUpperBound()), like, next);
  }
  /// Reads the first iteration's record, before the loop.
  SmallVector<Value> readFirst(ImplicitLocOpBuilder &b, RecordOp record, Value begin, Value end) {
    if (!record.getFirst().empty())
      return SmallVector<Value>(record.getFirst());
    return readIf(b, less(b, begin, end), record, begin);
  }

  IRRewriter rewriter;
  scf::ForOp loop;
};

SmallVector<Inner> Reader::innerLoops(RecordOp record) {
  SmallVector<Inner> found;
  auto field = [&](Value value) {
    auto result = dyn_cast<OpResult>(value);
    return result && result.getOwner() == record ? std::optional(result.getResultNumber()) : std::nullopt;
  };
  for (auto inner : loop.getBody()->getOps<scf::ForOp>()) {
    auto begin = field(inner.getLowerBound()), end = field(inner.getUpperBound());
    SmallVector<RecordOp> records = recordsOf(inner);
    if (begin && end && !records.empty())
      found.push_back({inner, records.front(), *begin, *end});
  }
  return found;
}

SmallVector<Value> Reader::readIf(ImplicitLocOpBuilder &b, Value exists, RecordOp like, Value index) {
  return SmallVector<Value>(
      RecordOp::create(b, TypeRange(like.getFields()), like.getBuffer(), index, exists, ValueRange())
          .getFields());
}

/// Whether an operation, or one in it, reads memory.
bool reads(Operation *op) {
  return op
      ->walk([](Operation *inner) {
        auto effects = dyn_cast<MemoryEffectOpInterface>(inner);
        return effects && effects.hasEffect<MemoryEffects::Read>() ? WalkResult::interrupt()
                                                                   : WalkResult::advance();
      })
      .wasInterrupted();
}

/// The registers of a lane for the fragments that a loop carries.
int64_t carriedRegisters(scf::ForOp loop) {
  constexpr int64_t lanes = 32;
  int64_t elements = 0;
  for (Type type : loop.getResultTypes())
    if (auto fragment = dyn_cast<FragmentType>(type))
      elements += llvm::product_of(fragment.getSizes());
  return elements / lanes;
}

/// Returns the operation in front of which a loop requests its next record: after the last one that
/// multiplies, if something behind it waits for memory anyway, or else at the end. Long accumulators leave no
/// registers for a record beside them: heads of 256 with soft caps and sinks spilled.
Operation *requestsAt(scf::ForOp loop) {
  constexpr int64_t mostCarried = 96;
  Operation *end = loop.getBody()->getTerminator(), *behind = end;
  if (carriedRegisters(loop) > mostCarried)
    return end;
  bool waits = false;
  for (Operation *op = end->getPrevNode(); op; op = op->getPrevNode()) {
    if (multiplies(op))
      return waits ? behind : end;
    waits |= reads(op);
    behind = op;
  }
  return end;
}

size_t Reader::run() {
  SmallVector<RecordOp> records = recordsOf(loop);
  RecordOp record = records.front();
  SmallVector<Inner> inners = innerLoops(record);
  size_t fields = record.getNumResults();
  ImplicitLocOpBuilder b(loop.getLoc(), loop);
  SmallVector<Value> inits = readFirst(b, record, loop.getLowerBound(), loop.getUpperBound());
  for (Inner &inner : inners)
    llvm::append_range(inits, readFirst(b, inner.record, inits[inner.begin], inits[inner.end]));

  SmallVector<Value> carried;
  auto yields = [&](OpBuilder &, Location, ArrayRef<BlockArgument> arguments) {
    llvm::append_range(carried, arguments);
    Operation *yield = loop.getBody()->getTerminator();
    b.setInsertionPoint(records.size() > 1 ? records[1].getOperation() : yield);
    SmallVector<Value> next = readNext(b, loop, record);
    b.setInsertionPoint(yield);
    for (Inner &inner : inners)
      llvm::append_range(
          next, readIf(b, less(b, next[inner.begin], next[inner.end]), inner.record, next[inner.begin]));
    rewriter.replaceOp(record, ValueRange(carried).take_front(fields));
    return next;
  };
  loop = cast<scf::ForOp>(*cast<LoopLikeOpInterface>(*loop).replaceWithAdditionalYields(
      rewriter, inits, /*replaceInitOperandUsesInLoop=*/false, yields));

  // The loop's carried values now contain the inner loops' first records.
  ValueRange firsts = loop.getRegionIterArgs().take_back(inits.size() - fields);
  for (Inner &inner : inners) {
    size_t count = inner.record.getNumResults();
    auto innerYields = [&](OpBuilder &, Location, ArrayRef<BlockArgument> arguments) {
      b.setInsertionPoint(requestsAt(inner.loop));
      SmallVector<Value> next = readNext(b, inner.loop, inner.record);
      rewriter.replaceOp(inner.record, SmallVector<Value>(arguments.begin(), arguments.end()));
      return next;
    };
    (void)cast<LoopLikeOpInterface>(*inner.loop)
        .replaceWithAdditionalYields(rewriter, firsts.take_front(count), false, innerYields);
    firsts = firsts.drop_front(count);
  }
  return 1 + inners.size();
}

struct ReadAhead : tile::impl::ReadAheadPassBase<ReadAhead> {
  void runOnOperation() override {
    SmallVector<scf::ForOp> found;
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      kernel.walk<WalkOrder::PreOrder>([&](scf::ForOp loop) {
        if (!multiplies(loop)) {
          decline(DEBUG_TYPE, loop, "it has no MMA");
          return WalkResult::skip();
        }
        if (recordsOf(loop).empty()) {
          decline(DEBUG_TYPE, loop, "it reads no record of its own iteration");
          return WalkResult::advance();
        }
        found.push_back(loop);
        return WalkResult::skip();
      });
    for (scf::ForOp loop : found)
      loops += Reader(loop).run();
  }
};

} // namespace
