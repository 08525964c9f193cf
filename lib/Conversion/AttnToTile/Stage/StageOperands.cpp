//===- StageOperands.cpp - Copies of rows and tokens on the chip ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MMAs read shared memory, or registers. If an online operation takes rows or
// tokens, this pass copies them to shared memory or registers before it. A
// task's own lines are *stationary*: its rows or, if something is added up per
// token, its tokens. The others are *walked*, tile by tile.
//
//   Memory.cpp                       which copies a kernel has, and their memory
//   RowSource.cpp, TokenSource.cpp   the sources of the copies
//   Copying.cpp                      which warps copy, and which warps wait
//   RowNumbers.cpp                   the numbers of rows that warps keep in registers
//
//===----------------------------------------------------------------------===//
#include "Copying.h"
#include "SharedScales.h"

#include "attn/Conversion/Passes.h"

#include "llvm/ADT/MapVector.h"

#include <numeric>

namespace mlir::attn {
#define GEN_PASS_DEF_STAGEOPERANDSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

class Staging {
public:
  explicit Staging(StagedKernel &kernel)
      : k(kernel), b(kernel.b), memory(kernel), copying(Copying::of(kernel)) {}

  void run();

private:
  void stageTiles();
  void stageRows();
  void stageTokens();
  void stageQueriesLate();
  Operation *narrowQueries(Value tile, RowsOp rows);
  /// The type of a warp's queries in registers.
  FragmentType queryFragment() {
    return b.fragment({Axis::Query, Axis::Feature}, {k.form.getRows(), k.form.getKeyTile()},
                      k.form.getElement());
  }
  /// Lets copies of a part be overwritten: after the update by a tile if the part is walked; after the writes
  /// of a task's results, without such an update, if it is stationary.
  void release(UpdateOp byTile, Scope readers);
  void alignSegments();

  StagedKernel &k;
  KernelBuilder &b;
  Memory memory;
  std::unique_ptr<Copying> copying;
};

void Staging::run() {
  if (k.gradient && k.gradient.getSummed()) // sums are loaded where they are needed
    return;
  if (!k.gradient || !k.updates.empty()) // sums begin without updates: rows are read once, for their deltas
    stageTiles();
  for (RowsOp rows : k.rows)
    stageNumbers(k, rows);
  b.describeParameters();
}

void Staging::stageTiles() {
  memory.allocate();
  if (k.form.keepsTokens()) {
    stageTokens();
    stageRows();
  } else {
    if (k.gradient || k.hasProducers())
      stageRows();
    else
      stageQueriesLate();
    stageTokens();
  }
  alignSegments();
}

void Staging::release(UpdateOp byTile, Scope readers) {
  if (byTile)
    return copying->release(byTile, readers);
  b.kernel.walk([&](Operation *write) {
    if (isa<WriteGradientOp, WriteSignificanceOp>(write))
      copying->release(write, readers);
  });
}

/// Copies the rows of a task, or of a tile. The loops of a task are followed by the task's rows once more,
/// because results leave through the queries' tile. If updates add to sums of rows that are walked, a tile of
/// rows comes with an exchange tile; exchange tiles alternate by the tile's number.
void Staging::stageRows() {
  RowsOp first = k.rows.front();
  RowSource source(k, first);
  b.setInsertionPointAfter(first);
  SmallVector<Value> copies = copying->start(source, memory.rows, Scope::Block);
  copying->await(Scope::Block);
  SmallVector<Copy> names = namesOf(memory.rows);
  if (Value ring = memory.exchange) {
    Value number = cast<scf::ForOp>(first->getParentOp()).getInductionVar();
    Value turn = b.rem(number, k.schedule.getExchanges());
    copies.push_back(RingStageOp::create(b, cast<RingType>(ring.getType()).getTile(), ring, turn));
    copies.push_back(memory.sums);
    names.append({Copy::Exchange, Copy::Sums});
  }
  if (memory.weights) {
    copies.append({memory.weights, memory.units});
    names.append({Copy::Exchange, Copy::Units});
  }
  if (!k.form.keepsTokens() && k.schedule.getQueryInRegisters()) // results do not leave through their tile
    copies.front() = LoadOp::create(b, queryFragment(), copies.front(), first.getFirst());
  for (RowsOp rows : k.rows) {
    if (rows != first)
      b.setInsertionPointAfter(rows);
    standIn(b, rows, names, copies);
  }
  release(k.form.keepsTokens() ? k.updates.front() : UpdateOp(), Scope::Block);
}

/// Copies the tokens of a task, or of a tile. Each warp copies its own tokens if weights of tokens are added
/// up, or if warps split the keys of a tile; in the second case it waits for no other warp.
void Staging::stageTokens() {
  Scope readers = k.schedule.getSplitKeys() ? Scope::Warp : Scope::Block;
  llvm::MapVector<Operation *, SmallVector<UpdateOp>> tiles; // each tile belongs to one of several regions
  for (UpdateOp update : k.updates)
    tiles[tokensOf(update.getKv())->getParentOp()].push_back(update);
  for (auto &[around, updates] : tiles) {
    TokensOp last = tokensOf(updates.back().getKv());
    b.setInsertionPointAfter(last);
    TokenSource source(k, updates);
    ArrayRef<Buffer> buffers = memory.ofTokens(last.getType()), stored = memory.storedTokens(last.getType());
    SmallVector<Value> copies;
    if (!stored.empty()) {
      copies = copying->startWidened(source, stored, buffers);
    } else if (k.splitsTiles()) {
      const size_t ofHalf = buffers.size() / 2;
      TokenSource behind(k, updates, k.tokenLines());
      if (k.widensOnTheWay()) {
        copies = copying->startHalves(source, behind, buffers);
      } else {
        copies = copying->start(source, buffers.take_front(ofHalf), readers);
        llvm::append_range(copies, copying->start(behind, buffers.drop_front(ofHalf), readers));
      }
    } else {
      copies = copying->start(source, buffers, k.significance ? Scope::Warp : readers);
    }
    copying->await(readers);
    SmallVector<Copy> names = namesOf(buffers);
    if (last.getType().getLatent()) // the first features of the keys' tile, and the keys' scales
      for (auto [name, copy] : llvm::to_vector(llvm::zip_equal(names, copies))) {
        if (name == Copy::KeyRest || name == Copy::KeysBehind || name == Copy::KeyRestBehind)
          continue;
        names.push_back(name == Copy::Keys ? Copy::Values : Copy::ValueMeta);
        copies.push_back(copy);
      }
    addRegionScales(k, updates, names, copies);
    for (UpdateOp update : updates)
      standIn(b, update.getKv(), names, copies);
    release(k.form.keepsTokens() ? UpdateOp() : updates.back(), readers);
  }
}

/// Makes the queries left operands of f16 in the first turn of the loops around the insertion point, of the
/// task's own. Loops over tiles that follow in the same block read them, too.
Operation *Staging::narrowQueries(Value tile, RowsOp rows) {
  Value first;
  for (Operation *around = b.getInsertionBlock()->getParentOp(); around != rows->getParentOp();
       around = around->getParentOp())
    if (auto loop = dyn_cast<scf::ForOp>(around)) {
      Value begins = b.compare(arith::CmpIPredicate::eq, loop.getInductionVar(), loop.getLowerBound());
      first = first ? b.createOrFold<arith::AndIOp>(first, begins) : begins;
    }
  auto queries = ScratchType::get(b.getContext(), cast<SharedType>(tile.getType()).getBytes());
  return NarrowTileOp::create(b, queries, b.getF32Type(), tile, memory.largest, first);
}

/// Copies queries by all warps. They wait before the loops that read queries, and not where the task begins:
/// the pipeline starts the first tiles of keys before a wait that precedes their loop.
void Staging::stageQueriesLate() {
  RowsOp rows = k.rows.front();
  RowSource source(k, rows);
  for (RowsOp each : k.rows)
    if (memory.weights) {
      b.setInsertionPointAfter(each);
      standIn(b, each, {Copy::Exchange, Copy::Units}, {memory.weights, memory.units});
    }
  b.setInsertionPoint(rows);
  Value tile = copying->start(source, memory.rows, Scope::Block).front(), query = tile, coded = tile, rest;
  if (memory.largest) // queries keep the type of the features that are not quantized
    if (const int64_t features = storeOf(k.regions().front()).keys.format.rest) {
      const int64_t first = k.form.getKeyTile() - features;
      coded = PanelsOp::create(b, k.rowTile(k.rowLines(), first), tile, b.i32(0));
      rest = PanelsOp::create(b, k.rowTile(k.rowLines(), features), tile, b.i32(first));
    }
  Operation *narrowed = nullptr;
  for (UpdateOp update : k.updates) {
    b.setInsertionPoint(tokensOf(update.getKv())->getParentOp());
    copying->await(Scope::Block);
    if (k.schedule.getQueryInRegisters())
      query = LoadOp::create(b, queryFragment(), tile, rows.getFirst());
    if (!memory.largest) {
      update.getQueryMutable().assign(StagedOp::create(b, update.getQuery(), {Copy::Query}, query));
      continue;
    }
    if (!narrowed)
      narrowed = narrowQueries(coded, rows);
    SmallVector<Copy> names{Copy::Query, Copy::QueryFactor};
    SmallVector<Value> copies(narrowed->getResults());
    if (rest)
      names.push_back(Copy::QueryRest), copies.push_back(rest);
    update.getQueryMutable().assign(StagedOp::create(b, update.getQuery(), names, copies));
  }
  // A task without segments has not waited for its queries.
  Operation *segments = tokensOf(k.updates.front().getKv())->getParentOp()->getParentOp();
  b.setInsertionPointAfter(segments);
  WaitOp::create(b, 0);
  // The next task overwrites queries that slower warps may still read, unless warps synced after the last
  // loop or exchange results.
  auto writes = llvm::to_vector(segments->getBlock()->getOps<mlir::attn::WriteOp>());
  if (k.schedule.getStages() == 1 && !k.schedule.getSplitKeys() && !writes.empty())
    copying->release(writes.back(), Scope::Block);
}

/// Aligns the beginnings of segments so that boxes of a TMA load do not cross pages.
void Staging::alignSegments() {
  if (k.form.keepsTokens() || !k.schedule.loadsTokensByTma() || numericsAttr.isOn(b.kernel))
    return; // under a numerics contract kernels align tiles
  int64_t align = 1;
  for (UpdateOp update : k.updates) {
    int64_t lines = k.schedule.getKeyCopies()[operandAttr.get(update).getInt()];
    align = std::lcm(align, storeOf(update.getKv().getType()).boxAlignment(lines));
  }
  tile::keyAlignAttr.set(b.kernel, b.getI32IntegerAttr(align));
}

/// Verifies that an update takes rows and tokens. An update that adds to states must stand in a loop over
/// tiles, within a loop over segments.
LogicalResult verifyUpdate(UpdateOp update, const StagedKernel &k) {
  auto tokens = update.getKv().getDefiningOp<TokensOp>();
  Operation *tile = tokens ? tokens.getOperation() : update.getOperation();
  auto tiles = dyn_cast<scf::ForOp>(tile->getParentOp());
  if (!k.readsFinished() && (!tiles || !isa<scf::ForOp>(tiles->getParentOp())))
    return update.emitOpError("expected a loop over tiles in one over segments around it");
  if (!tokens || !update.getQuery().getDefiningOp<RowsOp>())
    return update.emitOpError("expected attn.rows and attn.tokens as its operands");
  return success();
}

/// Verifies that --attn-walk-plan has made the kernel.
LogicalResult verify(func::FuncOp kernel) {
  if (!tile::scheduleAttr.get(kernel) || !tile::parametersAttr.isOn(kernel))
    return kernel.emitError("expected a kernel with a tile.schedule and tile.parameters");
  StagedKernel k(kernel);
  bool begins = k.readsFinished(), ends = begins, staged = false;
  kernel.walk([&](Operation *op) {
    begins |= isa<InitOp>(op), ends |= isa<FinishOp>(op), staged |= isa<StagedOp>(op);
  });
  if (!k.form || !begins || !ends || kernel.front().getOps<StartNextOp>().empty())
    return kernel.emitError("expected a kernel that walks the plan: --attn-walk-plan makes it");
  if (staged)
    return kernel.emitError(
        "expected rows and tokens that are not staged yet: --attn-stage-operands runs once");
  for (UpdateOp update : k.updates)
    if (failed(verifyUpdate(update, k)))
      return failure();
  return success();
}

struct StageOperands : mlir::attn::impl::StageOperandsPassBase<StageOperands> {
  void runOnOperation() override {
    SetVector<Operation *> kernels;
    getOperation().walk([&](RowsOp rows) { kernels.insert(rows->getParentOfType<func::FuncOp>()); });
    for (Operation *op : kernels) {
      auto kernel = cast<func::FuncOp>(op);
      if (failed(verify(kernel)))
        return signalPassFailure();
      StagedKernel k(kernel);
      Staging(k).run();
    }
  }
};

} // namespace
