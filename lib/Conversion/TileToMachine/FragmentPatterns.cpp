//===- FragmentPatterns.cpp - Arithmetic on register fragments ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

using namespace mlir;
using namespace mlir::tile;

namespace {

/// The register of an operand that belongs to element `i` of an accumulator-like result: the same register if
/// the operand has both axes, else the register of the element's row or column.
int64_t operandRegister(FragmentType result, FragmentType operand, int64_t i) {
  if (operand.getRank() == result.getRank())
    return i;
  int64_t blocks = result.getSizes()[1] / 8, block = i / 4, rowBlock = block / blocks,
          colBlock = block % blocks;
  if (operand.getLayout() == Layout::Row)
    return rowBlock * 2 + (i % 4) / 2;
  return colBlock * 2 + i % 2;
}

struct SplatPattern : TilePattern<SplatOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(SplatOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    FragmentType type = op.getFragment().getType();
    Value value = adaptor.getValue();
    if (type.getLayout() == Layout::Lhs || type.getLayout() == Layout::Rhs) { // two elements share a register
      Emitter e = emitter(op, rewriter);
      Value two = LLVM::PoisonOp::create(rewriter, op.getLoc(), VectorType::get(2, type.getElement()));
      for (int64_t i : {0, 1})
        two = LLVM::InsertElementOp::create(rewriter, op.getLoc(), two, value, e.i32(i));
      value = e.bitcast(e.b.getI32Type(), two);
    }
    rewriter.replaceOpWithMultiple(op, {SmallVector<Value>(type.getRegisters(), value)});
    return success();
  }
};

struct UndefinedPattern : TilePattern<UndefinedOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(UndefinedOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    SmallVector<Type> types;
    if (failed(getTypeConverter()->convertType(op.getFragment().getType(), types)))
      return rewriter.notifyMatchFailure(op, "its fragment has no layout");
    SmallVector<Value> registers;
    for (Type type : types)
      registers.push_back(LLVM::PoisonOp::create(rewriter, op.getLoc(), type));
    rewriter.replaceOpWithMultiple(op, {registers});
    return success();
  }
};

/// The part of a lane's coordinates that is its own, and the constant part of register i.
Value laneFirst(Emitter &e, Layout layout) {
  return layout == Layout::Row ? e.lanes.group : e.mul(e.lanes.quad, 2);
}
int64_t laneOffset(Layout layout, int64_t i) {
  return layout == Layout::Row ? 16 * (i / 2) + 8 * (i % 2) : 8 * (i / 2) + i % 2;
}

struct CoordinatesPattern : TilePattern<CoordinatesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(CoordinatesOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getFragment().getType();
    Value first = e.add(adaptor.getStart(), laneFirst(e, type.getLayout()));
    SmallVector<Value> values;
    for (int64_t i = 0; i < type.getRegisters(); ++i)
      values.push_back(e.add(first, laneOffset(type.getLayout(), i)));
    rewriter.replaceOpWithMultiple(op, {values});
    return success();
  }
};

struct LaneCoordinatesPattern : TilePattern<LaneCoordinatesOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(LaneCoordinatesOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType type = op.getOffsets().getType();
    SmallVector<Value> offsets;
    for (int64_t i = 0; i < type.getRegisters(); ++i)
      offsets.push_back(e.i32(laneOffset(type.getLayout(), i)));
    rewriter.replaceOpWithMultiple(op, {SmallVector<Value>{laneFirst(e, type.getLayout())}, offsets});
    return success();
  }
};

struct MapPattern : TilePattern<MapOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(MapOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    auto shape = cast<FragmentType>(op.getResults().front().getType());
    SmallVector<SmallVector<Value>> values(op.getNumResults());
    for (int64_t i = 0; i < shape.getRegisters(); ++i) {
      SmallVector<Value> arguments;
      for (auto [input, registers] : llvm::zip(op.getInputs(), adaptor.getInputs()))
        arguments.push_back(registers[operandRegister(shape, cast<FragmentType>(input.getType()), i)]);
      for (auto [result, value] : llvm::zip_equal(values, inlineAll(op.getBody(), arguments, rewriter)))
        result.push_back(value);
    }
    rewriter.replaceOpWithMultiple(op, std::move(values));
    return success();
  }
};

struct MaskPattern : TilePattern<MaskOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(MaskOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType result = op.getResult().getType();
    Value hidden = e.f32(-std::numeric_limits<double>::infinity());
    SmallVector<Value> values;
    for (int64_t i = 0; i < result.getRegisters(); ++i) {
      SmallVector<Value> arguments;
      for (auto [input, registers] : llvm::zip(op.getInputs(), adaptor.getInputs()))
        arguments.push_back(registers[operandRegister(result, cast<FragmentType>(input.getType()), i)]);
      Value visible = inlineRegion(op.getVisible(), arguments, rewriter);
      values.push_back(e.select(visible, adaptor.getScores()[i], hidden));
    }
    rewriter.replaceOpWithMultiple(op, {values});
    return success();
  }
};

Value combine(Emitter &e, Combine kind, Value x, Value y) {
  return kind == Combine::Add ? e.fadd(x, y) : e.fmax(x, y);
}

/// Butterfly over the lanes that share a row, those of a quad, or a column, one of each quad.
Value overLanes(Emitter &e, Combine kind, Layout layout, Value value) {
  static constexpr int64_t inQuad[] = {1, 2}, acrossQuads[] = {4, 8, 16};
  for (int64_t distance : layout == Layout::Row ? ArrayRef(inQuad) : ArrayRef(acrossQuads))
    value = combine(e, kind, value, e.shuffle(NVVM::ShflKind::bfly, value, e.i32(distance)));
  return value;
}

struct ReducePattern : TilePattern<ReduceOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(ReduceOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType source = op.getSource().getType(), result = op.getResult().getType();
    SmallVector<SmallVector<Value>> parts(result.getRegisters());
    for (int64_t i = 0; i < source.getRegisters(); ++i)
      parts[operandRegister(source, result, i)].push_back(adaptor.getSource()[i]);
    SmallVector<Value> values;
    for (SmallVector<Value> &line : parts) {
      while (line.size() > 1) { // a balanced tree: short dependency chains
        SmallVector<Value> next;
        for (size_t i = 0; i + 1 < line.size(); i += 2)
          next.push_back(combine(e, op.getKind(), line[i], line[i + 1]));
        if (line.size() % 2)
          next.push_back(line.back());
        line = std::move(next);
      }
      values.push_back(result.getPartial() ? line[0]
                                           : overLanes(e, op.getKind(), result.getLayout(), line[0]));
    }
    rewriter.replaceOpWithMultiple(op, {values});
    return success();
  }
};

struct CompletePattern : TilePattern<CompleteOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(CompleteOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    SmallVector<Value> values;
    for (Value value : adaptor.getSource())
      values.push_back(overLanes(e, Combine::Add, op.getResult().getType().getLayout(), value));
    rewriter.replaceOpWithMultiple(op, {values});
    return success();
  }
};

struct AnyPattern : TilePattern<AnyOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(AnyOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    Value mine = adaptor.getSource().front();
    for (Value value : adaptor.getSource().drop_front())
      mine = arith::OrIOp::create(rewriter, op.getLoc(), mine, value);
    rewriter.replaceOpWithNewOp<NVVM::VoteSyncOp>(op, rewriter.getI1Type(), e.i32(-1), mine,
                                                  NVVM::VoteSyncKind::any);
    return success();
  }
};

struct AnyLinePattern : TilePattern<AnyLineOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(AnyLineOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    constexpr int64_t lanes = 32;
    Emitter e = emitter(op, rewriter);
    SharedType tile = op.getTile().getType();
    const int64_t bytes = tile.getLineBytes();
    Value first = e.sharedAt(adaptor.getTile(), e.mul(e.lanes.lane, bytes)), mine;
    for (int64_t line = 0; line < tile.getRows(); line += lanes) {
      Value number = LLVM::LoadOp::create(rewriter, op.getLoc(), tile.getElement(),
                                          e.sharedAt(first, line * bytes), bytes);
      Value holds = inlineRegion(op.getCondition(), {number}, rewriter);
      mine = mine ? arith::OrIOp::create(rewriter, op.getLoc(), mine, holds).getResult() : holds;
    }
    rewriter.replaceOpWithNewOp<NVVM::VoteSyncOp>(op, rewriter.getI1Type(), e.i32(-1), mine,
                                                  NVVM::VoteSyncKind::any);
    return success();
  }
};

/// A 16x16 block of the left operand is two neighbouring 16x8 blocks of the accumulator, packed pair by pair.
/// An 8x16 block of the right operand, with the axes exchanged, is one such block, with each half of its rows
/// transposed.
struct CastPattern : TilePattern<CastOp> {
  using TilePattern::TilePattern;
  LogicalResult matchAndRewrite(CastOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Emitter e = emitter(op, rewriter);
    FragmentType from = op.getSource().getType(), result = op.getResult().getType();
    ValueRange source = adaptor.getSource();
    SmallVector<Value> values;
    for (size_t i = 0; i < source.size(); i += 2)
      values.push_back(e.pack(source[i], source[i + 1], result.getElement()));
    if (from.getAxes() != result.getAxes()) {
      int64_t blocks = from.getSizes()[1] / 8, depth = from.getSizes()[0] / 16;
      SmallVector<Value> turned;
      for (int64_t block = 0; block < blocks; ++block)
        for (int64_t k = 0; k < depth; ++k)
          for (int64_t half : {0, 1})
            turned.push_back(e.moveMatrix(values[(k * blocks + block) * 2 + half]));
      values = turned;
    }
    rewriter.replaceOpWithMultiple(op, {values});
    return success();
  }
};

} // namespace

void tile::populateFragmentPatterns(const TypeConverter &converter, RewritePatternSet &patterns,
                                    const LaneMap &lanes) {
  patterns.add<AnyLinePattern, AnyPattern, SplatPattern, UndefinedPattern, CoordinatesPattern,
               LaneCoordinatesPattern, MapPattern, MaskPattern, ReducePattern, CompletePattern, CastPattern>(
      converter, patterns.getContext(), lanes);
}
