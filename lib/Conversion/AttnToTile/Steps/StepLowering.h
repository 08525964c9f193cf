//===- StepLowering.h - What lowerings of steps share -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass lowers one operation of AttnStepOps.td. It knows only the operation:
// its operands, their types and its attributes.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_STEPS_STEPLOWERING_H
#define ATTN_CONVERSION_ATTNTOTILE_STEPS_STEPLOWERING_H

#include "AttnToTile/Kernel/Kernel.h"

#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/StepOps.h"

namespace mlir::attn {

using FragmentType = tile::FragmentType;

/// Lowers every `StepOp` of the module's functions and returns their number. `lower` writes code before the
/// operation and returns the values that replace its results.
template <typename StepOp>
unsigned lowerSteps(gpu::GPUModuleOp module,
                    function_ref<SmallVector<Value>(StepOp, KernelBuilder &)> lower) {
  unsigned count = 0;
  for (auto kernel : module.getOps<func::FuncOp>()) {
    SmallVector<StepOp> steps;
    kernel.walk([&](StepOp step) { steps.push_back(step); });
    if (steps.empty())
      continue;
    count += steps.size();
    KernelBuilder b(kernel);
    for (StepOp step : steps) {
      b.setInsertionPoint(step);
      b.setLoc(step.getLoc());
      step->replaceAllUsesWith(lower(step, b));
      step->erase();
    }
  }
  return count;
}

inline FragmentType fragmentOf(Value value) { return cast<FragmentType>(value.getType()); }

/// The number of elements of a fragment along one of its axes.
inline int64_t sizeOf(FragmentType type, tile::Axis axis) {
  return type.getSizes()[llvm::find(type.getAxes(), axis) - type.getAxes().begin()];
}

/// The type of a number for each row, or each token, of a fragment.
inline FragmentType along(KernelBuilder &b, FragmentType type, tile::Axis axis, Type element) {
  return b.fragment({axis}, {sizeOf(type, axis)}, element);
}

/// The features of group `group` of a factor; all of them if groups have no size.
inline Value partOfFeatures(KernelBuilder &b, Value factor, int64_t group, std::optional<int64_t> size) {
  if (!size)
    return factor;
  FragmentType type = fragmentOf(factor);
  FragmentType some = b.fragment(type.getAxes(), {type.getSizes()[0], *size}, type.getElement());
  return tile::PartOp::create(b, some, factor, b.getI64IntegerAttr(group * *size));
}

/// `begin`, or zero, plus the product of two operands. The left operand is read from `line` on if it is a
/// shared tile. `features`, if given, is the number of features before a padding with zeros. `column`, if
/// given, is the first column of a right operand that is wider than the product.
Value multiply(KernelBuilder &b, Mmas mmas, FragmentType type, Value left, Value line, Value right,
               Value begin, std::optional<int64_t> features = {}, Value column = {});

} // namespace mlir::attn

#endif
