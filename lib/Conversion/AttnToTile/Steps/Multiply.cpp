//===- Multiply.cpp - A product on the tensor cores -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

Value mlir::attn::multiply(KernelBuilder &b, Dots dots, FragmentType type, Value left, Value line,
                           Value right, Value begin) {
  if (dots == Dots::Mma)
    return DotOp::create(b, type, left, line, right, begin ? begin : b.splat(b.f32(0), type));
  Value started = StartDotOp::create(b, type, left, line, right, Value(), begin);
  if (dots == Dots::Started)
    return started;
  return FinishDotsOp::create(b, TypeRange{type}, 0, ValueRange{started}).getResult(0);
}
