//===- Copying.cpp - How warps make copies --------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Copying.h"
#include "StoreRows.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

namespace {

/// Copies by all warps, which also compute. A copy stands where its part is read, with the wait of a program
/// that copies first and computes then. --tile-pipeline-copies lets the two overlap.
class AllWarps : public Copying {
public:
  using Copying::Copying;

  SmallVector<Value> start(Source &source, ArrayRef<Buffer> buffers, Scope copiers) override {
    auto tiles = llvm::map_to_vector(buffers, [&](const Buffer &buffer) -> Value {
      auto ring = dyn_cast<RingType>(buffer.memory.getType());
      return ring ? RingStageOp::create(b, ring.getTile(), buffer.memory, b.i32(0)) : buffer.memory;
    });
    source.locate(copiers);
    source.gather(namesOf(buffers), tiles, copiers);
    CommitOp::create(b);
    return tiles;
  }

  void await(Scope readers) override {
    WaitOp::create(b, 0);
    SyncOp::create(b, readers);
  }

  void release(Operation *reader, Scope readers) override {
    b.setInsertionPointAfter(reader);
    SyncOp::create(b, readers);
  }
};

/// Copies by producer warps: every copy is a `tile.produce` of a ring, and --tile-specialize-warps decides
/// later how far it runs ahead. If the schedule says so, boxes are loaded by TMA, each buffer by a warp of
/// its own, so that no warp waits for a tile of another ring: the next task's first keys and values arrive
/// while its queries' tile is still read. Otherwise all of these warps gather.
class Producers : public Copying {
public:
  using Copying::Copying;

  SmallVector<Value> start(Source &source, ArrayRef<Buffer> buffers, Scope) override {
    source.locate(Scope::Producers);
    SmallVector<Value> copies;
    for (const Buffer &buffer : buffers) {
      Value tile = fill(source, buffer);
      for (size_t number = 0; number < buffer.names.size(); ++number)
        copies.push_back(copyIn(tile, buffer, number));
    }
    return copies;
  }

  /// All quantized tokens of a tile are copied where its keys are produced. Each warp reads what other warps
  /// have copied, so producers sync before they widen the tile, and before they copy over it.
  SmallVector<Value> startWidened(Source &source, ArrayRef<Buffer> stored,
                                  ArrayRef<Buffer> buffers) override {
    source.locate(Scope::Producers);
    SmallVector<Value> copies;
    for (const Buffer &buffer : buffers) {
      const bool isFirst = &buffer == buffers.begin(), isLast = &buffer + 1 == buffers.end();
      SharedType tile = cast<RingType>(buffer.memory.getType()).getTile();
      auto fill = ProduceOp::create(b, tile, buffer.memory, IntegerAttr());
      copies.push_back(fill);
      OpBuilder::InsertionGuard guard(b);
      Block *body = b.createBlock(&fill.getCopies(), {}, {tile}, {fill.getLoc()});
      SmallVector<Value> tiles = llvm::map_to_vector(stored, [&](const Buffer &from) -> Value {
        return RingStageOp::create(b, cast<RingType>(from.memory.getType()).getTile(), from.memory, b.i32(0));
      });
      if (isFirst) {
        source.gather(namesOf(stored), tiles, Scope::Producers);
        CommitOp::create(b);
        WaitOp::create(b, 0);
        SyncOp::create(b, Scope::Producers);
      }
      auto copyNamed = [&](Copy name) -> Value {
        for (auto [from, copy] : llvm::zip_equal(stored, tiles))
          if (from.names.front() == name)
            return copy;
        return {};
      };
      const Copy name = buffer.names.front();
      WidenTileOp::create(b, copyNamed(name), name == Copy::Values ? copyNamed(Copy::ValueMeta) : Value(),
                          body->getArgument(0));
      if (isLast)
        SyncOp::create(b, Scope::Producers);
    }
    return copies;
  }

  /// The lines of a ring's tile are in flight while the warps wait until its stage is free. A half begins
  /// with its last features: the second warpgroup leaves their stage before it leaves the weights that the
  /// first waits for.
  SmallVector<Value> startHalves(TokenSource &front, TokenSource &behind, ArrayRef<Buffer> buffers) override {
    assert(buffers.size() == 4 && "two rings for each half");
    SmallVector<Value> copies(buffers.size());
    for (size_t number : {1, 0, 3, 2}) {
      TokenSource &half = number < 2 ? front : behind;
      if (number % 2 == 1) // a half's page numbers take registers until its last lines are loaded
        half.locate(Scope::Producers);
      auto tileOf = [&](size_t ring) { return cast<RingType>(buffers[ring].memory.getType()).getTile(); };
      SharedType tile = tileOf(number);
      const int64_t feature = number % 2 == 1 ? tileOf(number - 1).getCols() : 0;
      SmallVector<Value> held = half.fetchLines(feature, tile);
      auto fill = ProduceOp::create(b, tile, buffers[number].memory, IntegerAttr());
      copies[number] = fill;
      OpBuilder::InsertionGuard guard(b);
      Block *body = b.createBlock(&fill.getCopies(), {}, {tile}, {fill.getLoc()});
      WidenLinesOp::create(b, held, codesOf(k.regions().front().getKey()), body->getArgument(0));
    }
    return copies;
  }

private:
  Value fill(Source &source, const Buffer &buffer) {
    auto warp = source.isLoadedByTma() ? b.getI64IntegerAttr(warpOf(buffer.names.front())) : IntegerAttr();
    SharedType tile = cast<RingType>(buffer.memory.getType()).getTile();
    auto fill = ProduceOp::create(b, tile, buffer.memory, warp);
    OpBuilder::InsertionGuard guard(b);
    Block *body = b.createBlock(&fill.getCopies(), {}, {tile}, {fill.getLoc()});
    for (auto [number, name] : llvm::enumerate(buffer.names)) {
      Value copy = copyIn(body->getArgument(0), buffer, number);
      if (source.isLoadedByTma())
        source.tmaLoad(name, copy);
      else
        source.gather({name}, {copy}, Scope::Producers);
    }
    return fill;
  }

  /// The copy of that number in a tile with several copies, one after the other.
  Value copyIn(Value tile, const Buffer &buffer, size_t number) {
    if (buffer.names.size() == 1)
      return tile;
    Type element = buffer.names[number] == Copy::Position ? Type(b.getI32Type()) : b.getF32Type();
    SharedType type = k.rowTile(k.rowLines(), /*features=*/1, /*boxes=*/0, element);
    return OverlayOp::create(b, type, tile, b.i32(number * k.rowLines()));
  }

  /// The producer warp that loads a copy by TMA. If updates also add to sums of rows, the last warp stores
  /// those, and gradients of outputs follow the values, which come once a task. So do queries if a warp
  /// posts.
  int64_t warpOf(Copy name) const {
    if (name == Copy::KeysBehind)
      return 2;
    if (name == Copy::KeyRestBehind || name == Copy::ValuesBehind)
      return 3;
    if (llvm::is_contained({Copy::Keys, Copy::Lse, Copy::Position}, name))
      return 0;
    if (llvm::is_contained({Copy::Values, Copy::KeyRest, Copy::Delta}, name))
      return 1;
    if (name == Copy::OutputGradient && k.gradient && k.gradient.getAddsRows())
      return 1;
    if (name == Copy::Query && k.gradient && k.gradient.getInOrder())
      return 1;
    return name == Copy::Query ? postingWarp : storingWarp;
  }
};

} // namespace

std::unique_ptr<Copying> Copying::of(StagedKernel &kernel) {
  if (kernel.hasProducers())
    return std::make_unique<Producers>(kernel);
  return std::make_unique<AllWarps>(kernel);
}
