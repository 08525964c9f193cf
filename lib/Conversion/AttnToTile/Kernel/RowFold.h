//===- RowFold.h - Two parts of a row become one, in a fixed order -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Under a numerics contract a row's parts are folded one after the other, by their
// outputs and LSEs. The kernel that merges stored parts and a kernel whose tasks have
// several parts emit these operations, so that both give the same bits:
//
//   most   = max(lse, lse')
//   w, w'  = 2^((lse - most) log2 e), 2^((lse' - most) log2 e)
//   output = output' * (w' / (w + w')) + output * (w / (w + w'))     one rounding of the sum
//   lse    = most + log2(w + w') ln 2
//
// A part without tokens has an LSE of -inf, an output of +0 and changes no bit: its factor
// is -0, and x + -0 = x, whichever zero x may be. No operation here is a product whose sum
// an assembler could contract.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_KERNEL_ROWFOLD_H
#define ATTN_CONVERSION_ATTNTOTILE_KERNEL_ROWFOLD_H

#include "Log2.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::attn {

/// The factors of the outputs before and of this part, and the LSE of both.
inline SmallVector<Value> foldLse(KernelBuilder &b, Value before, Value part) {
  auto isNone = [&](Value lse) -> Value {
    return arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, lse, b.f32(-infinity));
  };
  Value noneBefore = isNone(before), nonePart = isNone(part);
  Value most = arith::MaxNumFOp::create(b, before, part);
  Value center = b.select(isNone(most), b.f32(0), most);
  auto weight = [&](Value lse) -> Value {
    Value distance = arith::SubFOp::create(b, lse, center);
    return math::Exp2Op::create(b, arith::MulFOp::create(b, distance, b.f32(log2e)));
  };
  Value ofBefore = weight(before), ofPart = weight(part);
  Value sum = arith::AddFOp::create(b, ofBefore, ofPart), inverse = tile::ReciprocalOp::create(b, sum);
  auto factor = [&](Value weight, Value none, Value noneOther) -> Value {
    Value share = arith::MulFOp::create(b, weight, inverse);
    Value nothing = b.select(noneOther, b.f32(0), b.f32(-0.0f));
    return b.select(none, nothing, b.select(noneOther, b.f32(1), share));
  };
  Value log = math::FmaOp::create(b, math::Log2Op::create(b, sum), b.f32(ln2), center);
  return {factor(ofBefore, noneBefore, nonePart), factor(ofPart, nonePart, noneBefore),
          b.select(noneBefore, part, b.select(nonePart, before, log))};
}

/// A feature of the output of both.
inline Value foldOutput(KernelBuilder &b, Value before, Value ofBefore, Value part, Value ofPart) {
  return math::FmaOp::create(b, part, ofPart, arith::MulFOp::create(b, before, ofBefore));
}

/// A feature of a part's output. Tiles that a row does not see leave a sum of zero with either sign: it
/// becomes +0.
inline Value partOutput(KernelBuilder &b, Value sum, Value factor) {
  return math::FmaOp::create(b, sum, factor, b.f32(0));
}

} // namespace mlir::attn

#endif
