//===- Wgmma.cpp - Asynchronous MMAs of a warpgroup -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Like mma.sync, wgmma that only feed each other become one program (for the reasons in Batch.cpp):
// accumulators go in once and come out at the wait. In between they have no value; the code carries tokens
// that name them (kInFlight in Abi.h), so they may pass through branches and block arguments.
//
// Two mistakes are visible in the code alone, and get a call that reports them when they are executed: an
// accumulator used before its wait, and a register written between wgmma.fence and its wgmma.
//
//===----------------------------------------------------------------------===//
#include "Rewriter.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Support/Elements.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace ::attn::rt;

namespace attn::host {

using rt::host::WgmmaChain;
using rt::host::WgmmaProgram;
using rt::host::WgmmaStep;

namespace {

/// A run of wgmma of one basic block, during its collection.
struct Run {
  struct Chain {
    tile::WgmmaOp first, last;
  };
  SmallVector<tile::WgmmaOp> steps;
  SmallVector<unsigned> chainOf; ///< per step
  SmallVector<Chain> chains;
  unsigned words = 0;

  bool uses(Operation *op) const {
    return llvm::any_of(op->getOperands(), [&](Value v) {
      return llvm::is_contained(steps, dyn_cast_or_null<tile::WgmmaOp>(v.getDefiningOp()));
    });
  }
  /// Returns the chain whose sums this operation continues.
  std::optional<unsigned> continues(tile::WgmmaOp op) const {
    for (auto [i, chain] : llvm::enumerate(chains))
      if (!op.getAcc().empty() && llvm::equal(op.getAcc(), tile::WgmmaOp(chain.last).getResults()))
        return static_cast<unsigned>(i);
    return std::nullopt;
  }
  bool add(tile::WgmmaOp op) {
    std::optional<unsigned> chain = continues(op);
    unsigned need = 4 + op.getLhs().size() + (chain ? 0 : op.getAcc().size());
    if (words + need > rt::host::kExchangeWords)
      return false;
    if (!chain) {
      if (uses(op) || chains.size() == rt::host::kMaxChains)
        return false;
      chain = chains.size();
      chains.push_back({op, op});
    }
    chains[*chain].last = op;
    words += need;
    steps.push_back(op);
    chainOf.push_back(*chain);
    return true;
  }
};

bool onlyComputes(Operation *op) {
  return isMemoryEffectFree(op) && op->getNumRegions() == 0 && !op->hasTrait<OpTrait::IsTerminator>();
}

} // namespace

llvm::Error Rewriter::batchWgmma(Block &block) {
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    ops.push_back(&op);
  Run run;
  auto flush = [&] {
    if (run.steps.empty())
      return;
    WgmmaProgram program;
    tile::WgmmaOp last = run.steps.back();
    b.setInsertionPoint(last);
    loc = last->getLoc();
    unsigned word = 0;
    auto pass = [&](ValueRange values) {
      unsigned first = word;
      for (Value v : values)
        put(word++, v);
      return static_cast<uint16_t>(first);
    };
    auto passDescriptor = [&](Value v) {
      Value shift = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(32));
      Value low = LLVM::TruncOp::create(b, loc, i32, v);
      Value high = LLVM::TruncOp::create(b, loc, i32, LLVM::LShrOp::create(b, loc, v, shift));
      return pass({low, high});
    };
    for (const Run::Chain &chain : run.chains) {
      tile::WgmmaOp first = chain.first;
      WgmmaChain &c = program.chains.emplace_back();
      c.n = static_cast<uint16_t>(first.getN());
      if (!first.getAcc().empty())
        c.acc = pass(first.getAcc());
    }
    for (auto [op, chain] : llvm::zip(run.steps, run.chainOf)) {
      WgmmaStep &step = program.steps.emplace_back();
      step.op = layout.opIds.lookup(op);
      step.chain = static_cast<uint8_t>(chain);
      step.half = mlir::attn::elementOf(op.getElement()).dtype == rt::DType::F16;
      step.transposed = op.getTransposed();
      step.lhsTransposed = op.getLhsTransposed();
      if (op.getLhsDescriptor())
        step.lhsAddress = passDescriptor(op.getLhsDescriptor());
      else
        step.lhs = pass(op.getLhs());
      step.rhsAddress = passDescriptor(op.getRhsDescriptor());
    }
    Value issue =
        call("attn_host_wgmma", i32, {lane, opId(run.steps.front()), constant(wgmmaPrograms.size())});
    wgmmaPrograms.push_back(std::move(program));
    for (auto [op, chain] : llvm::zip(run.steps, run.chainOf))
      for (auto [i, result] : llvm::enumerate(op.getResults())) {
        auto outside = [&](OpOperand &use) {
          return !llvm::is_contained(run.steps, dyn_cast<tile::WgmmaOp>(use.getOwner()));
        };
        if (!llvm::any_of(result.getUses(), outside))
          continue;
        uint32_t name = chain << rt::host::kInFlightChainShift | static_cast<uint32_t>(i);
        Value token = cast(LLVM::AddOp::create(b, loc, issue, constant(name)), f32);
        result.replaceUsesWithIf(token, outside);
      }
    for (tile::WgmmaOp op : run.steps)
      op->dropAllReferences();
    for (tile::WgmmaOp op : llvm::reverse(run.steps)) {
      erased.insert(op);
      op->erase();
    }
    run = Run();
  };
  for (Operation *op : ops) {
    if (auto wgmma = dyn_cast<tile::WgmmaOp>(op)) {
      if (!run.add(wgmma)) {
        flush();
        run.add(wgmma);
      }
    } else if (!onlyComputes(op) || run.uses(op)) {
      flush();
    }
  }
  return llvm::Error::success();
}

/// Finds mistakes that are visible in the code alone, and reports them when they are executed.
void Rewriter::markWgmmaMisuse(LLVM::LLVMFuncOp function) {
  SmallVector<std::pair<Operation *, tile::WgmmaOp>> early;
  function.walk([&](tile::WgmmaOp wgmma) {
    SmallVector<Value> work(wgmma.getResults());
    llvm::DenseSet<Value> seen;
    Operation *user = nullptr;
    while (!work.empty() && !user) {
      Value v = work.pop_back_val();
      if (!seen.insert(v).second)
        continue;
      for (OpOperand &use : v.getUses()) {
        Operation *op = use.getOwner();
        if (isa<tile::WgmmaOp, tile::WgmmaWaitOp>(op))
          continue;
        if (auto branch = dyn_cast<BranchOpInterface>(op)) {
          if (auto argument = branch.getSuccessorBlockArgument(use.getOperandNumber())) {
            work.push_back(*argument);
            continue;
          }
        }
        user = op;
        break;
      }
    }
    if (user)
      early.push_back({user, wgmma});
  });
  auto report = [&](Operation *at, Operation *blame, rt::host::Misuse which) {
    b.setInsertionPoint(at);
    loc = at->getLoc();
    call("attn_host_misuse", none, {lane, opId(blame), constant(static_cast<uint32_t>(which))});
  };
  for (auto [user, wgmma] : early)
    report(user, wgmma, rt::host::Misuse::ReadInFlight);

  // Between a register's last write and the wgmma there is a fence, on every path.
  DominanceInfo dominance(function);
  SmallVector<Operation *> fences, late;
  function.walk([&](NVVM::WgmmaFenceAlignedOp fence) { fences.push_back(fence); });
  function.walk([&](tile::WgmmaOp wgmma) {
    SmallVector<Operation *> before;
    llvm::copy_if(fences, std::back_inserter(before),
                  [&](Operation *fence) { return dominance.properlyDominates(fence, wgmma); });
    auto isLate = [&](Value v) {
      Operation *def = v.getDefiningOp();
      while (isa_and_nonnull<LLVM::BitcastOp, LLVM::ExtractElementOp, LLVM::ExtractValueOp>(def))
        def = def->getOperand(0).getDefiningOp(); // the same register by another name
      return def && !isa<tile::WgmmaOp, LLVM::ConstantOp, LLVM::UndefOp, LLVM::PoisonOp, LLVM::ZeroOp>(def) &&
             llvm::none_of(before, [&](Operation *fence) { return dominance.properlyDominates(def, fence); });
    };
    if (!before.empty() && (llvm::any_of(wgmma.getAcc(), isLate) || llvm::any_of(wgmma.getLhs(), isLate)))
      late.push_back(wgmma);
  });
  for (Operation *wgmma : late)
    report(wgmma, wgmma, rt::host::Misuse::WrittenAfterFence);
}

llvm::Error Rewriter::rewriteWgmmaWait(tile::WgmmaWaitOp op) {
  unsigned count = 0;
  for (Value v : op.getRegisters())
    put(count++, v);
  if (count > rt::host::kExchangeWords)
    return errorAt(op, "the host device waits for up to 2048 registers at once");
  call("attn_host_wgmma_wait", none, {lane, opId(op), constant(op.getPending()), constant(count)});
  for (auto [i, result] : llvm::enumerate(op.getResults()))
    result.replaceAllUsesWith(get(static_cast<unsigned>(i), result.getType()));
  op->erase();
  return llvm::Error::success();
}

} // namespace attn::host
