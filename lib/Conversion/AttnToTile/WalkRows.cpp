//===- WalkRows.cpp - A loop over rows around an operation on a cache -----===//
//
// A warp copies the keys and values of eight rows at a time, of each at most 512
// bytes: a *piece*. Eight, because the slots of eight rows are one 32-byte sector
// of their list; both keys and values, because they share it; 512 bytes, because
// each lane then has a 16-byte load of every row in flight before it stores the
// first. Rows of more bytes are copied by several warps, and of shorter rows as
// many share a load as fit into one. Rows are whole sectors, and so is everything
// that a warp touches, where the heads of a row have a multiple of 32 bytes
// together; else neighbouring rows share one.
//
//   work(layer, eight rows, piece)       walked by all warps of the grid in turn
//
// How many rows there are is read from memory, so the launch depends on nothing,
// and rows marked by a negative slot cost their four bytes in the list.
//
//===----------------------------------------------------------------------===//
#include "RowMemory.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Tile/IR/Launch.h"

#include "mlir/IR/IRMapping.h"

namespace mlir::attn {
#define GEN_PASS_DEF_WALKROWSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

constexpr int64_t warps = 4, lanes = 32;
/// 128 registers to a lane, of which loads take 64.
constexpr int64_t blocksPerSM = 4;

class Walk {
public:
  /// Of `copy` all values are arguments of `kernel`.
  Walk(const RowCopy &copy, func::FuncOp kernel) : copy(copy), b(kernel), i32(b.getI32Type()) {
    b.setInsertionPointToEnd(&kernel.front());
  }

  void run() {
    declareParameters();
    Value count = b.read(b.buffer("row_count", i32), b.i64(0));
    Value groups = b.div(b.add(count, b.i32(ShareAttr::rows - 1)), ShareAttr::rows);
    Value work = b.mul(b.mul(b.dimension("layers"), groups), b.i32(pieces()));
    Value first = b.add(b.mul(BlockIdOp::create(b, i32), b.i32(warps)), WarpIdOp::create(b, i32));
    Value step = b.mul(BlockCountOp::create(b, i32), b.i32(warps));
    Value lane = LaneIdOp::create(b, i32);
    auto loop = scf::ForOp::create(b, first, work, step);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value rest = b.div(loop.getInductionVar(), pieces());
      piece = b.rem(loop.getInductionVar(), pieces());
      Value group = b.createOrFold<arith::RemUIOp>(rest, groups);
      layer = b.wide(b.createOrFold<arith::DivUIOp>(rest, groups));
      readLists(b.mul(group, b.i32(ShareAttr::rows)), lane, count);
      copyRows();
    }
    b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(blocksPerSM));
    setLaunch(b.kernel, {.role = *::attn::rt::parseKernelRole(copy.name()),
                         .rowsPerWarp = ShareAttr::rows,
                         .pieces = static_cast<int>(pieces())});
    b.finish(warps * lanes);
  }

private:
  static constexpr RowPart parts[] = {RowPart::Keys, RowPart::Values};

  /// Where rows are read and where they are written: slots of the cache, or a tensor of rows.
  Value sourceOf(RowPart part) const { return copy.from ? copy.cache : rowsOf(part); }
  Value targetOf(RowPart part) const { return copy.to ? copy.cache : rowsOf(part); }
  Value rowsOf(RowPart part) const { return part == RowPart::Keys ? copy.k : copy.v; }

  ShareAttr shareOf(RowPart part) const {
    int64_t width = std::min(rowMemoryOf(copy.cache, part).chunks(), lanes);
    return ShareAttr::get(b.getContext(), rowChunkBytes, width, lanes);
  }
  int64_t pieces() const {
    int64_t most = 1;
    for (RowPart part : parts)
      most = std::max<int64_t>(most, llvm::divideCeil(rowMemoryOf(copy.cache, part).chunks(), lanes));
    return most;
  }

  /// In the order of the manifest: how many rows there are, where they lie, and the lists.
  void declareParameters() {
    b.buffer("row_count", i32);
    for (RowPart part : parts)
      for (Value argument : {sourceOf(part), targetOf(part)}) {
        RowMemory memory = rowMemoryOf(argument, part);
        b.buffer(memory.buffer, i32);
        b.dimension(memory.layer);
      }
    b.dimension("layers");
    for (Value list : {copy.from, copy.to})
      if (list)
        b.buffer(argumentName(list), i32);
  }

  /// Lane i reads the slots of row i of the eight. Rows past the end are marked like those to be skipped.
  void readLists(Value begin, Value lane, Value count) {
    firstRow = begin;
    Value row = b.add(begin, b.rem(lane, ShareAttr::rows));
    Value index = b.wide(b.min(row, b.sub(count, b.i32(1))));
    auto read = [&](Value list) { return list ? b.read(b.buffer(argumentName(list), i32), index) : Value(); };
    from = read(copy.from);
    to = read(copy.to);
    Value listed = from && to ? b.createOrFold<arith::OrIOp>(from, to) : to ? to : from;
    mark = b.select(b.less(row, count), listed, b.i32(-1));
  }

  /// All loads, then all stores.
  void copyRows() {
    SmallVector<Value> taken;
    for (RowPart part : parts)
      taken.push_back(TakeRowsOp::create(b, sourceOf(part).getType(), part, sourceOf(part), bool(from),
                                         from ? from : firstRow, mark, layer, piece, shareOf(part)));
    for (auto [part, rows] : llvm::zip(parts, taken))
      PutRowsOp::create(b, rows, part, targetOf(part), bool(to), to ? to : firstRow, mark, layer, piece,
                        shareOf(part));
  }

  RowCopy copy;
  KernelBuilder b;
  Type i32;
  Value layer, piece, firstRow;
  Value from, to, mark; ///< of the row whose slots this lane has read
};

struct WalkRows : mlir::attn::impl::WalkRowsPassBase<WalkRows> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (findRowCopy(function))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      walk(function);
      function.erase();
    }
  }

  /// The kernel has in front of its parameters the arguments of the function and, named alike, what a gather
  /// gives.
  static void walk(func::FuncOp function) {
    RowCopy copy = *findRowCopy(function);
    OpBuilder builder(function);
    SmallVector<Type> types(function.getArgumentTypes());
    llvm::append_range(types, copy.op->getResultTypes());
    auto kernel = func::FuncOp::create(builder, function.getLoc(), function.getName(),
                                       builder.getFunctionType(types, {}));
    kernel.addEntryBlock();
    for (BlockArgument argument : function.getArguments())
      kernel.setArgAttrs(argument.getArgNumber(), function.getArgAttrDict(argument.getArgNumber()));
    IRMapping mapping;
    mapping.map(function.getArguments(), kernel.getArguments().take_front(function.getNumArguments()));
    mapping.map(copy.op->getResults(), kernel.getArguments().drop_front(function.getNumArguments()));
    for (OpResult result : copy.op->getResults())
      kernel.setArgAttr(function.getNumArguments() + result.getResultNumber(), "attn.name",
                        builder.getStringAttr(result == copy.k ? "k" : "v"));
    for (Value *value : {&copy.cache, &copy.from, &copy.to, &copy.k, &copy.v})
      *value = mapping.lookupOrNull(*value);
    Walk(copy, kernel).run();
  }
};

} // namespace
