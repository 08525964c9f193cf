//===- SumParts.cpp - Gradients of tokens whose tasks were cut ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A task of tokens that very many rows see is cut between rows
// (runtime/src/plan/TokenCuts.cpp). Each part leaves the sums of its rows in
// lines of its own, f32. Here a block has sixteen tokens, and a thread several
// times four neighbouring features of one token:
//
//     dk[token, f] = round(partial.dk[first, f] + partial.dk[first + apart, f] + ...)
//
// and the same for values. The order is that of the parts, so the bits depend
// on how the task was cut and on nothing else. All loads of a part are in
// flight at once.
//
//===----------------------------------------------------------------------===//
#include "AttnToTile/Kernel/PlanAccess.h"
#include "AttnToTile/Kernel/TokenSlots.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Tile/IR/Launch.h"

namespace mlir::attn {
#define GEN_PASS_DEF_SUMPARTSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

constexpr int64_t lanes = 32, warps = 4, threads = warps * lanes;
/// The features that a thread moves at once, and the blocks of a multiprocessor. For heads of 256 a thread
/// has eight times that in flight.
constexpr int64_t features = 4, blocks = 4;

class SumKernel {
public:
  SumKernel(ArrayRef<UpdateOp> updates, func::FuncOp kernel) : updates(updates), b(kernel) {
    b.setInsertionPointToEnd(&kernel.front());
  }

  void run() {
    auto sum = readRecord<TokenSum>(b, BlockIdOp::create(b, b.getI32Type()));
    thread =
        b.add(b.mul(WarpIdOp::create(b, b.getI32Type()), b.i32(lanes)), LaneIdOp::create(b, b.getI32Type()));
    for (auto [number, each] : llvm::enumerate(updates)) {
      UpdateOp update = each;
      Value is =
          updates.size() == 1 ? Value() : b.compare(arith::CmpIPredicate::eq, sum.operand, b.i32(number));
      b.doIf(is, [&] {
        KVType region = update.getKv().getType();
        add(update, sum, "dk", PlanArray::PartialDk, region.getKeyDim());
        add(update, sum, "dv", PlanArray::PartialDv, region.getValueDim());
      });
    }
    tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(blocks));
    setLaunch(b.kernel, {.role = ::attn::rt::KernelInfo::Role::Gradient,
                         .launch = {.grid = PlanArray::TokenSums, .onlyIfFilled = true}});
    b.finish(threads);
  }

private:
  /// A thread's share of a tensor: four features of a token.
  struct Piece {
    Value line, feature;
  };

  void add(UpdateOp update, const TokenSum &sum, StringRef name, PlanArray array, int64_t dim) {
    int64_t ofLine = dim / features, ofBlock = ::attn::rt::tokenSumTokens * ofLine;
    Value lines = b.sub(sum.kvEnd, sum.kvBegin), partials = planArray(b, array);
    SmallVector<Piece> pieces;
    for (int64_t first = 0; first < ofBlock; first += threads) {
      Value number = b.add(thread, b.i32(first));
      pieces.push_back({b.div(number, ofLine), b.mul(b.rem(number, ofLine), b.i32(features))});
    }
    Type f32 = b.getF32Type();
    SmallVector<Value> zeros(pieces.size() * features, b.f32(0));
    auto loop = scf::ForOp::create(b, b.i32(0), sum.parts, b.i32(1), zeros);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value first = b.add(sum.partial, b.mul(loop.getInductionVar(), sum.apart));
      SmallVector<Value> read, sums;
      for (const Piece &piece : pieces) { // lines without a token read the last token's
        Value line = b.add(first, b.min(piece.line, b.sub(lines, b.i32(1))));
        Value index = b.add(b.mul(b.wide(line), b.i64(dim)), b.wide(piece.feature));
        llvm::append_range(
            read, ReadAdjacentOp::create(b, SmallVector<Type>(features, f32), partials, index).getValues());
      }
      for (auto [soFar, more] : llvm::zip_equal(loop.getRegionIterArgs(), read))
        sums.push_back(arith::AddFOp::create(b, soFar, more));
      scf::YieldOp::create(b, sums);
    }
    Type element = cast<RankedTensorType>(update.getQuery().getType()).getElementType();
    Value buffer = b.buffer((argumentName(update.getKv()) + "." + name).str(), element);
    TokenSlots slots(b, update.getKv(), update.getKVHeads());
    for (auto [i, piece] : llvm::enumerate(pieces))
      b.doIf(b.less(piece.line, lines), [&, i = i, piece = piece] {
        Value slot = slots.slotOf(sum.instance, sum.ordinal, b.add(sum.kvBegin, piece.line));
        Value index = b.add(b.mul(slot, b.i64(dim)), b.wide(piece.feature));
        WriteAdjacentOp::create(b, loop.getResults().slice(i * features, features), buffer, index);
      });
  }

  ArrayRef<UpdateOp> updates;
  KernelBuilder b;
  Value thread;
};

struct SumParts : mlir::attn::impl::SumPartsPassBase<SumParts> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (sumsPartsAttr.isOn(function))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      SmallVector<UpdateOp> updates(function.getOps<UpdateOp>());
      if (updates.empty()) {
        function.emitError("expected updates of regions, and ") << sumsPartsAttr;
        return signalPassFailure();
      }
      OpBuilder builder(function);
      auto kernel = func::FuncOp::create(builder, function.getLoc(), function.getName(),
                                         builder.getFunctionType({}, {}));
      kernel.addEntryBlock();
      SumKernel(updates, kernel).run();
      function.erase();
    }
  }
};

} // namespace
