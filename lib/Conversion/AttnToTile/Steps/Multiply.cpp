//===- Multiply.cpp - A product on the tensor cores -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepLowering.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

Value mlir::attn::multiply(KernelBuilder &b, Mmas mmas, FragmentType type, Value left, Value line,
                           Value right, Value begin, std::optional<int64_t> features, Value column) {
  if (mmas == Mmas::Mma)
    return MmaOp::create(b, type, left, line, right, column, begin ? begin : b.splat(b.f32(0), type));
  // wgmma contracts 16 features at a time.
  IntegerAttr depth = features ? b.getI64IntegerAttr(llvm::alignTo(*features, 16)) : IntegerAttr();
  Value started = StartMmaOp::create(b, type, left, line, right, column, depth, begin);
  if (mmas == Mmas::Started)
    return started;
  return WaitMmasOp::create(b, TypeRange{type}, 0, ValueRange{started}).getResult(0);
}
