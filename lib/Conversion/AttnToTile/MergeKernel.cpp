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
  Value begin = b.read(starts, row), end = b.read(starts, b.add(row, b.i64(1)));
  Value target = b.wide(b.read(outputs, row));
  auto partOf = [&](Value i) { return b.wide(b.read(partials, b.wide(i))); };

  auto largest = scf::ForOp::create(b, begin, end, b.i32(1), ValueRange{b.f32(-infinity)});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(largest.getBody());
    Value value = b.read(partLse, partOf(largest.getInductionVar()));
    scf::YieldOp::create(b, ValueRange{arith::MaxNumFOp::create(b, largest.getRegionIterArg(0), value)});
  }
  Value max = largest.getResult(0);
  Value nothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, max, b.f32(-infinity));
  Value base = b.select(nothing, b.f32(0), max);

  SmallVector<Value> zeros(chunks + 1, b.f32(0));
  auto sums = scf::ForOp::create(b, begin, end, b.i32(1), zeros);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(sums.getBody());
    Value part = partOf(sums.getInductionVar());
    Value distance = arith::SubFOp::create(b, b.read(partLse, part), base);
    Value weight = math::Exp2Op::create(b, arith::MulFOp::create(b, distance, b.f32(log2e)));
    SmallVector<Value> next{arith::AddFOp::create(b, sums.getRegionIterArg(0), weight)};
    Value origin = b.mul(part, b.i64(dim));
    for (int64_t c = 0; c < chunks; ++c) {
      Value old = sums.getRegionIterArg(c + 1);
      // Lanes past the last column read it again and drop the result.
      Value safe = ragged && c + 1 == chunks ? b.min(column(c), b.i32(dim - 1)) : column(c);
      Value value = b.read(partO, b.add(origin, b.wide(safe)));
      next.push_back(math::FmaOp::create(b, value, weight, old));
    }
    scf::YieldOp::create(b, next);
  }

  Value sum = sums.getResult(0);
  Value some = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, sum, b.f32(0));
  Value inverse = b.select(some, ReciprocalOp::create(b, sum), b.f32(0));
  for (int64_t c = 0; c < chunks; ++c) {
    auto write = [&] {
      Value value = arith::MulFOp::create(b, sums.getResult(c + 1), inverse);
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
