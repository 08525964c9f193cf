//===- RhsPatterns.cpp - Right operands by way of registers ---------------===//
//
// Tiles of 16-bit elements go from shared memory to the tensor cores by ldmatrix
// (DotPatterns.cpp), which moves elements of 16 bits only. Codes of 8 bits are
// loaded by the lane that multiplies them: two neighbours at a time where the
// contracted axis lies along the tile's lines, else one by one. A lane's loads of
// one instruction hit different banks, by the same swizzle as that of copies.
//
//===----------------------------------------------------------------------===//
#include "Patterns.h"

#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// Addresses of single bytes of a shared tile whose lines are `base` + a multiple of 8.
class ByteAddresses {
public:
  /// `line` differs from lane to lane, and is below 16.
  ByteAddresses(Emitter &e, SharedType type, Value base, Value line)
      : e(e), type(type), base(base), line(line), panels(type.getPanels()), offsets(panels.size()) {}

  /// The byte `column` of this lane's line, `lines` further down (a multiple of 8); `within` is a lane's own
  /// distance from there, in the same 16 bytes.
  Value at(int64_t lines, int64_t column, Value within) {
    size_t p = type.getPanelOf(column / 16);
    const SharedType::Panel &panel = panels[p];
    int64_t local = column / 16 - panel.chunk;
    Value &offset = offsets[p];
    if (!offset) {
      offset = e.mul(line, panel.width);
      if (type.getSwizzled()) {
        Value swizzle = e.band(e.shr(line, swizzleShift(panel.width)), panel.width / 16 - 1);
        offset = e.add(offset, e.mul(swizzle, 16));
      }
    }
    Value bytes = type.getSwizzled() ? e.bxor(offset, local * 16) : e.add(offset, local * 16);
    Value chunk = e.sharedAt(e.sharedAt(base, bytes), within);
    return e.sharedAt(chunk, panel.offset + lines * panel.width + column % 16);
  }

private:
  Emitter &e;
  SharedType type;
  Value base, line;
  SmallVector<SharedType::Panel> panels;
  SmallVector<Value> offsets;
};

struct LoadRhsPattern : TilePattern<LoadRhsOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LoadRhsOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    SharedType tile = op.getTile().getType();
    FragmentType type = op.getFragment().getType();
    bool alongLines = type.getAxes()[1] == tile.getColAxis();
    Value pair = e.mul(e.lanes.quad, 2);
    SmallVector<ByteAddresses, 2> lines; // of the first of two neighbours, and of the second
    if (alongLines)
      lines.emplace_back(e, tile, adaptor.getTile(), e.lanes.group);
    else
      for (int64_t next : {0, 1})
        lines.emplace_back(e, tile, adaptor.getTile(), e.add(pair, next));
    SmallVector<Value> registers;
    for (int64_t row = 0; row < type.getSizes()[0]; row += 8)
      for (int64_t column = 0; column < type.getSizes()[1]; column += 16) {
        Value codes;
        for (int64_t half : {0, 1}) // columns 2q + 8 half and the next
          if (alongLines) {
            add(e, codes, load(e, lines[0].at(row, column + 8 * half, pair), 16), 16 * half);
          } else {
            for (int64_t next : {0, 1})
              add(e, codes, load(e, lines[next].at(column + 8 * half, row, e.lanes.group), 8),
                  16 * half + 8 * next);
          }
        registers.push_back(codes);
      }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }

  static Value load(Emitter &e, Value address, unsigned bits) {
    Value loaded = LLVM::LoadOp::create(e.b, e.loc, e.b.getIntegerType(bits), address, bits / 8);
    return arith::ExtUIOp::create(e.b, e.loc, e.b.getI32Type(), loaded);
  }
  static void add(Emitter &e, Value &codes, Value loaded, int64_t shift) {
    if (shift)
      loaded = arith::ShLIOp::create(e.b, e.loc, loaded, e.i32(shift));
    codes = codes ? arith::OrIOp::create(e.b, e.loc, codes, loaded).getResult() : loaded;
  }
};

/// Two codes at a time become f16, which holds them exactly, and so does bf16 after it.
struct WidenPattern : TilePattern<WidenOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(WidenOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Type source = op.getSource().getType().getElement(), element = op.getResult().getType().getElement();
    SmallVector<Value> registers;
    for (Value codes : adaptor.getSource())
      for (int64_t half : {0, 1}) {
        Value two = arith::TruncIOp::create(rewriter, op.getLoc(), e.b.getI16Type(), e.shr(codes, 16 * half));
        registers.push_back(widen(e, two, source, element));
      }
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }

  static Value widen(Emitter &e, Value codes, Type source, Type element) {
    Value pair = LLVM::BitcastOp::create(e.b, e.loc, VectorType::get(2, e.b.getI8Type()), codes);
    Value halves = NVVM::ConvertF8x2ToF16x2Op::create(e.b, e.loc, VectorType::get(2, e.b.getF16Type()), pair,
                                                      /*relu=*/false, source);
    if (mlir::attn::elementOf(element).dtype == mlir::attn::rt::DType::F16)
      return LLVM::BitcastOp::create(e.b, e.loc, e.b.getI32Type(), halves);
    auto wide = [&](int64_t i) -> Value {
      Value half = LLVM::ExtractElementOp::create(e.b, e.loc, halves, e.i32(i));
      return arith::ExtFOp::create(e.b, e.loc, e.b.getF32Type(), half);
    };
    Value low = wide(0), high = wide(1);
    return e.pack(low, high, element);
  }
};

} // namespace

void tile::populateRhsPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                               const LaneMap &lanes) {
  patterns.add<LoadRhsPattern, WidenPattern>(converter, patterns.getContext(), lanes);
}
