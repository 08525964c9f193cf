//===- Differentiable.cpp - What has a backward pass ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Differentiable.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

static InFlightDiagnostic refuse(AttendOp attend) {
  return attend.emitOpError("has no backward pass (attn.backward): ");
}

LogicalResult mlir::attn::verifyDifferentiable(AttendOp attend) {
  if (attend.getHeadClassesAttr())
    return refuse(attend) << "its heads have classes; expected all heads to see alike";
  llvm::SmallDenseSet<Value> seen;
  for (auto [i, region] : llvm::enumerate(attend.getRegions())) {
    KVType type = attend.getRegionType(i);
    const rt::Store store = storeOf(type);
    if (store.isPaged() || type.getRagged())
      return refuse(attend) << "region " << i << " is " << (type.getRagged() ? "ragged" : store.text())
                            << "; expected a dense or packed store";
    if (!store.keys.format.isPlain() || !store.values.format.isPlain())
      return refuse(attend) << "region " << i << " holds codes; expected keys and values of f16 or bf16";
    if (!seen.insert(region).second)
      return refuse(attend) << "region " << i << " is an earlier one again; expected each argument once";
  }
  return success();
}
