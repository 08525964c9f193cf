//===- ExpandRows.cpp - Pieces of rows become loads and stores ------------===//
//
// What a lane reads and writes of a piece: addresses come from the memory of the
// rows, and whether there is anything from the marks of the lists.
//
//===----------------------------------------------------------------------===//
#include "RowMemory.h"

#include "attn/Conversion/Passes.h"

namespace mlir::attn {
#define GEN_PASS_DEF_EXPANDROWSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// What attn.take_rows and attn.put_rows say alike.
struct RowAccess {
  RowPart part;
  Value argument;
  bool listed;
  Value rows, mark, layer, piece;
  ShareAttr share;

  explicit RowAccess(TakeRowsOp op)
      : part(op.getPart()), argument(op.getFrom()), listed(op.getListed()), rows(op.getRows()),
        mark(op.getMark()), layer(op.getLayer()), piece(op.getPiece()), share(op.getShare()) {}
  explicit RowAccess(PutRowsOp op)
      : part(op.getPart()), argument(op.getTo()), listed(op.getListed()), rows(op.getRows()),
        mark(op.getMark()), layer(op.getLayer()), piece(op.getPiece()), share(op.getShare()) {}
};

class Expansion {
public:
  explicit Expansion(func::FuncOp kernel) : b(kernel), i32(b.getI32Type()) {
    b.setInsertionPointToStart(&kernel.front());
    lane = LaneIdOp::create(b, i32);
  }

  void run() {
    SmallVector<Operation *> expanded;
    b.kernel.walk([&](Operation *op) {
      if (!isa<TakeRowsOp, PutRowsOp>(op))
        return;
      if (!units.contains(op))
        placeUnits(op);
      b.setInsertionPoint(op);
      if (auto take = dyn_cast<TakeRowsOp>(op))
        held[take] = read(RowAccess(take), units[op]);
      else if (auto put = dyn_cast<PutRowsOp>(op))
        write(RowAccess(put), units[op], held.at(put.getValue()));
      expanded.push_back(op);
    });
    for (Operation *op : llvm::reverse(expanded))
      op->erase();
    b.describeParameters();
  }

private:
  /// One unit of a lane: whether it exists, and where its first 32-bit word lies.
  struct Unit {
    Value there, index;
  };

  /// Computes in front of the first operation on rows of a turn, `op`, what all of them read and write: lanes
  /// do it before they wait for their loads.
  void placeUnits(Operation *op) {
    b.setInsertionPoint(op);
    for (Operation &other : *op->getBlock())
      if (auto take = dyn_cast<TakeRowsOp>(other))
        units[&other] = unitsOf(RowAccess(take));
      else if (auto put = dyn_cast<PutRowsOp>(other))
        units[&other] = unitsOf(RowAccess(put));
  }
  SmallVector<Unit> unitsOf(const RowAccess &access) {
    RowMemory memory = rowMemoryOf(access.argument, access.part);
    SmallVector<Unit> result;
    for (int64_t load = 0; load < access.share.loads(); ++load)
      result.push_back(unitOf(access, memory, load));
    return result;
  }

  Value fromLane(Value value, Value row) {
    Value &known = handed[{value, row}];
    if (!known)
      known = FromLaneOp::create(b, value, row);
    return known;
  }
  /// The number of a row of the eight, which where a load is of one row is the same for keys and values.
  Value rowOf(const ShareAttr &share, int64_t load, Value number) {
    if (!share.isOneRow())
      return b.div(number, share.getWidth());
    Value &known = numbers[load];
    if (!known)
      known = b.i32(load);
    return known;
  }

  Unit unitOf(const RowAccess &access, const RowMemory &memory, int64_t load) {
    const ShareAttr &share = access.share;
    int64_t width = share.getWidth(), used = share.getLanes();
    Value number = b.add(lane, b.i32(load * used));
    Value chunk = share.isOneRow() ? lane : b.rem(number, width);
    chunk = b.add(chunk, b.mul(access.piece, b.i32(width)));
    Value row = rowOf(share, load, number);

    Value there = b.compare(arith::CmpIPredicate::sge, fromLane(access.mark, row), b.i32(0));
    auto both = [&](Value condition) { there = b.createOrFold<arith::AndIOp>(there, condition); };
    if (ShareAttr::rows * width % used)
      both(b.less(number, b.i32(ShareAttr::rows * width)));
    both(b.less(chunk, b.i32(memory.chunks())));

    Value slot = b.wide(access.listed ? fromLane(access.rows, row) : b.add(access.rows, row));
    Value line = b.add(b.mul(access.layer, strideOf(memory)), b.mul(slot, b.i64(memory.chunks())));
    return {there, b.mul(b.add(line, b.wide(chunk)), b.i64(rowChunkBytes / 4))};
  }

  /// Chunks from a layer to the next.
  Value strideOf(const RowMemory &memory) {
    Value &known = strides[memory.layer];
    if (!known) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointAfter(lane.getDefiningOp());
      known = b.wide(b.dimension(memory.layer));
    }
    return known;
  }

  /// The words of each unit of a lane.
  SmallVector<SmallVector<Value>> read(const RowAccess &access, ArrayRef<Unit> places) {
    Value buffer = b.buffer(rowMemoryOf(access.argument, access.part).buffer, i32);
    SmallVector<Type> types(access.share.getUnit() / 4, i32);
    SmallVector<SmallVector<Value>> words;
    for (const Unit &unit : places) {
      auto loaded = scf::IfOp::create(b, types, unit.there, /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loaded.thenBlock());
      scf::YieldOp::create(b, ReadAdjacentOp::create(b, types, buffer, unit.index).getValues());
      b.setInsertionPointToStart(loaded.elseBlock());
      scf::YieldOp::create(b, SmallVector<Value>(types.size(), b.i32(0)));
      words.push_back(loaded.getResults());
    }
    return words;
  }

  void write(const RowAccess &access, ArrayRef<Unit> places, ArrayRef<SmallVector<Value>> words) {
    Value buffer = b.buffer(rowMemoryOf(access.argument, access.part).buffer, i32);
    for (auto [unit, values] : llvm::zip_equal(places, words)) {
      auto stored = scf::IfOp::create(b, unit.there);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(stored.thenYield());
      WriteAdjacentOp::create(b, values, buffer, unit.index);
    }
  }

  KernelBuilder b;
  Type i32;
  Value lane;
  DenseMap<Operation *, SmallVector<Unit>> units;        ///< of a lane
  DenseMap<Value, SmallVector<SmallVector<Value>>> held; ///< of a piece that was taken
  DenseMap<std::pair<Value, Value>, Value> handed;       ///< by a lane, of a value
  DenseMap<int64_t, Value> numbers;                      ///< of rows
  llvm::StringMap<Value> strides;
};

struct ExpandRows : mlir::attn::impl::ExpandRowsPassBase<ExpandRows> {
  void runOnOperation() override {
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      bool copies = kernel.walk([](TakeRowsOp) { return WalkResult::interrupt(); }).wasInterrupted();
      if (!copies)
        continue;
      if (!kernel->hasAttr("tile.parameters")) {
        kernel.emitError("expected a kernel that walks rows: --attn-walk-rows makes it");
        return signalPassFailure();
      }
      Expansion(kernel).run();
      eraseSourceArguments(kernel);
    }
  }
};

} // namespace
