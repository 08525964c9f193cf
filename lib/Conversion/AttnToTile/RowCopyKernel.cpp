//===- RowCopyKernel.cpp - Append, move, gather ---------------------------===//
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
#include "Kernel.h"

#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

constexpr int64_t kWarps = 4, kRows = 8, kLanes = 32, kChunkBytes = 16;

/// Keys or values: where they are read and written, and what of a row one lane copies.
struct Part {
  Value source, target;           ///< buffers of 32-bit words
  Value sourceLayer, targetLayer; ///< chunks from a layer to the next
  int64_t chunks;                 ///< of 16 bytes in a row

  int64_t width() const { return std::min(chunks, kLanes); } ///< chunks of a piece
  int64_t loads() const { return llvm::divideCeil(kRows * width(), kLanes); }
};

class Writer {
public:
  Writer(const RowCopy &copy, gpu::GPUModuleOp module, StringRef name)
      : copy(copy), b(module, name, copy.op->getLoc()), i32(b.getI32Type()) {}

  void write() {
    KVType type = copy.type();
    Value count = b.read(b.buffer("row_count", i32), b.i64(0));
    auto bytes = [](Type element) { return int64_t(element.getIntOrFloatBitWidth() / 8); };
    Part parts[] = {makePart("k", type.getHeads() * type.getKeyDim() * bytes(type.getKey())),
                    makePart("v", type.getHeads() * type.getValueDim() * bytes(type.getValue()))};
    int64_t pieces = llvm::divideCeil(std::max(parts[0].chunks, parts[1].chunks), kLanes);

    Value groups = b.div(b.add(count, b.i32(kRows - 1)), kRows);
    Value work = b.mul(b.mul(b.dimension("layers"), groups), b.i32(pieces));
    Value first = b.add(b.mul(BlockIdOp::create(b, i32), b.i32(kWarps)), WarpIdOp::create(b, i32));
    Value step = b.mul(BlockCountOp::create(b, i32), b.i32(kWarps));
    lane = LaneIdOp::create(b, i32);
    auto loop = scf::ForOp::create(b, first, work, step);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value rest = b.div(loop.getInductionVar(), pieces);
      Value piece = b.rem(loop.getInductionVar(), pieces);
      Value group = b.createOrFold<arith::RemUIOp>(rest, groups);
      Value layer = b.wide(b.createOrFold<arith::DivUIOp>(rest, groups));
      readLists(b.mul(group, b.i32(kRows)), count);
      uniform.clear();
      // All loads, then all stores.
      SmallVector<Lane> lanes;
      for (const Part &part : parts)
        for (int64_t load = 0; load < part.loads(); ++load)
          lanes.push_back(read(part, load, layer, piece));
      for (const Lane &mine : lanes)
        store(mine);
    }
    b.kernel->setAttr("tile.blocks_per_sm", b.getI32IntegerAttr(4)); // 128 registers, of which loads take 64
    setLaunch(b.kernel, {.role = *::attn::rt::parseKernelRole(copy.name()),
                         .rowsPerWarp = kRows,
                         .pieces = static_cast<int>(pieces)});
    b.finish(kWarps * kLanes);
  }

private:
  /// What a lane holds between a load and its store.
  struct Lane {
    Value there;
    Value target, index;
    SmallVector<Value> words;
  };

  Part makePart(StringRef which, int64_t rowBytes) {
    auto memory = [&](bool slots) {
      if (!slots)
        return std::pair(b.buffer(which, i32), b.dimension((which + ".layer").str()));
      rt::Store store = storeOf(copy.type());
      std::string prefix = (argumentName(copy.cache) + ".").str();
      return std::pair(b.buffer(prefix + store.codesName(store.part(which == "k")), i32),
                       b.dimension(prefix + which.str() + "_layer"));
    };
    auto [source, sourceLayer] = memory(bool(copy.from));
    auto [target, targetLayer] = memory(bool(copy.to));
    return {source, target, b.wide(sourceLayer), b.wide(targetLayer), rowBytes / kChunkBytes};
  }

  /// Lane i reads the slots of row i of the eight. Rows past the end are marked like those to be skipped.
  void readLists(Value begin, Value count) {
    firstRow = begin;
    Value row = b.add(begin, b.rem(lane, kRows));
    Value index = b.wide(b.min(row, b.sub(count, b.i32(1))));
    auto read = [&](Value list) { return list ? b.read(b.buffer(argumentName(list), i32), index) : Value(); };
    from = read(copy.from);
    to = read(copy.to);
    Value listed = from && to ? b.createOrFold<arith::OrIOp>(from, to) : to ? to : from;
    mark = b.select(b.less(row, count), listed, b.i32(-1));
  }

  /// Where one of the eight rows is read and written, and whether it is copied at all.
  struct Place {
    Value there, from, to;
  };
  Place placeOf(Value row) {
    auto slot = [&](Value list) {
      return b.wide(list ? Value(FromLaneOp::create(b, list, row)) : b.add(firstRow, row));
    };
    Value there = b.compare(arith::CmpIPredicate::sge, FromLaneOp::create(b, mark, row), b.i32(0));
    return {there, slot(from), slot(to)};
  }

  /// The lane's 16 bytes of one load. Where rows are shorter than a piece, lanes go on to the next row.
  Lane read(const Part &part, int64_t load, Value layer, Value piece) {
    bool oneRow = part.width() == kLanes;
    Value number = b.add(lane, b.i32(load * kLanes));
    Value chunk = oneRow ? lane : b.rem(number, part.width());
    chunk = b.add(chunk, b.mul(piece, b.i32(kLanes)));
    // Keys and values ask for the same rows.
    if (oneRow && uniform.size() == size_t(load))
      uniform.push_back(placeOf(b.i32(load)));
    Place place = oneRow ? uniform[load] : placeOf(b.div(number, part.width()));

    Value there = place.there;
    auto both = [&](Value condition) { there = b.createOrFold<arith::AndIOp>(there, condition); };
    if (kRows * part.width() % kLanes)
      both(b.less(number, b.i32(kRows * part.width())));
    both(b.less(chunk, b.i32(part.chunks)));
    auto indexOf = [&](Value slot, Value stride) {
      Value chunks = b.add(b.add(b.mul(layer, stride), b.mul(slot, b.i64(part.chunks))), b.wide(chunk));
      return b.mul(chunks, b.i64(kChunkBytes / 4));
    };
    Value source = indexOf(place.from, part.sourceLayer);
    Lane mine{there, part.target, indexOf(place.to, part.targetLayer), {}};
    SmallVector<Type> types(4, i32);
    auto loaded = scf::IfOp::create(b, types, there, /*withElseRegion=*/true);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(&loaded.getThenRegion().front());
      scf::YieldOp::create(b, ReadAdjacentOp::create(b, types, part.source, source).getValues());
      b.setInsertionPointToStart(&loaded.getElseRegion().front());
      scf::YieldOp::create(b, SmallVector<Value>(4, b.i32(0)));
    }
    mine.words = loaded.getResults();
    return mine;
  }

  void store(const Lane &mine) {
    auto stored = scf::IfOp::create(b, mine.there);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(stored.thenYield());
    WriteAdjacentOp::create(b, mine.words, mine.target, mine.index);
  }

  RowCopy copy;
  KernelBuilder b;
  Type i32;
  Value lane, firstRow;
  Value from, to, mark;       ///< of the row that this lane has read the slots of
  SmallVector<Place> uniform; ///< of the eight rows, where a whole load is of one
};

} // namespace

void mlir::attn::writeRowCopyKernel(const RowCopy &copy, gpu::GPUModuleOp module, StringRef name) {
  Writer(copy, module, name).write();
}
