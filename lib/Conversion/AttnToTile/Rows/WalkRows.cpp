//===- WalkRows.cpp - A loop over rows around an operation on a cache -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warp copies the keys and values of eight rows at a time, of each at most
// 512 bytes: a *piece*. Eight rows, because their slots are one 32-byte sector
// of their list; both keys and values, because they share it; 512 bytes,
// because each lane then has a 16-byte load of every row in flight before it
// stores the first. Several warps copy rows of more bytes, and as many shorter
// rows share a load as fit into one. Rows are whole sectors, and so is
// everything that a warp touches, if the heads of a row have a multiple of 32
// bytes together; otherwise neighbouring rows share a sector.
//
//   work(layer, eight rows, piece)       walked by all warps of the grid, one after the other
//
// The number of rows is read from memory, so the launch depends on nothing, and
// rows marked by a negative slot cost their four bytes in the list.
//
// If source and target store numbers differently, a lane takes eight numbers,
// whatever their bytes are, and numbers that share metadata are in one piece.
//
//===----------------------------------------------------------------------===//
#include "RowMemory.h"
#include "WalkHeads.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Tile/IR/Launch.h"

#include "mlir/IR/IRMapping.h"

#include <numeric>

namespace mlir::attn {
#define GEN_PASS_DEF_WALKROWSPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;
namespace rt = ::attn::rt;

namespace {

constexpr int64_t warps = 4, lanes = 32;
constexpr RowPart parts[] = {RowPart::Keys, RowPart::Values};
/// Blocks with 128 registers to a lane, of which loads take at most 64; or with 255, if loads take more or
/// lanes compute.
constexpr int64_t blocksToCopy = 4, blocksToCompute = 2, mostCopiedWords = 64;

/// The path of keys or values from their source to their target.
class Route {
public:
  Route(Value source, Value target, RowPart part)
      : source(source), target(target), part(part), from(storedPartOf(source, part)),
        to(storedPartOf(target, part)) {
    // Quantized values with given scales keep their meaning only within their own cache.
    converts = from.format != to.format || (source != target && from.format.hasSharedScale());
    if (converts) {
      int64_t together = std::lcm(lanesOf(from), lanesOf(to));
      width = std::min(heads() * from.dim / rowNumbers, lanes / together * together);
    } else {
      width = std::min(rowMemoryOf(source, part).chunks(rowChunkBytes), lanes);
    }
  }

  Value source, target;
  RowPart part;
  rt::StorePart from, to;
  bool converts;
  int64_t width; ///< lanes that hold a piece of a row

  int64_t pieces() const {
    int64_t columns =
        converts ? heads() * from.dim / rowNumbers : rowMemoryOf(source, part).chunks(rowChunkBytes);
    return llvm::divideCeil(columns, width);
  }
  int64_t heads() const {
    auto cache = dyn_cast<KVType>(source.getType());
    return cache ? cache.getHeads() : cast<RankedTensorType>(source.getType()).getDimSize(2);
  }
  /// Whether rows of one end have metadata that is read or written with them.
  bool hasMeta(const rt::StorePart &end) const { return end.format.hasLines(); }
  bool readsScales(const rt::StorePart &end) const { return converts && end.format.hasSharedScale(); }
  /// The bytes of the chunk in which one end is accessed: eight numbers, or as much as possible.
  int64_t chunkOf(const rt::StorePart &end) const {
    return converts ? rowNumbers * end.format.bits / 8 : rowChunkBytes;
  }
  ShareAttr shareOf(const rt::StorePart &end) const {
    int64_t used = converts ? lanes / width * width : lanes;
    return ShareAttr::get(source.getContext(), chunkOf(end), width, used, /*heads=*/0, /*apart=*/false);
  }
  /// A lane converts one word of metadata for each group, or one byte for each block, and copies 16 bytes at
  /// most.
  ShareAttr metaShareOf(const rt::StorePart &end, int64_t ofPieces) const {
    int64_t chunk = end.format.hasBlocks() ? 1 : metaWordBytes, chunks = width / lanesOf(end);
    if (!converts) {
      int64_t bytes = end.format.metaBytes(end.dim);
      chunk = std::min<int64_t>(rowChunkBytes, bytes & -bytes);
      chunks = llvm::divideCeil(heads() * bytes / chunk, ofPieces);
    }
    return ShareAttr::get(source.getContext(), chunk, chunks, lanes, /*heads=*/0, /*apart=*/false);
  }
  /// Rows of numbers, as they lie outside of caches.
  RankedTensorType rowsOf(Type element) const {
    return RankedTensorType::get({ShapedType::kDynamic, ShapedType::kDynamic, heads(), from.dim}, element);
  }

private:
  static int64_t lanesOf(const rt::StorePart &end) { return numbersTogether(end) / rowNumbers; }
};

class Walk {
public:
  /// All values of `copy` are arguments of `kernel`.
  Walk(const RowCopy &copy, func::FuncOp kernel) : copy(copy), b(kernel), i32(b.getI32Type()) {
    for (RowPart part : parts) {
      if (part == RowPart::Values && copy.type().getLatent())
        continue; // a part of the keys
      Value rows = part == RowPart::Keys ? copy.k : copy.v;
      routes.emplace_back(copy.from ? copy.cache : rows, copy.to ? copy.written() : rows, part);
    }
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
    bool copies = llvm::none_of(routes, [](const Route &route) { return route.converts; });
    int64_t blocks = copies && wordsOfLane() <= mostCopiedWords ? blocksToCopy : blocksToCompute;
    tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(blocks));
    setLaunch(b.kernel, {.role = *::attn::rt::parseKernelRole(copy.name()),
                         .rowsPerWarp = ShareAttr::rows,
                         .pieces = static_cast<int>(pieces())});
    b.finish(warps * lanes);
  }

private:
  int64_t pieces() const {
    int64_t most = 0;
    for (const Route &route : routes)
      most = std::max(most, route.pieces());
    return most;
  }

  /// The words of 32 bits that a lane holds between its loads and its stores.
  int64_t wordsOfLane() const {
    int64_t bytes = 0;
    for (const Route &route : routes) {
      SmallVector<ShareAttr> shares = {route.shareOf(route.from)};
      if (route.hasMeta(route.from))
        shares.push_back(route.metaShareOf(route.from, pieces()));
      for (ShareAttr share : shares)
        bytes += share.loads() * share.getChunk();
    }
    return bytes / 4;
  }

  /// Declares parameters in the order of the manifest: the number of rows, their memory, and the lists.
  void declareParameters() {
    b.buffer("row_count", i32);
    for (const Route &route : routes)
      for (auto [argument, end] :
           {std::pair(route.source, &route.from), std::pair(route.target, &route.to)}) {
        RowMemory memory = rowMemoryOf(argument, route.part);
        b.buffer(memory.buffer, route.chunkOf(*end) == 2 ? Type(b.getI16Type()) : i32);
        b.dimension(memory.layer);
        if (route.hasMeta(*end)) {
          RowMemory meta = rowMemoryOf(argument, route.part, /*meta=*/true);
          b.buffer(meta.buffer, route.converts && end->format.hasBlocks() ? Type(b.getI8Type()) : i32);
          b.dimension(meta.layer);
        }
        if (route.readsScales(*end)) {
          RowMemory scales = sharedScalesOf(argument, route.part);
          b.buffer(scales.buffer, b.getF32Type());
          b.dimension(scales.layer);
        }
      }
    b.dimension("layers");
    for (Value list : {copy.from, copy.to})
      if (list)
        b.buffer(argumentName(list), i32);
    if (copy.status)
      b.buffer(argumentName(copy.status), i32);
  }

  /// Reads the slots of row i of the eight in lane i. Rows past the end are marked like rows to be skipped.
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

  /// The rows and metadata that a warp has read of keys or values.
  struct Taken {
    Value rows, meta;
  };

  Taken take(const Route &route) {
    auto read = [&](bool meta, ShareAttr share) -> Value {
      Type type = route.source.getType();
      if (auto cache = dyn_cast<KVType>(type); cache && route.converts && route.from.format.isPlain())
        type = route.rowsOf(route.part == RowPart::Keys ? cache.getKey() : cache.getValue());
      return LoadRowsOp::create(b, type, route.part, meta, route.source, bool(from), from ? from : firstRow,
                                mark, layer, piece, share);
    };
    Taken taken{read(false, route.shareOf(route.from)), Value()};
    if (route.hasMeta(route.from))
      taken.meta = read(true, route.metaShareOf(route.from, pieces()));
    return taken;
  }

  Taken convert(const Route &route, Taken taken) {
    if (!route.from.format.isPlain()) {
      Type type = route.to.format.isPlain() ? route.target.getType() : Type(route.rowsOf(b.getF32Type()));
      taken = {DequantizeRowsOp::create(b, type, route.part, taken.rows, taken.meta, route.source, layer,
                                        piece, route.shareOf(route.from)),
               Value()};
    }
    if (route.to.format.isPlain())
      return taken;
    Type codes = route.target.getType();
    auto quantized =
        QuantizeRowsOp::create(b, codes, route.hasMeta(route.to) ? codes : Type(), route.part, taken.rows,
                               route.target, layer, piece, route.shareOf(route.to), copy.status);
    return {quantized.getCodes(), quantized.getMeta()};
  }

  void put(const Route &route, const Taken &taken) {
    auto write = [&](Value value, bool meta, ShareAttr share) {
      StoreRowsOp::create(b, value, route.part, meta, route.target, bool(to), to ? to : firstRow, mark, layer,
                          piece, share);
    };
    write(taken.rows, false, route.shareOf(route.to));
    if (route.hasMeta(route.to))
      write(taken.meta, true, route.metaShareOf(route.to, pieces()));
  }

  /// Emits all loads, then all stores.
  void copyRows() {
    SmallVector<Taken> taken;
    for (const Route &route : routes)
      taken.push_back(take(route));
    for (auto [route, rows] : llvm::zip(routes, taken))
      put(route, route.converts ? convert(route, rows) : rows);
  }

  RowCopy copy;
  SmallVector<Route, 2> routes;
  KernelBuilder b;
  Type i32;
  Value layer, piece, firstRow;
  Value from, to, mark; ///< of the row whose slots this lane has read
};

struct WalkRows : mlir::attn::impl::WalkRowsPassBase<WalkRows> {
  using WalkRowsPassBase::WalkRowsPassBase;

  void runOnOperation() override {
    const Chip *chip = findChip(target);
    if (!chip) {
      getOperation().emitError() << "unknown target '" << target << "'; known are " << listChips();
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (findRowCopy(function))
        functions.push_back(function);
    for (func::FuncOp function : functions) {
      walk(function, *chip);
      function.erase();
      ++kernels;
    }
  }

  /// Replaces the function by its kernel. Before its parameters the kernel has the function's arguments and,
  /// under their names, the results of a gather or of an append.
  static void walk(func::FuncOp function, const Chip &chip) {
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
                        builder.getStringAttr(result == copy.prologue.rotated ? "rotated"
                                              : result == copy.k              ? "k"
                                                                              : "v"));
    for (Value *value : {&copy.cache, &copy.into, &copy.from, &copy.to, &copy.k, &copy.v, &copy.status})
      *value = mapping.lookupOrNull(*value);
    for (Value *value : copy.prologue.values())
      *value = mapping.lookupOrNull(*value);
    if (copy.prologue.isEmpty())
      Walk(copy, kernel).run();
    else
      walkHeads(copy, kernel, chip);
  }
};

} // namespace
