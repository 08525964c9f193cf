//===- MmaPatterns.cpp - Tensor-core products -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands come out of swizzled shared tiles by ldmatrix, four 8x8 matrices at
// a time. In a panel of W bytes per line, line r, chunk c lies at r*W + 16*(c ^
// s(r)). The lines that one lane addresses differ from each other by multiples
// of 8, where s repeats, so the swizzle is an XOR of the lane's own offset with
// a constant: one register per constant, for all tiles.
//
//===----------------------------------------------------------------------===//
#include "LhsRuns.h"
#include "Patterns.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Addresses of 2x2 groups of 8x8 matrices in a shared tile. Matrix j of a group is `lineOf(j)` * 8 lines and
/// `chunkOf(j)` chunks away from the group's corner.
class MatrixAddresses {
public:
  /// `lineBit`: the bit of the matrix number that moves down a block of lines; the other bit moves right a
  /// chunk.
  MatrixAddresses(Emitter &e, SharedType type, Value base, unsigned lineBit) : e(e), type(type), base(base) {
    Value matrix = e.shr(e.lanes.lane, 3), line = e.band(e.lanes.lane, 7);
    Value first = e.band(matrix, 1), second = e.shr(matrix, 1);
    lineInGroup = e.add(line, e.mul(lineBit == 0 ? first : second, 8));
    chunkInGroup = lineBit == 0 ? second : first;
    panels = type.getPanels();
    offsets.resize(panels.size());
  }

  /// The address of the group whose corner is (line, chunk); the line may have a uniform part in `base`.
  Value at(int64_t line, int64_t chunk) {
    size_t p = type.getPanelOf(chunk);
    const SharedType::Panel &panel = panels[p];
    int64_t local = chunk - panel.chunk;
    Value &offset = offsets[p];
    if (!offset) {
      if (type.holdsCodes()) {
        offset = e.placeOf(type, panel.width, lineInGroup, chunkInGroup);
      } else {
        Value swizzle = e.band(e.shr(lineInGroup, swizzleShift(panel.width)), panel.width / 16 - 1);
        Value position = type.getSwizzled() ? e.bxor(chunkInGroup, swizzle) : chunkInGroup;
        offset = e.add(e.mul(lineInGroup, panel.width), e.mul(position, 16));
      }
    }
    Value bytes = type.getSwizzled() ? e.bxor(offset, local * 16) : e.add(offset, local * 16);
    return e.sharedAt(e.sharedAt(base, bytes), panel.offset + line * panel.width);
  }

private:
  Emitter &e;
  SharedType type;
  Value base, lineInGroup, chunkInGroup;
  SmallVector<SharedType::Panel> panels;
  SmallVector<Value> offsets;
};

/// A left operand in a shared tile, from the uniform `line` on. Each panel begins that many lines later, so
/// panels of different widths have base addresses of their own.
class LhsFromShared {
public:
  LhsFromShared(Emitter &e, SharedType type, Value base, Value line) : e(e), type(type) {
    for (const SharedType::Panel &panel : type.getPanels())
      addresses.emplace_back(e, type, e.sharedAt(base, e.mul(line, panel.width)), /*lineBit=*/0);
  }
  /// The registers of the 16x16 block whose corner is (line + row, chunk).
  SmallVector<Value, 4> block(int64_t row, int64_t chunk) {
    return e.loadMatrices(addresses[type.getPanelOf(chunk)].at(row, chunk), /*transposed=*/false);
  }

private:
  Emitter &e;
  SharedType type;
  SmallVector<MatrixAddresses> addresses;
};

struct LoadPattern : TilePattern<LoadOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    if (type.getLayout() == Layout::Rhs) {
      if (!type.getOrder())
        return op.emitOpError("expected features in runs, as quantized values have them, got ") << type;
      LhsRunsFromShared runs(e, op.getTile().getType(), adaptor.getTile(), adaptor.getLine(), type);
      rewriter.replaceOpWithMultiple(op, {runs.fewRows()});
      return success();
    }
    if (type.getOrder()) {
      LhsRunsFromShared runs(e, op.getTile().getType(), adaptor.getTile(), adaptor.getLine(), type);
      SmallVector<Value> all;
      for (int64_t row = 0; row < type.getSizes()[0]; row += 16)
        llvm::append_range(all, runs.rowBlock(row));
      rewriter.replaceOpWithMultiple(op, {all});
      return success();
    }
    LhsFromShared source(e, op.getTile().getType(), adaptor.getTile(), adaptor.getLine());
    SmallVector<Value> registers;
    for (int64_t row = 0; row < type.getSizes()[0]; row += 16)
      for (int64_t chunk = 0; chunk < op.getTile().getType().getLineBytes() / 16; chunk += 2)
        llvm::append_range(registers, source.block(row, chunk));
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

/// The four lanes of a row have the same number, and the first writes it.
void stageNumbers(Emitter &e, ValueRange registers, Value base, Value line) {
  constexpr int64_t bytes = 4;
  Value first = e.b.createOrFold<arith::CmpIOp>(e.loc, arith::CmpIPredicate::eq, e.lanes.quad, e.i32(0));
  e.doIf(first, [&](Emitter &inner) {
    for (auto [block, number] : llvm::enumerate(registers)) {
      Value row = inner.add(inner.add(line, inner.lanes.group), 8 * static_cast<int64_t>(block));
      LLVM::StoreOp::create(inner.b, inner.loc, number, inner.sharedAt(base, inner.mul(row, bytes)));
    }
  });
}

/// Two blocks of an accumulator side by side are four matrices, in the order of its registers.
struct StagePattern : TilePattern<StageOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(StageOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    SharedType tile = op.getTile().getType();
    FragmentType type = op.getFragment().getType();
    ValueRange registers = adaptor.getFragment();
    Value base = adaptor.getTile().front(), line = adaptor.getLine().front();
    if (type.getRank() == 1) {
      stageNumbers(e, registers, base, line);
      rewriter.eraseOp(op);
      return success();
    }
    if (tile.getElement().isF32()) {
      stageSums(e, tile, type, registers, base, line);
      rewriter.eraseOp(op);
      return success();
    }
    for (const SharedType::Panel &panel : tile.getPanels()) {
      MatrixAddresses target(e, tile, e.sharedAt(base, e.mul(line, panel.width)), /*lineBit=*/0);
      int64_t blocks = type.getSizes()[1] / 8, end = panel.chunk + panel.width / 16;
      for (int64_t row = 0; row < type.getSizes()[0]; row += 16)
        for (int64_t chunk = panel.chunk; chunk < end; chunk += 2) {
          ValueRange from = registers.slice((row / 16 * blocks + chunk) * 4, 8);
          SmallVector<Value, 4> packed;
          for (int64_t i = 0; i < 8; i += 2)
            packed.push_back(e.pack(from[i], from[i + 1], tile.getElement()));
          e.storeMatrices(target.at(row, chunk), packed);
        }
    }
    rewriter.eraseOp(op);
    return success();
  }
};

struct MmaPattern : TilePattern<MmaOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(MmaOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    auto rhs = dyn_cast<SharedType>(op.getRhs().getType());
    if (!rhs)
      return multiplyRegisters(op, adaptor, rewriter);
    FragmentType result = op.getResult().getType();
    SmallVector<Value> acc(adaptor.getAcc());
    int64_t rowBlocks = result.getSizes()[0] / 16, colBlocks = result.getSizes()[1] / 8;
    // The contracted axis of `rhs` decides its form. Along columns it is stored as the tensor cores want it;
    // along rows it is transposed on the way.
    bool transposed = rhs.getColAxis() == result.getAxes()[1];
    int64_t depth = (transposed ? rhs.getRows() : rhs.getCols()) / 16;
    Value base = adaptor.getRhs().front();
    if (op.getColumn()) { // whole panels, each as long as the tile
      int64_t bytes = rhs.getRows() * rhs.getElement().getIntOrFloatBitWidth() / 8;
      base = e.sharedAt(base, e.mul(adaptor.getColumn().front(), bytes));
    }
    MatrixAddresses rhsAddresses(e, rhs, base, /*lineBit=*/transposed ? 0 : 1);

    LeftOperand lhs(e, op, adaptor, depth);
    for (int64_t k = 0; k < depth; ++k) {
      SmallVector<SmallVector<Value, 4>> a = lhs.blocks(rowBlocks, k);
      for (int64_t n = 0; n < colBlocks; n += 2) {
        SmallVector<Value, 4> matrices = e.loadMatrices(
            transposed ? rhsAddresses.at(k * 16, n) : rhsAddresses.at(n * 8, k * 2), transposed);
        for (int64_t m = 0; m < rowBlocks; ++m)
          for (int64_t half = 0; half < 2; ++half)
            e.multiply(a[m], ArrayRef<Value>(matrices).slice(half * 2, 2),
                       MutableArrayRef<Value>(acc).slice((m * colBlocks + n + half) * 4, 4),
                       rhs.getElement());
      }
    }
    rewriter.replaceOpWithMultiple(op, {acc});
    return success();
  }

private:
  /// The left operand, from registers or from shared memory.
  struct LeftOperand {
    LeftOperand(Emitter &e, MmaOp op, OneToNOpAdaptor adaptor, int64_t depth)
        : registers(adaptor.getLhs()), depth(depth) {
      auto shared = dyn_cast<SharedType>(op.getLhs().getType());
      if (!shared)
        return;
      Value base = adaptor.getLhs().front(), line = adaptor.getLine().front();
      auto rhs = dyn_cast<FragmentType>(op.getRhs().getType());
      if (!rhs || !rhs.getOrder()) {
        memory.emplace(e, shared, base, line);
        return;
      }
      LhsRunsFromShared runs(e, shared, base, line, rhs);
      for (int64_t row = 0; row < op.getResult().getType().getSizes()[0]; row += 16)
        llvm::append_range(loaded, runs.rowBlock(row));
      registers = loaded;
    }
    /// The operand's blocks of all rows at step k.
    SmallVector<SmallVector<Value, 4>> blocks(int64_t rowBlocks, int64_t k) {
      SmallVector<SmallVector<Value, 4>> a;
      for (int64_t m = 0; m < rowBlocks; ++m) {
        if (memory)
          a.push_back(memory->block(m * 16, k * 2));
        else
          a.emplace_back(registers.slice((m * depth + k) * 4, 4));
      }
      return a;
    }

    SmallVector<Value> loaded;
    ValueRange registers;
    int64_t depth;
    std::optional<LhsFromShared> memory;
  };

  /// Multiplies with queries as the right operand, one block of eight.
  static void multiplyTransposed(Emitter &e, ValueRange a, ArrayRef<Value> b, MutableArrayRef<Value> acc,
                                 int64_t depth, Type element) {
    int64_t rowBlocks = acc.size() / 4;
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t m = 0; m < rowBlocks; ++m) {
        ValueRange upper = a.slice((2 * m * depth + k) * 2, 2),
                   lower = a.slice(((2 * m + 1) * depth + k) * 2, 2);
        e.multiply({upper[0], lower[0], upper[1], lower[1]}, b.slice(k * 2, 2), acc.slice(m * 4, 4), element);
      }
  }

  /// Multiplies by a right operand in registers: two per block of 8 columns and 16 contracted.
  LogicalResult multiplyRegisters(MmaOp op, OneToNOpAdaptor adaptor,
                                  ConversionPatternRewriter &rewriter) const {
    Emitter e = emitter(op, rewriter);
    auto rhs = cast<FragmentType>(op.getRhs().getType());
    SmallVector<Value> acc(adaptor.getAcc()), b(adaptor.getRhs());
    int64_t rowBlocks = op.getResult().getType().getSizes()[0] / 16, colBlocks = rhs.getSizes()[0] / 8;
    int64_t depth = rhs.getSizes()[1] / 16;
    if (op.transposesQueries()) {
      multiplyTransposed(e, adaptor.getLhs(), b, acc, depth, rhs.getElement());
      rewriter.replaceOpWithMultiple(op, {acc});
      return success();
    }
    LeftOperand lhs(e, op, adaptor, depth);
    for (int64_t k = 0; k < depth; ++k) {
      SmallVector<SmallVector<Value, 4>> a = lhs.blocks(rowBlocks, k);
      for (int64_t n = 0; n < colBlocks; ++n)
        for (int64_t m = 0; m < rowBlocks; ++m)
          e.multiply(a[m], ArrayRef<Value>(b).slice((n * depth + k) * 2, 2),
                     MutableArrayRef<Value>(acc).slice((m * colBlocks + n) * 4, 4), rhs.getElement());
    }
    rewriter.replaceOpWithMultiple(op, {acc});
    return success();
  }
};

} // namespace

void tile::populateMmaPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                               const LaneMap &lanes) {
  patterns.add<LoadPattern, StagePattern, MmaPattern>(converter, patterns.getContext(), lanes);
}
