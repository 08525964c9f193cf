//===- WgmmaPatterns.cpp - Asynchronous MMAs of a warpgroup ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// wgmma reads shared memory through 64-bit descriptors: the start of the
// operand, the distances between its 8x8 core matrices, and the swizzle. All
// fields but the start are constants of the tile's type, so one address becomes
// a descriptor once, and stepping through the tile adds constants. The upper
// half is all constant. The halves are kept apart until the last moment,
// because 64-bit sums would cost carries and twice the registers.
//
// A tile is stored in panels, each with its own swizzle (SharedType). Along the
// contracted axis a step of 16 features lies inside one panel. Along the axis
// that is kept, values span all panels: those of one width form one wgmma (the
// "leading" distance is a panel), and each other width is another wgmma, into
// its own columns of the accumulator.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Bits 62-63: 1 for swizzles of 128 bytes, 2 for 64, 3 for 32.
uint64_t swizzleMode(int64_t width) { return width == 128 ? 1 : width == 64 ? 2 : 3; }

/// A descriptor without its start; distances are in bytes.
int64_t descriptorConstant(int64_t width, int64_t leading, int64_t stride) {
  return static_cast<int64_t>(swizzleMode(width) << 62 | static_cast<uint64_t>(stride >> 4) << 32 |
                              static_cast<uint64_t>(leading >> 4) << 16);
}

/// The start field: bits 4 to 17 of a shared-memory address.
Value startOf(Emitter &e, Value pointer) {
  Value address = LLVM::PtrToIntOp::create(e.b, e.loc, e.b.getI32Type(), pointer);
  return e.shuffle(NVVM::ShflKind::idx, e.shr(e.band(address, 0x3ffff), 4), e.i32(0));
}

/// An operand in shared memory.
struct Operand {
  Operand(Emitter &e, SharedType type, Value base) : e(e), type(type), start(startOf(e, base)) {}

  Value at(int64_t bytes, int64_t constant, Value offset = Value()) {
    Value low = e.add(offset ? e.add(start, offset) : start, (constant & 0xffffffff) + (bytes >> 4));
    Value halves = LLVM::PoisonOp::create(e.b, e.loc, VectorType::get(2, e.b.getI32Type()));
    halves = LLVM::InsertElementOp::create(e.b, e.loc, halves, low, e.i32(0));
    Value high = e.i32(static_cast<int32_t>(static_cast<uint64_t>(constant) >> 32));
    halves = LLVM::InsertElementOp::create(e.b, e.loc, halves, high, e.i32(1));
    return e.bitcast(e.b.getI64Type(), halves);
  }

  /// The descriptor of 16 features from chunk `chunk` on, contracted (K-major), `lineOffset` lines down: a
  /// multiple of 8 and of boxes.
  Value alongFeatures(int64_t chunk, Value lineOffset = Value()) {
    SharedType::Panel panel = type.getPanels()[type.getPanelOf(chunk)];
    // The start of the first line moves with the panel's width, or from box to box.
    int64_t perLine = type.getBoxes() ? type.getLineBytes() : panel.width;
    return at(panel.offset + (chunk - panel.chunk) * 16, descriptorConstant(panel.width, 0, panel.width * 8),
              lineOffset ? e.mul(lineOffset, perLine >> 4) : Value());
  }

  /// The descriptor of the tile's 64 columns and 16 lines from `line` on, contracted (MN-major).
  Value turned(int64_t line) {
    return at(line * type.getLineBytes(),
              descriptorConstant(type.getLineBytes(), 0, type.getLineBytes() * 8));
  }

  /// The offset, for `at`, of the columns of which a warpgroup reads a part.
  Value columnOffset(Value column) {
    SharedType::Panel panel = type.getPanels()[0];
    int64_t columns = panel.width / 2;
    Value panels = e.mul(e.shr(column, llvm::Log2_64(columns)), type.getRows() * panel.width >> 4);
    return e.add(panels, e.shr(e.band(column, columns - 1), 3));
  }

  Emitter &e;
  SharedType type;
  Value start;
};

/// Neighbouring panels of one width: `columns` columns from the first panel on.
struct PanelRun {
  SharedType::Panel first;
  int64_t columns;
};

SmallVector<PanelRun> panelRuns(SharedType type) {
  SmallVector<PanelRun> runs;
  int64_t perPanel = 0;
  for (const SharedType::Panel &panel : type.getPanels()) {
    perPanel = panel.width / 2;
    if (runs.empty() || runs.back().first.width != panel.width)
      runs.push_back({panel, 0});
    runs.back().columns += perPanel;
  }
  return runs;
}

/// The columns of an instruction, of as many that are multiplied. ptxas refuses an instruction that takes
/// more registers than a thread of the block begins with, also where a role gets more: sums, and up to 30
/// others.
static int64_t columnsOf(StartMmaOp op, int64_t columns) {
  constexpr int64_t allRegisters = 65536, others = 30, narrow = 128;
  auto schedule = scheduleAttr.get(op->getParentOfType<func::FuncOp>());
  const bool fits = !schedule || columns / 2 + others <= allRegisters / schedule.getThreads();
  return fits ? columns : narrow;
}

struct StartMmaPattern : TilePattern<StartMmaOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(StartMmaOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    SharedType rhsType = op.getRhs().getType();
    FragmentType result = op.getResult().getType();
    Operand rhs(e, rhsType, adaptor.getRhs().front());
    bool transposed = rhsType.getColAxis() == result.getAxes()[1];
    int64_t depth = int64_t(op.getDepth().value_or(transposed ? rhsType.getRows() : rhsType.getCols())) / 16;

    std::optional<Operand> lhs;
    Value line;
    if (auto shared = dyn_cast<SharedType>(op.getLhs().getType())) {
      lhs.emplace(e, shared, adaptor.getLhs().front());
      line = op.transposesLhs() ? Value() : adaptor.getLine().front();
    }
    Value partOffset = op.getColumn() ? rhs.columnOffset(adaptor.getColumn().front()) : Value();

    SmallVector<Value> registers(adaptor.getAcc());
    bool fresh = registers.empty();
    registers.resize(result.getRegisters());
    // If another MMA was started just before, its fence has ordered these registers, too. But ptxas takes a
    // fence for the start of a stage of wgmma, so each MMA has one.
    NVVM::WgmmaFenceAlignedOp::create(rewriter, op.getLoc());
    auto multiply = [&](int64_t k, int64_t column, int64_t columns, Value rhsDescriptor) {
      MutableArrayRef<Value> acc = MutableArrayRef<Value>(registers).slice(column / 2, columns / 2);
      ValueRange lhsRegisters = lhs ? ValueRange() : adaptor.getLhs().slice(k * 4, 4);
      Value lhsDescriptor = !lhs                 ? Value()
                            : op.transposesLhs() ? lhs->turned(k * 16)
                                                 : lhs->alongFeatures(k * 2, line);
      auto wgmma =
          WgmmaOp::create(rewriter, op.getLoc(), SmallVector<Type>(columns / 2, rewriter.getF32Type()),
                          fresh && k == 0 ? ValueRange() : ValueRange(acc), lhsRegisters, lhsDescriptor,
                          rhsDescriptor, columns, rhsType.getElement(), transposed, op.transposesLhs());
      llvm::copy(wgmma.getResults(), acc.begin());
    };
    for (int64_t k = 0; k < depth; ++k) {
      if (!transposed) {
        multiply(k, 0, rhsType.getRows(), rhs.alongFeatures(k * 2));
        continue;
      }
      for (const PanelRun &run : panelRuns(rhsType)) {
        int64_t width = run.first.width;
        int64_t lines = rhsType.getBoxLines(), box = k * 16 / lines, line = k * 16 % lines;
        int64_t offset = box * lines * rhsType.getLineBytes() + run.first.offset + line * width;
        int64_t constant = descriptorConstant(width, lines * width, width * 8);
        int64_t left = result.getSizes()[1] - run.first.chunk * 8; // padding follows the last
        int64_t columns = partOffset ? result.getSizes()[1] : std::min(run.columns, left);
        if (partOffset && run.first.chunk > 0) // parts are in the panels of 128 bytes, which come first
          break;
        const int64_t most = columnsOf(op, columns);
        for (int64_t column = 0; column < columns; column += most)
          multiply(k, run.first.chunk * 8 + column, std::min(most, columns - column),
                   rhs.at(offset + column * 2 / width * lines * width, constant, partOffset));
      }
    }
    NVVM::WgmmaGroupSyncAlignedOp::create(rewriter, op.getLoc());
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

struct WaitMmasPattern : TilePattern<WaitMmasOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WaitMmasOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    SmallVector<Value> registers;
    for (ValueRange fragment : adaptor.getStarted())
      llvm::append_range(registers, fragment);
    auto wait = WgmmaWaitOp::create(rewriter, op.getLoc(), ValueRange(registers).getTypes(), op.getPending(),
                                    registers);
    SmallVector<SmallVector<Value>> results;
    size_t next = 0;
    for (ValueRange fragment : adaptor.getStarted()) {
      results.emplace_back(wait.getResults().slice(next, fragment.size()));
      next += fragment.size();
    }
    rewriter.replaceOpWithMultiple(op, std::move(results));
    return success();
  }
};

} // namespace

void tile::populateWgmmaPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                 const LaneMap &lanes) {
  patterns.add<StartMmaPattern, WaitMmasPattern>(converter, patterns.getContext(), lanes);
}
