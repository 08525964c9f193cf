//===- MergeKernel.cpp - One result from the parts of a row ---------------===//
//
// Flash-Decoding's second kernel. A warp takes one (row, head) at a time from a
// CSR list and adds up its parts in the list's order, each weighted by
// exp(lse of the part - largest lse): the same merge of partial softmax states
// as everywhere else, in the unit where every sum is 1.
//
//===----------------------------------------------------------------------===//
#include "Kernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

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
  Value count = b.dimension("merge_rows");

  int64_t dim = chain.valueDim(), chunks = llvm::divideCeil(dim, 32);
  Value warp = WarpIdOp::create(b, i32), lane = LaneIdOp::create(b, i32);
  Value first = b.add(b.mul(BlockIdOp::create(b, i32), b.i32(warps)), warp);
  Value step = b.mul(BlockCountOp::create(b, i32), b.i32(warps));
  auto column = [&](int64_t chunk) { return b.add(lane, b.i32(chunk * 32)); };
  auto isColumn = [&](int64_t chunk) { return b.less(column(chunk), b.i32(dim)); };
  bool ragged = dim % 32 != 0;

  auto rows = scf::ForOp::create(b, first, count, step);
  b.setInsertionPointToStart(rows.getBody());
  Value row = b.wide(rows.getInductionVar());
  auto range = ReadRangeOp::create(b, i32, i32, starts, row);
  Value begin = range.getBegin(), end = range.getEnd();
  Value target = b.wide(b.read(outputs, row));

  // Thirty-two parts at a time, one per lane: which part and how much of the sum it holds. Then their
  // outputs, one after the other over all lanes.
  SmallVector<Value> initial(chunks + 2, b.f32(0)); // max, sum, columns
  initial[0] = b.f32(-infinity);
  auto parts = scf::ForOp::create(b, begin, end, b.i32(32), initial);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(parts.getBody());
    ValueRange in = parts.getRegionIterArgs();
    Value first = parts.getInductionVar(), mine = b.add(first, lane);
    Value part = b.read(partials, b.wide(b.min(mine, b.add(end, b.i32(-1)))));
    Value lseOfPart = b.select(b.less(mine, end), b.read(partLse, b.wide(part)), b.f32(-infinity));
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
    auto outputsOf = scf::ForOp::create(b, b.i32(0), count, b.i32(1), ArrayRef<Value>(next).drop_front(2));
    {
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(outputsOf.getBody());
      Value i = outputsOf.getInductionVar();
      Value origin = b.mul(b.wide(FromLaneOp::create(b, part, i)), b.i64(dim));
      Value share = FromLaneOp::create(b, weight, i);
      SmallVector<Value> columns;
      for (int64_t c = 0; c < chunks; ++c) {
        // Lanes past the last column read it again and drop the result.
        Value safe = ragged && c + 1 == chunks ? b.min(column(c), b.i32(dim - 1)) : column(c);
        Value value = b.read(partO, b.add(origin, b.wide(safe)));
        columns.push_back(math::FmaOp::create(b, value, share, outputsOf.getRegionIterArg(c)));
      }
      scf::YieldOp::create(b, columns);
    }
    next.resize(2);
    llvm::append_range(next, outputsOf.getResults());
    scf::YieldOp::create(b, next);
  }

  Value max = parts.getResult(0), sum = parts.getResult(1);
  Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, sum, b.f32(0));
  Value inverse = b.select(some, ReciprocalOp::create(b, sum), b.f32(0));
  for (int64_t c = 0; c < chunks; ++c) {
    auto write = [&] {
      Value value = arith::MulFOp::create(b, parts.getResult(c + 2), inverse);
      WriteOp::create(b, value, output, b.add(b.mul(target, b.i64(dim)), b.wide(column(c))));
    };
    if (!ragged || c + 1 < chunks) {
      write();
      continue;
    }
    auto guarded = scf::IfOp::create(b, isColumn(c));
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
  b.setInsertionPointAfter(rows);
  b.finish(warps * 32);
}
