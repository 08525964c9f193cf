//===- WeighScores.cpp - Significance of stored scores --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block has a task of tokens of one instance and KV head. A thread takes
// every 256th token, and loads the scores of all its tokens before it weighs
// the first:
//
//     w(t) = max, mean or sum over heads g of exp2(score(t, g) / 64 - lse(g) log2 e)
//
// The kernel reads no queries, keys or pages, and tokens that do not exist get
// zeros.
//
// It begins beside the launch that finishes rows. The launch before it, which
// it waits for, is the merge or the attention itself. A merge lets it begin
// when all of the merge's blocks have begun, which is before the attention has
// ended. But each of those blocks waits for the attention, too, so a merge that
// has ended came after it, and the results of both can be read. Every thread
// waits here, with or without tokens, so that the same holds for the launch
// that waits for this one. The next step's attention begins after all this: it
// may overwrite scores.
//
//===----------------------------------------------------------------------===//
#include "AttnToTile/Kernel/Log2.h"
#include "StoredScores.h"

#include "AttnToTile/Kernel/TokenSlots.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Tile/IR/CacheHint.h"
#include "attn/Dialect/Tile/IR/Launch.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {
#define GEN_PASS_DEF_WEIGHSCORESPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

constexpr int64_t warps = 8, lanes = 32, threads = warps * lanes;
constexpr int64_t tokensOfThread = ::attn::rt::scoreTaskTokens / threads;
/// Blocks of a multiprocessor. Five leave a thread 48 registers. With six, ptxas converts the first scores
/// before it loads the others, to save some.
constexpr int64_t mostBlocks = 5, blocksOfManyHeads = 4, fewHeads = 4;

class WeighKernel {
public:
  WeighKernel(ArrayRef<UpdateOp> updates, Together together, func::FuncOp kernel)
      : updates(updates), how(together), b(kernel) {
    UpdateOp first = updates.front();
    queryHeads = cast<RankedTensorType>(first.getQuery().getType()).getDimSize(1);
    group = queryHeads / first.getKVHeads();
    b.setInsertionPointToEnd(&kernel.front());
  }

  void run() {
    b.buffer("lse", b.getF32Type());
    auto task = readRecord<ScoreTask>(b, BlockIdOp::create(b, b.getI32Type()));
    for (auto [number, update] : llvm::enumerate(updates))
      b.doIf(updates.size() == 1 ? Value() : equal(task.operand, b.i32(number)),
             [&] { weigh(number, task); });
    int64_t blocks = group <= fewHeads ? mostBlocks : blocksOfManyHeads;
    tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(blocks));
    setLaunch(b.kernel,
              {.role = ::attn::rt::KernelInfo::Role::Significance,
               .launch = {.grid = PlanArray::ScoreTasks, .onlyIfFilled = true, .overlapsPrevious = true}});
    b.finish(threads);
  }

private:
  /// A token in registers: its number, the slots of its significance and of its scores, and the scores read.
  struct Token {
    Value token, slot, scores;
    SmallVector<Value> read = {};
  };

  void weigh(unsigned operand, const ScoreTask &task) {
    UpdateOp update = updates[operand];
    TokenSlots slots(b, update.getKv(), update.getKVHeads());
    Value before = tokenSlotsBefore(b, updates.take_front(operand));
    Value thread =
        b.add(b.mul(WarpIdOp::create(b, b.getI32Type()), b.i32(lanes)), LaneIdOp::create(b, b.getI32Type()));
    Value buffer = b.buffer((argumentName(update.getKv()) + ".significance").str(), b.getF32Type());
    auto slotOf = [&](Value token) { return slots.slotOf(task.instance, task.ordinal, token); };
    SmallVector<Token> tokens;
    Value first = b.add(task.kvBegin, thread), slot = slotOf(first);
    for (int64_t i = 0; i < tokensOfThread; ++i) {
      Value token = b.add(first, b.i32(i * threads));
      Value last = b.sub(task.length, b.i32(1)); // tokens past the last read the last token's scores
      tokens.push_back({token, b.add(slot, b.i64(i * threads * slots.apart())),
                        b.add(before, slotOf(b.min(token, last)))});
    }
    Value hasRow = b.compare(arith::CmpIPredicate::sge, task.row, b.i32(0));
    Value some = b.createOrFold<arith::AndIOp>(hasRow, b.less(task.kvBegin, task.length));
    auto write = [&](const Token &token, Value number) {
      b.doIf(b.less(token.token, task.kvEnd), [&] { tile::WriteOp::create(b, number, buffer, token.slot); });
    };
    auto branch = scf::IfOp::create(b, some, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenYield());
    // The wait stands in both branches: ptxas moves a wait before them to before the task is read.
    WaitPreviousOp::create(b);
    for (Token &token : tokens)
      token.read = readScores(token.scores);
    SmallVector<Value> lses = readLses(task);
    for (const Token &token : tokens) {
      write(token, b.select(b.less(token.token, task.length), oneOf(codesOf(token.read), lses), b.f32(0)));
      if (slots.apart() == 1) // else a line has tokens of other heads, which other blocks read
        discard(token, task);
    }
    b.setInsertionPoint(branch.elseYield());
    WaitPreviousOp::create(b);
    for (const Token &token : tokens)
      write(token, b.f32(0));
  }

  /// The LSEs of the row's heads of the group, in log2. A row that sees nothing gets +inf, so that its
  /// weights are zero.
  SmallVector<Value> readLses(const ScoreTask &task) {
    SmallVector<Value> lses;
    Value first =
        b.add(b.mul(b.wide(task.row), b.i64(queryHeads)), b.wide(b.mul(task.ordinal, b.i32(group))));
    for (int64_t head = 0; head < group; ++head) {
      Value lse = b.read(b.buffer("lse", b.getF32Type()), b.add(first, b.i64(head)), /*written=*/true);
      Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, lse, b.f32(-infinity));
      Value scaled = arith::MulFOp::create(b, lse, b.f32(log2e));
      lses.push_back(b.select(none, b.f32(infinity), scaled));
    }
    return lses;
  }

  /// Reads a token's scores: words of two heads, or a half word for each head. They are read once, so the L2
  /// may evict them first.
  SmallVector<Value> readScores(Value slot) {
    int64_t count = group % 2 ? group : group / 2;
    Type type = group % 2 ? b.getI16Type() : b.getI32Type();
    Value buffer = storedScores(b, type), first = b.mul(slot, b.i64(count));
    if (group % 2 == 0 && (count == 2 || count == 4)) {
      auto adjacent = ReadAdjacentOp::create(b, SmallVector<Type>(count, type), buffer, first);
      setCacheHint(adjacent, evictFirst);
      return adjacent.getValues();
    }
    SmallVector<Value> read;
    for (int64_t i = 0; i < count; ++i) {
      read.push_back(b.read(buffer, b.add(first, b.i64(i)), /*written=*/true));
      setCacheHint(read.back().getDefiningOp(), evictFirst);
    }
    return read;
  }

  /// The stored scores of the heads, as floats. Arithmetic that waits for one load comes after all loads.
  SmallVector<Value> codesOf(ArrayRef<Value> read) {
    SmallVector<Value> codes;
    for (Value one : read) {
      if (one.getType().isInteger(16)) {
        codes.push_back(floatOf(arith::ExtUIOp::create(b, b.getI32Type(), one)));
        continue;
      }
      codes.push_back(floatOf(b.createOrFold<arith::AndIOp>(one, b.i32(0xffff))));
      codes.push_back(floatOf(b.createOrFold<arith::ShRUIOp>(one, b.i32(16))));
    }
    return codes;
  }

  /// The float whose low half was stored. A conversion would do, too, but a multiprocessor starts 16
  /// conversions or powers of two in a clock, and 128 sums.
  Value floatOf(Value half) {
    static_assert((storedScoreBase & 0xffff) == 0);
    Value bits = b.createOrFold<arith::OrIOp>(half, b.i32(storedScoreBase));
    Value sum = arith::BitcastOp::create(b, b.getF32Type(), bits);
    return arith::SubFOp::create(b, sum, b.f32(storedScoreZero));
  }

  /// Discards the whole lines that the warp has read. No other warp reads them, except the line of the last
  /// token. The lane with a line's last token discards it when all lanes have read.
  void discard(const Token &token, const ScoreTask &task) {
    int64_t words = group / 2, wordsOfLine = discardedBytes / 4;
    if (group % 2 != 0 || wordsOfLine % words != 0 || wordsOfLine / words > lanes)
      return;
    SyncOp::create(b, Scope::Warp);
    Value behind = b.mul(b.add(token.scores, b.i64(1)), b.i64(words));
    Value ends = equal(b.createOrFold<arith::AndIOp>(behind, b.i64(wordsOfLine - 1)), b.i64(0));
    Value isWhole = both(ends, b.less(b.add(token.token, b.i32(1)), task.length));
    Value lane = LaneIdOp::create(b, b.getI32Type());
    b.doIf(both(isWhole, b.less(b.i32(wordsOfLine / words - 2), lane)), [&] {
      Value unknown = b.i32(-1); // two of the uppermost values
      Value first = b.sub(behind, b.i64(wordsOfLine));
      auto write = tile::WriteOp::create(b, unknown, storedScores(b, b.getI32Type()), first);
      setCacheHint(write, discards);
    });
  }

  Value weightOf(Value code, Value lse) {
    Value none = arith::NegFOp::create(b, lse);
    return math::Exp2Op::create(b, math::FmaOp::create(b, code, b.f32(1.0 / storedScoreSteps), none));
  }

  /// The weight if the score may be an outermost value.
  Value weightOfAny(Value code, Value lse) {
    Value low = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, lse, b.f32(lseAboveStoredScores));
    Value nan = b.f32(std::numeric_limits<double>::quiet_NaN());
    auto is = [&](int64_t number) {
      return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, code, b.f32(number));
    };
    Value weight = b.select(is(-lastStoredScore), b.select(low, nan, b.f32(0)), weightOf(code, lse));
    return b.select(is(lastStoredScore), nan, weight);
  }

  Value acrossHeads(ArrayRef<Value> codes, ArrayRef<Value> lses,
                    function_ref<Value(Value code, Value lse)> ofHead) {
    Value all;
    for (auto [code, lse] : llvm::zip_equal(codes, lses)) {
      Value weight = ofHead(code, lse);
      if (!all)
        all = weight;
      else if (how == Together::Max)
        all = arith::MaximumFOp::create(b, all, weight);
      else
        all = arith::AddFOp::create(b, all, weight);
    }
    if (how == Together::Mean && group > 1)
      all = arith::MulFOp::create(b, all, b.f32(1.0 / group));
    return all;
  }

  /// The significance of a token. One test covers the outermost values of all heads: few tokens have any.
  Value oneOf(ArrayRef<Value> codes, ArrayRef<Value> lses) {
    Value outermost;
    for (Value code : codes) {
      Value size = math::AbsFOp::create(b, code);
      outermost = outermost ? Value(arith::MaxNumFOp::create(b, outermost, size)) : size;
    }
    Value inside = arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, outermost, b.f32(lastStoredScore));
    auto branch = scf::IfOp::create(b, TypeRange{b.getF32Type()}, inside, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    scf::YieldOp::create(
        b, acrossHeads(codes, lses, [&](Value code, Value lse) { return weightOf(code, lse); }));
    b.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(
        b, acrossHeads(codes, lses, [&](Value code, Value lse) { return weightOfAny(code, lse); }));
    return branch.getResult(0);
  }

  Value both(Value x, Value y) { return b.createOrFold<arith::AndIOp>(x, y); }
  Value equal(Value x, Value y) { return b.compare(arith::CmpIPredicate::eq, x, y); }

  ArrayRef<UpdateOp> updates;
  int64_t queryHeads, group;
  Together how;
  KernelBuilder b;
};

struct WeighScores : mlir::attn::impl::WeighScoresPassBase<WeighScores> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (weighsScoresAttr.isOn(function))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      TogetherAttr of = weighsScoresAttr.get(function);
      SmallVector<UpdateOp> updates(function.getOps<UpdateOp>());
      if (!of || updates.empty()) {
        function.emitError("expected updates of regions and ") << weighsScoresAttr << ", a #attn.together";
        return signalPassFailure();
      }
      OpBuilder builder(function);
      auto kernel = func::FuncOp::create(builder, function.getLoc(), function.getName(),
                                         builder.getFunctionType({}, {}));
      kernel.addEntryBlock();
      WeighKernel(updates, of.getValue(), kernel).run();
      function.erase();
    }
  }
};

} // namespace
