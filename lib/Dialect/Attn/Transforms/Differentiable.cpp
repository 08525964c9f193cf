//===- Differentiable.cpp - What has a backward pass ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Differentiable.h"

#include "attn/Dialect/Attn/IR/Score.h"
#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

static InFlightDiagnostic refuse(AttendOp attend) {
  return attend.emitOpError("has no backward pass (attn.backward): ");
}

/// Names of the function's tables, whether or not a score region reads them.
static llvm::SetVector<StringRef> tablesOf(func::FuncOp function) {
  llvm::SetVector<StringRef> names;
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "attn.name");
    if (type && type.getElementType().isF32() && name && name != "sink_logits")
      names.insert(name.getValue());
  }
  return names;
}

/// A kernel adds up what a row's tokens give to an element that all of them read.
static LogicalResult verifyTables(AttendOp attend, ArrayAttr listed) {
  auto function = attend->getParentOfType<func::FuncOp>();
  const llvm::SetVector<StringRef> tables = tablesOf(function);
  for (Attribute each : listed)
    if (auto name = dyn_cast<StringAttr>(each); !name || !tables.contains(name.getValue())) {
      InFlightDiagnostic error = refuse(attend)
                                 << "its list holds " << each << "; expected "
                                 << (tables.empty() ? "no list, as there is no table" : "names of tables: ");
      llvm::interleaveComma(tables, error);
      return failure();
    }
  if (attend.getScore().empty())
    return success();
  for (auto read : attend.getScore().getOps<ReadOp>()) {
    unsigned number = cast<BlockArgument>(read.getTensor()).getArgNumber();
    auto name = function.getArgAttrOfType<StringAttr>(number, "attn.name");
    if (llvm::is_contained(listed, name) && indexedBy(read) == IndexedBy::Pair)
      return refuse(attend) << "an element of " << name
                            << " is found by the position of keys, or by the score; expected indices of "
                               "the head and the position of queries alone";
  }
  return success();
}

LogicalResult mlir::attn::verifyDifferentiable(AttendOp attend, Attribute backward) {
  if (!isa<UnitAttr, ArrayAttr>(backward))
    return refuse(attend) << "expected no value, or a list of tables' names, got " << backward;
  if (auto tables = dyn_cast<ArrayAttr>(backward); tables && failed(verifyTables(attend, tables)))
    return failure();
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
