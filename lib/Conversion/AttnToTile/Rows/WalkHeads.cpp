//===- WalkHeads.cpp - A loop over heads around an append -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A warp takes some heads of one row at a time, of the queries, the keys or the
// values: a *piece* of at most four loads, 2 KB, or two if they are quantized, or one head of more than 256
// features. All its heads turn by the same angles, which each lane reads once. The pieces of a row follow
// each other, so that the warps of a block share its tables in their L1 cache. Larger pieces would leave GPUs
// idle where a step has few rows. Rows and heads of queries are whole sectors; so are those of pages, unless
// a quantized head has less than 32 bytes.
//
//   work(layer, row, piece)       walked by all warps of the grid, one after the other
//
// Loads do not depend on the row's slot. What is quantized does not wait for it either; only stores do.
//
//===----------------------------------------------------------------------===//
#include "WalkHeads.h"

#include "RowMemory.h"

#include "attn/Dialect/Tile/IR/Launch.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;
namespace rt = ::attn::rt;

namespace {

constexpr int64_t warps = 4, lanes = 32;
/// Loads of a piece: 2 KB of rows, or half as many that are quantized, which takes as long.
constexpr int64_t mostLoads = 4, mostQuantized = 2;
/// Blocks with 96 registers to a lane. The longer chains of warps that quantize heads of at least `wideHead`
/// lanes want more of them: with 80 registers, 72 on Hopper, or 64 where scales are given. With 128, if a
/// load's lanes are no power of two, and with 255, if they exchange features one by one. ptxas spills nothing
/// then; with 72 registers it spilled 4 bytes on sm_80 and sm_120a.
constexpr int64_t blocks = 5, blocksToQuantize = 6, blocksOnHopper = 7, blocksToScale = 8, blocksOfOdd = 4,
                  blocksToExchange = 2;
constexpr int64_t wideHead = 16;

/// The heads of queries, of keys or of values, and how they are cut into pieces.
struct Heads {
  Value source, target;
  RowPart part;
  Value weight = {};
  bool isPrepared = true; ///< normalized or rotated
  int64_t first = 0;      ///< the first feature that turns
  bool apart = false;     ///< heads of a row are not one piece

  rt::StorePart from() const { return storedPartOf(source, part); }
  rt::StorePart to() const { return storedPartOf(target, part); }
  bool isQuery() const { return isa<RankedTensorType>(target.getType()); }
  int64_t all() const { return cast<RankedTensorType>(source.getType()).getDimSize(2); }
  int64_t width() const { return from().dim / rowNumbers; } ///< lanes of a head
  int64_t perLoad() const { return std::max<int64_t>(1, lanes / width()); }
  int64_t perPiece() const {
    int64_t loads = llvm::divideCeil(all(), perLoad());
    int64_t mostAtOnce = to().format.isPlain() ? mostLoads : mostQuantized;
    int64_t most = llvm::divideCeil(loads, llvm::divideCeil(loads, mostAtOnce));
    return width() > lanes ? 1 : std::min(all(), most * perLoad());
  }
  int64_t pieces() const { return llvm::divideCeil(all(), perPiece()); }
  int64_t together() const { return std::min(perPiece(), perLoad()); } ///< heads of a load
  int64_t loads() const { return llvm::divideCeil(perPiece(), together()); }
  int64_t allLoads() const { return llvm::divideCeil(all(), together()); } ///< of all pieces
  /// Whether all pieces have all loads, and all loads all heads.
  bool isFull() const { return pieces() * loads() * together() == all(); }

  /// How lanes share the heads of a load.
  ShareAttr share(const rt::StorePart &end) const {
    return ShareAttr::get(source.getContext(), rowNumbers * end.format.bits / 8, width(),
                          std::min(lanes, perLoad() * width()), together(), apart);
  }
  ShareAttr metaShare() const {
    const rt::StorePart end = to();
    return ShareAttr::get(source.getContext(), end.format.hasBlocks() ? 1 : metaWordBytes,
                          end.dim / numbersTogether(end), lanes, together(), /*apart=*/false);
  }
  bool hasMeta() const { return to().format.hasLines(); }
  RankedTensorType rowsOf(Type element) const {
    return cast<RankedTensorType>(source.getType()).clone(element);
  }
};

class Walk {
public:
  Walk(const RowCopy &copy, func::FuncOp kernel, const Chip &chip)
      : copy(copy), prologue(copy.prologue), chip(chip), b(kernel) {
    const bool latent = copy.type().getLatent();
    if (prologue.q) // of latents: the features that turn
      all.push_back({.source = prologue.q,
                     .target = prologue.rotated,
                     .part = RowPart::Keys,
                     .weight = prologue.qNorm,
                     .first = latent ? 0 : prologue.first,
                     .apart = latent});
    all.push_back({.source = copy.k,
                   .target = copy.cache,
                   .part = RowPart::Keys,
                   .weight = prologue.kNorm,
                   .isPrepared = prologue.changesKeys(),
                   .first = prologue.first});
    if (copy.v)
      all.push_back({.source = copy.v, .target = copy.cache, .part = RowPart::Values, .isPrepared = false});
    b.setInsertionPointToEnd(&kernel.front());
  }

  void run() {
    declareParameters();
    Type i32 = b.getI32Type();
    int64_t pieces = 0;
    for (const Heads &heads : all)
      pieces += heads.pieces();
    Value count = b.read(b.buffer("row_count", i32), b.i64(0));
    Value work = b.mul(b.mul(b.dimension("layers"), count), b.i32(pieces));
    Value first = b.add(b.mul(BlockIdOp::create(b, i32), b.i32(warps)), WarpIdOp::create(b, i32));
    auto loop = scf::ForOp::create(b, first, work, b.mul(BlockCountOp::create(b, i32), b.i32(warps)));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      Value rest = b.div(loop.getInductionVar(), pieces), index = b.rem(loop.getInductionVar(), pieces);
      row = b.createOrFold<arith::RemUIOp>(rest, count);
      layer = b.wide(b.createOrFold<arith::DivUIOp>(rest, count));
      walkPieces(index);
    }
    tile::blocksPerSMAttr.set(b.kernel, b.getI32IntegerAttr(blocksPerSM()));
    setLaunch(
        b.kernel,
        {.role = *rt::parseKernelRole(copy.name()), .rowsPerWarp = 1, .pieces = static_cast<int>(pieces)});
    b.finish(warps * lanes);
  }

private:
  int64_t blocksPerSM() const {
    auto isOdd = [](const Heads &heads) { return !llvm::isPowerOf2_64(heads.width()); };
    auto isFullAndWide = [](const Heads &heads) { return heads.isFull() && heads.width() >= wideHead; };
    auto isPlainCache = [](const Heads &heads) { return !heads.isQuery() && heads.to().format.isPlain(); };
    auto hasMeta = [](const Heads &heads) { return heads.hasMeta(); };
    if (exchanges())
      return blocksToExchange;
    if (llvm::any_of(all, isOdd))
      return blocksOfOdd;
    if (!quantizes() || llvm::any_of(all, isPlainCache) || !llvm::all_of(all, isFullAndWide) || turnsPart())
      return blocks;
    if (!llvm::any_of(all, hasMeta))
      return blocksToScale;
    return chip.hasWgmma ? blocksOnHopper : blocksToQuantize;
  }
  bool turnsPart() const {
    return prologue.cos &&
           2 * cast<RankedTensorType>(prologue.cos.getType()).getDimSize(1) < all.front().from().dim;
  }
  bool quantizes() const {
    return llvm::any_of(all, [](const Heads &heads) { return !heads.to().format.isPlain(); });
  }

  /// Whether the partners of a lane's features are in more than one other lane.
  bool exchanges() const {
    return prologue.cos && !prologue.interleaved &&
           cast<RankedTensorType>(prologue.cos.getType()).getDimSize(1) % rowNumbers != 0;
  }

  /// Declares parameters in the order of the manifest.
  void declareParameters() {
    Type i32 = b.getI32Type();
    b.buffer("row_count", i32);
    for (const Heads &heads : all) {
      for (auto [argument, end] : {std::pair(heads.source, heads.from()), {heads.target, heads.to()}}) {
        RowMemory memory = rowMemoryOf(argument, heads.part);
        b.buffer(memory.buffer, heads.share(end).getChunk() == 2 ? Type(b.getI16Type()) : i32);
        b.dimension(memory.layer);
      }
      if (heads.hasMeta()) {
        RowMemory meta = rowMemoryOf(heads.target, heads.part, /*meta=*/true);
        b.buffer(meta.buffer, heads.to().format.hasBlocks() ? Type(b.getI8Type()) : i32);
        b.dimension(meta.layer);
      }
    }
    b.dimension("layers");
    b.buffer(argumentName(copy.to), i32);
    if (prologue.positions)
      b.buffer(argumentName(prologue.positions), i32);
    if (copy.status)
      b.buffer(argumentName(copy.status), i32);
  }

  /// Each warp takes the branch of its piece.
  void walkPieces(Value index) {
    Value before;
    int64_t begin = 0;
    for (const Heads &heads : all) {
      int64_t end = begin + heads.pieces();
      Value within = &heads == &all.back() ? Value() : b.less(index, b.i32(end));
      if (before)
        within = within ? b.createOrFold<arith::AndIOp>(before, within) : before;
      b.doIf(within, [&] { walkPiece(heads, b.sub(index, b.i32(begin))); });
      begin = end;
      before = b.compare(arith::CmpIPredicate::sge, index, b.i32(end));
    }
  }

  /// All loads of a piece are issued at once.
  void walkPiece(const Heads &heads, Value piece) {
    SmallVector<Load> loads;
    for (int64_t i = 0; i < heads.loads(); ++i) {
      Value place = b.add(b.mul(piece, b.i32(heads.loads())), b.i32(i)), mark = b.i32(0);
      if (heads.pieces() * heads.loads() > heads.allLoads()) // the last piece has fewer
        mark = b.select(b.less(place, b.i32(heads.allLoads())), mark, b.i32(-1));
      loads.push_back({place, mark, Value()});
    }
    for (Load &load : loads)
      load.rows =
          LoadRowsOp::create(b, heads.source.getType(), heads.part, /*meta=*/false, heads.source,
                             /*listed=*/false, row, load.mark, layer, load.place, heads.share(heads.from()));
    if (heads.isQuery()) {
      prepare(heads, loads, cast<RankedTensorType>(heads.target.getType()).getElementType());
      for (const Load &load : loads)
        StoreRowsOp::create(b, load.rows, heads.part, /*meta=*/false, heads.target, /*listed=*/false, row,
                            load.mark, layer, load.place, heads.share(heads.to()));
      return;
    }
    Value slot = b.read(b.buffer(argumentName(copy.to), b.getI32Type()), b.wide(row), /*written=*/true);
    // A negative slot is past the cache as an unsigned number.
    Value slots = b.dimension((argumentName(copy.cache) + "." + rt::sizeName(rt::StoreSize::Slots)).str());
    Value exists = b.compare(arith::CmpIPredicate::ult, slot, slots);
    auto convert = [&] {
      if (!heads.to().format.isPlain())
        quantize(heads, loads);
      else if (heads.isPrepared)
        prepare(heads, loads, cast<RankedTensorType>(heads.source.getType()).getElementType());
    };
    // Numbers of rows without a slot do not count. Quantizing takes so long that it does not wait for the
    // slot.
    const bool waits = heads.to().format.isPlain() || copy.status;
    if (!waits)
      convert();
    b.doIf(exists, [&] {
      if (waits)
        convert();
      store(heads, loads, slot);
    });
  }

  /// One of the loads of a piece.
  struct Load {
    Value place; ///< among all loads of the heads
    Value mark;  ///< negative: there are no such heads
    Value rows, meta = {};
  };

  /// One load after the other, so that a lane holds few numbers in f32.
  void quantize(const Heads &heads, MutableArrayRef<Load> loads) {
    for (Load &load : loads) {
      if (heads.isPrepared)
        prepare(heads, load, b.getF32Type());
      Type codes = heads.target.getType();
      auto quantized =
          QuantizeRowsOp::create(b, codes, heads.hasMeta() ? codes : Type(), heads.part, load.rows,
                                 heads.target, layer, load.place, heads.share(heads.to()), copy.status);
      load.rows = quantized.getCodes(), load.meta = quantized.getMeta();
    }
  }

  void store(const Heads &heads, ArrayRef<Load> loads, Value slot) {
    for (const Load &load : loads) {
      auto write = [&](Value value, bool isMeta, ShareAttr share) {
        StoreRowsOp::create(b, value, heads.part, isMeta, heads.target, /*listed=*/true, slot, load.mark,
                            layer, load.place, share);
      };
      write(load.rows, false, heads.share(heads.to()));
      if (load.meta)
        write(load.meta, true, heads.metaShare());
    }
  }

  /// Normalizes and rotates in f32, then rounds to `element`. The loads exchange together where lanes have
  /// registers for that.
  void prepare(const Heads &heads, MutableArrayRef<Load> loads, Type element) {
    const ShareAttr share = heads.share(heads.from());
    const size_t together = quantizes() ? 1 : loads.size();
    for (; !loads.empty(); loads = loads.drop_front(together)) {
      for (Load &load : loads.take_front(heads.weight ? together : 0))
        load.rows =
            NormalizeRowsOp::create(b, heads.rowsOf(prologue.cos ? b.getF32Type() : element), load.rows,
                                    heads.weight, b.getF32FloatAttr(*prologue.epsilon), layer, share);
      for (Load &load : loads.take_front(prologue.cos ? together : 0))
        load.rows = RotateRowsOp::create(
            b, heads.rowsOf(element), load.rows, prologue.cos, prologue.sin, position(),
            heads.first ? b.getI64IntegerAttr(heads.first) : IntegerAttr(), prologue.interleaved, share);
    }
  }

  /// The row's position, or the last of the tables.
  Value position() {
    Value given = b.read(b.buffer(argumentName(prologue.positions), b.getI32Type()), b.wide(row),
                         /*written=*/true);
    Value last = b.sub(b.dimension((argumentName(prologue.cos) + ".dim0").str()), b.i32(1));
    return b.max(b.min(given, last), b.i32(0));
  }

  const RowCopy &copy;
  const Prologue &prologue;
  const Chip &chip;
  KernelBuilder b;
  SmallVector<Heads, 3> all;
  Value layer, row;
};

} // namespace

void mlir::attn::walkHeads(const RowCopy &copy, func::FuncOp kernel, const Chip &chip) {
  Walk(copy, kernel, chip).run();
}
