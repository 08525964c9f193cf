//===- MergeKernel.cpp - One result from the parts of a row ---------------===//
//
// Flash-Decoding's second kernel. A warp takes one (row, head) at a time from a
// CSR list and adds up its parts in the list's order, each weighted by
// exp(lse of the part - largest lse): the same merge of partial softmax states
// as everywhere else, in the unit where every sum is 1.
//
// The kernel starts while the attention still runs. Where its first row's parts
// are says the plan, so it has asked for that when it begins to wait.
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

/// The (row, head) that the plan's number of a row and a slot means: query heads of a group are neighbours in
/// both.
static Value outputOf(KernelBuilder &b, Chain &chain, Value number) {
  if (!chain.headClasses())
    return number;
  Value slot = b.div(b.rem(number, chain.queryHeads()), chain.group());
  Value head = b.read(b.buffer("slot_heads", b.getI32Type()), b.wide(slot));
  return b.add(number, b.mul(b.sub(head, slot), b.i32(chain.group())));
}

void attn::writeMergeKernel(Chain &chain, gpu::GPUModuleOp module, StringRef name) {
  constexpr int64_t warps = 4;
  constexpr double log2e = 1.4426950408889634;
  const double infinity = std::numeric_limits<double>::infinity();
  KernelBuilder b(module, name, chain.finish.getLoc());
  Type i32 = b.getI32Type(), f32 = b.getF32Type();
  Value output = b.buffer("o", chain.element());
  Value lse = chain.finish.getLse() ? b.buffer("lse", f32) : Value();
  Value starts = b.buffer("plan.merge_start", i32), outputs = b.buffer("plan.merge_rows", i32);
  Value partials = b.buffer("plan.merge_partials", i32);
  Value partO = b.buffer("partial.o", f32), partLse = b.buffer("partial.lse", f32);
  // How many there are is part of the plan, too: a launch that was recorded serves every plan. Starts follow.
  Value count = b.read(starts, b.i64(0));
  auto startOf = [&](Value row) { return b.add(b.wide(row), b.i64(1)); };

  // Every lane has four adjacent columns of each 128.
  int64_t dim = chain.valueDim(), chunks = llvm::divideCeil(dim, 128);
  Value warp = WarpIdOp::create(b, i32), lane = LaneIdOp::create(b, i32);
  Value first = b.add(b.mul(BlockIdOp::create(b, i32), b.i32(warps)), warp);
  Value step = b.mul(BlockCountOp::create(b, i32), b.i32(warps));
  auto column = [&](int64_t chunk) { return b.add(b.mul(lane, b.i32(4)), b.i32(chunk * 128)); };
  auto isRagged = [&](int64_t chunk) { return (chunk + 1) * 128 > dim; };

  /// What the body yields where `exists`, else zeros.
  auto readIf = [&](Value exists, size_t results, function_ref<SmallVector<Value>()> body) {
    auto some = scf::IfOp::create(b, SmallVector<Type>(results, i32), exists, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(some.elseBlock());
    scf::YieldOp::create(b, SmallVector<Value>(results, b.i32(0)));
    b.setInsertionPointToStart(some.thenBlock());
    scf::YieldOp::create(b, body());
    return SmallVector<Value>(some.getResults());
  };
  // Thirty-two parts at a time, one per lane.
  auto partOf = [&](Value from, Value end) {
    return b.read(partials, b.wide(b.min(b.add(from, lane), b.add(end, b.i32(-1)))));
  };
  // What the plan says of a row: its parts' places in the list, the output, the first parts.
  auto planOf = [&](Value row) {
    return readIf(b.less(row, count), 4, [&]() -> SmallVector<Value> {
      auto range = ReadRangeOp::create(b, i32, i32, starts, startOf(row));
      return {range.getBegin(), range.getEnd(), outputOf(b, chain, b.read(outputs, b.wide(row))),
              partOf(range.getBegin(), range.getEnd())};
    });
  };
  SmallVector<Value> ofFirst = planOf(first);
  AwaitPreviousOp::create(b);
  auto rows = scf::ForOp::create(b, first, count, step, ofFirst);
  b.setInsertionPointToStart(rows.getBody());
  Value begin = rows.getRegionIterArg(0), end = rows.getRegionIterArg(1);
  Value target = b.wide(rows.getRegionIterArg(2));

  // How much of the sum each part holds. Then their outputs, several in flight at once.
  SmallVector<Value> initial(4 * chunks + 2, b.f32(0)); // max, sum, columns
  initial[0] = b.f32(-infinity);
  initial.push_back(rows.getRegionIterArg(3));
  auto parts = scf::ForOp::create(b, begin, end, b.i32(32), initial);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(parts.getBody());
    ValueRange in = parts.getRegionIterArgs().drop_back();
    Value part = parts.getRegionIterArgs().back();
    Value first = parts.getInductionVar(), mine = b.add(first, lane);
    Value written = tile::ReadOp::create(b, f32, partLse, b.wide(part), b.getUnitAttr());
    Value lseOfPart = b.select(b.less(mine, end), written, b.f32(-infinity));
    Value max = arith::MaxNumFOp::create(b, in[0], ReduceLanesOp::create(b, f32, Combine::Max, lseOfPart));
    Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, max, b.f32(-infinity));
    Value base = b.select(nothing, b.f32(0), max);
    auto relative = [&](Value value) -> Value {
      Value distance = arith::SubFOp::create(b, value, base);
      return math::Exp2Op::create(b, arith::MulFOp::create(b, distance, b.f32(log2e)));
    };
    Value weight = relative(lseOfPart), decay = relative(in[0]);
    SmallVector<Value> next{
        max, math::FmaOp::create(b, in[1], decay, ReduceLanesOp::create(b, f32, Combine::Add, weight))};
    for (Value column : in.drop_front(2))
      next.push_back(arith::MulFOp::create(b, column, decay));

    Value count = b.min(b.sub(end, first), b.i32(32));
    auto addParts = [&](Value from, Value to, int64_t step, ValueRange columns) -> ValueRange {
      auto loop = scf::ForOp::create(b, from, to, b.i32(step), columns);
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(loop.getBody());
      // Exchanges first, then loads, then sums: ptxas keeps to that order, and loads overlap.
      SmallVector<Value> origins, shares, values, sums(loop.getRegionIterArgs());
      for (int64_t i = 0; i < step; ++i) {
        Value which = b.add(loop.getInductionVar(), b.i32(i));
        origins.push_back(b.mul(b.wide(FromLaneOp::create(b, part, which)), b.i64(dim)));
        shares.push_back(FromLaneOp::create(b, weight, which));
      }
      for (Value origin : origins) {
        for (int64_t c = 0; c < chunks; ++c) {
          // Lanes past the last column read it again and drop the result.
          Value safe = isRagged(c) ? b.min(column(c), b.i32(dim - 4)) : column(c);
          auto read =
              ReadAdjacentOp::create(b, SmallVector<Type>(4, f32), partO, b.add(origin, b.wide(safe)));
          llvm::append_range(values, read.getValues());
        }
      }
      for (size_t i = 0; i < values.size(); ++i) {
        Value &sum = sums[i % sums.size()];
        sum = math::FmaOp::create(b, values[i], shares[i / sums.size()], sum);
      }
      scf::YieldOp::create(b, sums);
      return loop.getResults();
    };
    // As many at once as there are registers for, and the rest in halves of that: a round is a latency.
    SmallVector<Value> columns(ArrayRef<Value>(next).drop_front(2));
    Value from = b.i32(0);
    for (int64_t step = chunks == 1 ? 16 : 8; step > 0; step /= 2) {
      Value to = b.sub(count, b.rem(count, step));
      llvm::copy(addParts(from, to, step, columns), columns.begin());
      from = to;
    }
    next.resize(2);
    llvm::append_range(next, columns);
    Value following = b.add(first, b.i32(32));
    llvm::append_range(next, readIf(b.less(following, end), 1,
                                    [&]() -> SmallVector<Value> { return {partOf(following, end)}; }));
    scf::YieldOp::create(b, next);
  }

  Value max = parts.getResult(0), sum = parts.getResult(1);
  Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, sum, b.f32(0)); // a NaN is
  Value inverse = b.select(some, ReciprocalOp::create(b, sum), b.f32(0));
  for (int64_t c = 0; c < chunks; ++c) {
    auto write = [&] {
      SmallVector<Value> values;
      for (int64_t i = 0; i < 4; ++i)
        values.push_back(arith::MulFOp::create(b, parts.getResult(4 * c + i + 2), inverse));
      WriteAdjacentOp::create(b, values, output, b.add(b.mul(target, b.i64(dim)), b.wide(column(c))));
    };
    if (!isRagged(c)) {
      write();
      continue;
    }
    auto guarded = scf::IfOp::create(b, b.less(column(c), b.i32(dim)));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(guarded.thenYield());
    write();
  }
  if (lse) {
    auto once = scf::IfOp::create(b, b.compare(arith::CmpIPredicate::eq, lane, b.i32(0)));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(once.thenYield());
    Value log = arith::MulFOp::create(b, math::Log2Op::create(b, sum), b.f32(1 / log2e));
    WriteOp::create(b, b.select(some, arith::AddFOp::create(b, max, log), b.f32(-infinity)), lse, target);
  }
  scf::YieldOp::create(b, planOf(b.add(rows.getInductionVar(), step)));
  b.setInsertionPointAfter(rows);
  // Registers for loads in flight, and few enough (102) to wait beside two blocks of decode on a
  // multiprocessor.
  b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(5));
  b.finish(warps * 32);
}
