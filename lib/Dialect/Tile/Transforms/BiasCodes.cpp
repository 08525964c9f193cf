//===- BiasCodes.cpp - Integer codes stay too large by what is known ------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An integer code becomes a float as the mantissa of a power of two, and exact by a
// subtraction. With k codes, b their biases and x the other operand of a dot,
//
//   x . (k + b) = x . k + x . b
//
// and x . b is the same for every row of k. Where x is known in front of a loop over
// tiles, so is x . b: the dot starts from its negation, and the loop subtracts nothing.
// Biases are at most 1024. Sums are in f32, whose rounding that makes coarser, and are
// still finer than the 11 bits of what is multiplied.
//
//===----------------------------------------------------------------------===//
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Decline.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

#define DEBUG_TYPE "tile-bias-codes"

namespace mlir::tile {
#define GEN_PASS_DEF_BIASCODESPASS
#include "attn/Dialect/Tile/Transforms/Passes.h.inc"
} // namespace mlir::tile

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Rows of an operand whose rows are all alike: the fewest that one has.
constexpr int64_t fewestRows = 16;

FragmentType fragmentOf(Value value) { return dyn_cast<FragmentType>(value.getType()); }

/// What a part of a part is cut from.
Value wholeOf(Value part) {
  while (auto op = part.getDefiningOp<PartOp>())
    part = op.getSource();
  return part;
}

bool startsFromZero(DotOp dot) {
  auto splat = dot.getAcc().getDefiningOp<SplatOp>();
  return splat && matchPattern(splat.getValue(), m_AnyZeroFloat());
}

/// Whether a dot's operand of queries is there in front of its loop.
bool areQueriesKnown(DotOp dot) {
  auto loop = dot->getParentOfType<scf::ForOp>();
  Value queries = dot.getQueryOperand().get();
  return loop && fragmentOf(queries) && loop.isDefinedOutsideOfLoop(wholeOf(queries));
}

/// The dots of an operand of codes and of its parts; false where something else is done with it.
bool collectDots(Value codes, SmallVectorImpl<DotOp> &dots) {
  for (OpOperand &use : codes.getUses()) {
    Operation *user = use.getOwner();
    if (auto part = dyn_cast<PartOp>(user)) {
      if (!collectDots(part.getResult(), dots))
        return false;
    } else if (auto dot = dyn_cast<DotOp>(user);
               dot && dot.getStoredOperand().get() == codes && startsFromZero(dot) && areQueriesKnown(dot)) {
      dots.push_back(dot);
    } else {
      return false;
    }
  }
  return true;
}

/// A part of a fragment as it is in front of the loop.
Value partAt(OpBuilder &b, Value part) {
  auto op = part.getDefiningOp<PartOp>();
  if (!op)
    return part;
  Value source = partAt(b, op.getSource());
  return PartOp::create(b, op.getLoc(), op.getType(), source, op.getFirstAttr());
}

FragmentType withRows(FragmentType type, int64_t rows) {
  return FragmentType::get(type.getContext(), type.getAxes(), {rows, type.getSizes()[1]}, type.getElement(),
                           type.getLayout(), type.getPartial(), type.getOrder());
}

/// The negated dot of queries with biases, a number of each of their rows.
Value makeStart(DotOp dot, Type codes) {
  OpBuilder b(dot->getParentOfType<scf::ForOp>());
  Location loc = dot.getLoc();
  FragmentType acc = dot.getAcc().getType(),
               stored = withRows(fragmentOf(dot.getStoredOperand().get()), fewestRows);
  unsigned query = dot.turnsQueries();
  SmallVector<int64_t> sizes(acc.getSizes());
  sizes[!query] = fewestRows;
  auto products = FragmentType::get(b.getContext(), acc.getAxes(), sizes, acc.getElement(), acc.getLayout(),
                                    /*partial=*/false);
  auto rows = FragmentType::get(b.getContext(), {acc.getAxes()[query]}, {sizes[query]}, acc.getElement(),
                                query ? Layout::Col : Layout::Row, /*partial=*/false);
  Value zero = arith::ConstantOp::create(b, loc, b.getFloatAttr(acc.getElement(), 0));
  Value biases = BiasesOp::create(b, loc, stored, TypeAttr::get(codes));
  Value queries = partAt(b, dot.getQueryOperand().get());
  Value product = DotOp::create(b, loc, products, query ? biases : queries, Value(), query ? queries : biases,
                                SplatOp::create(b, loc, products, zero));
  Value excess = ReduceOp::create(b, loc, rows, Combine::Max, product); // all tokens are alike
  auto negated = MapOp::create(b, loc, TypeRange{rows}, ValueRange{excess});
  OpBuilder::InsertionGuard guard(b);
  Block *body = b.createBlock(&negated.getBody(), {}, acc.getElement(), loc);
  YieldOp::create(b, loc, arith::NegFOp::create(b, loc, body->getArgument(0)).getResult());
  return negated.getResult(0);
}

/// A dot starts from a number of each row.
void startFrom(DotOp dot, Value rows) {
  OpBuilder b(dot);
  FragmentType acc = dot.getAcc().getType();
  auto start = MapOp::create(b, dot.getLoc(), TypeRange{acc}, ValueRange{rows});
  {
    OpBuilder::InsertionGuard guard(b);
    Block *body = b.createBlock(&start.getBody(), {}, acc.getElement(), dot.getLoc());
    YieldOp::create(b, dot.getLoc(), body->getArgument(0));
  }
  dot.getAccMutable().assign(start.getResult(0));
}

struct BiasCodes : tile::impl::BiasCodesPassBase<BiasCodes> {
  void runOnOperation() override {
    getOperation().walk([&](WidenOp widen) {
      SmallVector<DotOp> dots;
      if (!match(widen, dots))
        return;
      widen.setBiased(true);
      ++biased;
      for (DotOp dot : dots)
        startFrom(dot, makeStart(dot, widen.getSource().getType().getElement()));
      started += dots.size();
    });
  }

  static bool match(WidenOp widen, SmallVectorImpl<DotOp> &dots) {
    FragmentType codes = widen.getSource().getType();
    if (isa<FloatType>(codes.getElement()))
      return decline(DEBUG_TYPE, widen, "its codes are floats");
    if (widen.getBiased())
      return decline(DEBUG_TYPE, widen, "it is biased already");
    if (!widen.getScales().empty())
      return decline(DEBUG_TYPE, widen, "its codes have scales");
    if (codes.getFeatureAxis() != 1)
      return decline(DEBUG_TYPE, widen, "its features are not contracted");
    // A lane has its codes from several words then, and each on its own: exact costs no more.
    if (!codes.getOrder())
      return decline(DEBUG_TYPE, widen, "its features have no order");
    return collectDots(widen.getResult(), dots) ||
           decline(
               DEBUG_TYPE, widen,
               "something else uses it than dots that start from zero with queries from outside the loop");
  }
};

} // namespace
