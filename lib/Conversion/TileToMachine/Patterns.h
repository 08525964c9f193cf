//===- Patterns.h - Lowering of tile operations to one lane's code -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_TILETOMACHINE_PATTERNS_H
#define ATTN_CONVERSION_TILETOMACHINE_PATTERNS_H

#include "Emitter.h"

#include "attn/Dialect/Tile/IR/CacheHint.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::tile {

using LaneMap = DenseMap<Operation *, LaneValues>;

/// The type of a fragment's register: an element, or 32 bits of an operand of an MMA. The machine level has
/// no floats of 8 bits.
inline Type registerType(FragmentType type) {
  Type element = type.getElement();
  if (type.getLayout() == Layout::Lhs || type.getLayout() == Layout::Rhs)
    return IntegerType::get(type.getContext(), 32);
  if (element.getIntOrFloatBitWidth() <= 8 && element.getIntOrFloatBitWidth() > 1)
    return IntegerType::get(type.getContext(), 8);
  return element;
}

/// A pattern that can find the lane values of the kernel it works in.
template <typename OpT> class TilePattern : public OpConversionPattern<OpT> {
public:
  TilePattern(const TypeConverter &converter, MLIRContext *context, const LaneMap &lanes)
      : OpConversionPattern<OpT>(converter, context), lanes(lanes) {}

protected:
  Emitter emitter(OpT op, OpBuilder &builder) const {
    return Emitter(builder, op.getLoc(), lanes.find(op->template getParentOfType<func::FuncOp>())->second);
  }
  /// Clones the body of `region` with `arguments` for its block arguments; returns the values that it yields.
  static SmallVector<Value> inlineAll(Region &region, ValueRange arguments, OpBuilder &builder) {
    IRMapping mapping;
    for (auto [argument, value] : llvm::zip(region.getArguments(), arguments))
      mapping.map(argument, value);
    Block &block = region.front();
    for (Operation &op : block.without_terminator())
      builder.clone(op, mapping);
    return llvm::map_to_vector(block.getTerminator()->getOperands(),
                               [&](Value yielded) { return mapping.lookupOrDefault(yielded); });
  }
  /// Inlines a region that yields one value.
  static Value inlineRegion(Region &region, ValueRange arguments, OpBuilder &builder) {
    return inlineAll(region, arguments, builder).front();
  }

private:
  const LaneMap &lanes;
};

/// The value of `look` under the condition `exists`, if given; without it 0, and nothing is read.
inline Value lookIf(Emitter &e, Value exists, function_ref<Value(Emitter &)> look) {
  if (!exists)
    return look(e);
  auto yield = [&](function_ref<Value(Emitter &)> value) {
    return [&e, value](OpBuilder &builder, Location loc) {
      Emitter in(builder, loc, e.lanes);
      scf::YieldOp::create(builder, loc, value(in));
    };
  };
  auto nothing = [](Emitter &in) { return in.i32(0); };
  return scf::IfOp::create(e.b, e.loc, exists, yield(look), yield(nothing)).getResult(0);
}

/// The element of a lane's register i along the first axis of a fragment, counted from the fragment's first.
inline Value lineOfRegister(Emitter &e, Layout layout, int64_t i) {
  if (layout == Layout::Row)
    return e.add(e.lanes.group, 16 * (i / 2) + 8 * (i % 2));
  return e.add(e.mul(e.lanes.quad, 2), 8 * (i / 2) + i % 2); // Col
}

/// The registers that a lane writes at once in the order of lanes, and the index of those from `first` on.
constexpr int64_t lanesUnit = 4;
inline Value indexOfUnit(Emitter &e, Value index, int64_t first) {
  return e.add(e.add(index, e.widen(e.mul(e.lanes.lane, lanesUnit))), first * 32);
}

/// Writes a fragment of f32 into lines of a shared tile from `line` on, in the order that sums have.
void stageSums(Emitter &e, SharedType tile, FragmentType type, ValueRange registers, Value base, Value line);

void populateLanePatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateCopyPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateGlobalPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateStorePattern(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateLoadPattern(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateSumPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateStoreScoresPattern(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateFragmentPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateConvertPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateRhsPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateWidenPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateCorrectionPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateMmaPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateMergeWarpsPattern(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateAsyncPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateBulkPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateWgmmaPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);
void populateApproximateMathPatterns(const TypeConverter &, RewritePatternSet &, const LaneMap &);

} // namespace mlir::tile

#endif
