//===- HeldTokens.cpp - Legality of kernels with stationary tokens --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels with stationary tokens walk the rows that see them. They compute gradients for stores of 16 bits
// whose tokens lie in the order of their numbers, and significance for any store.
//
//===----------------------------------------------------------------------===//
#include "HeldTokens.h"

#include "attn/Dialect/Attn/IR/Score.h"
#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

/// Verifies that tokens can be stationary. `refused`: the message's statement that the attention cannot do
/// it.
static LogicalResult verifyHolds(AttendOp attend, StringRef refused) {
  if (attend.getGate())
    return attend.emitOpError(refused)
           << ": it has a gate; expected none: multiply the output by the gate's sigmoid afterwards";
  if (attend.getOutputScale() || attend.getOutputScales())
    return attend.emitOpError(refused)
           << ": its output is quantized; expected an output of the query's type, "
           << attend.getQueryType().getElementType();
  if (attend.getHeadClassesAttr())
    return attend.emitOpError(refused)
           << ": its heads have classes; expected all heads to see the same tokens";
  llvm::SmallDenseSet<Value> seen;
  for (auto [i, region] : llvm::enumerate(attend.getRegions()))
    if (!seen.insert(region).second)
      return attend.emitOpError(refused)
             << ": region " << i << " repeats an earlier region; expected each argument once";
  return success();
}

static constexpr StringLiteral noBackward = "has no backward pass (attn.backward)";

/// Returns the names of the function's sink logits and of its tables, whether or not a score region reads
/// them.
static llvm::SetVector<StringRef> tablesOf(func::FuncOp function) {
  llvm::SetVector<StringRef> names;
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "attn.name");
    if (type && type.getElementType().isF32() && name)
      names.insert(name.getValue());
  }
  return names;
}

/// Verifies tables: a kernel sums the terms of a row's tokens for an element that all of them read.
static LogicalResult verifyTables(AttendOp attend, ArrayAttr listed) {
  auto function = attend->getParentOfType<func::FuncOp>();
  const llvm::SetVector<StringRef> tables = tablesOf(function);
  for (Attribute each : listed)
    if (auto name = dyn_cast<StringAttr>(each); !name || !tables.contains(name.getValue())) {
      InFlightDiagnostic error =
          attend.emitOpError(noBackward)
          << ": its list holds " << each << "; expected "
          << (tables.empty() ? "no list, as there is no table and no sink" : "names of tables or sinks: ");
      llvm::interleaveComma(tables, error);
      return failure();
    }
  if (attend.getScore().empty())
    return success();
  for (auto read : attend.getScore().getOps<ReadOp>()) {
    unsigned number = cast<BlockArgument>(read.getTensor()).getArgNumber();
    auto name = function.getArgAttrOfType<StringAttr>(number, "attn.name");
    if (llvm::is_contained(listed, name) && indexedBy(read) == IndexedBy::Pair)
      return attend.emitOpError(noBackward)
             << ": elements of " << name
             << " are indexed by the position of keys, or by the score; expected indices of "
                "the head and the position of queries alone";
  }
  return success();
}

LogicalResult mlir::attn::verifyDifferentiable(AttendOp attend, Attribute backward) {
  if (!isa<UnitAttr, ArrayAttr>(backward))
    return attend.emitOpError(noBackward)
           << ": expected no value, or a list of names of tables and sinks, got " << backward;
  if (auto tables = dyn_cast<ArrayAttr>(backward); tables && failed(verifyTables(attend, tables)))
    return failure();
  for (unsigned i = 0, e = attend.getRegions().size(); i < e; ++i) {
    KVType type = attend.getRegionType(i);
    const rt::Store store = storeOf(type);
    if (store.isPaged() || type.getRagged())
      return attend.emitOpError(noBackward)
             << ": region " << i << " is " << (type.getRagged() ? "ragged" : store.text())
             << "; expected a dense or packed store";
    if (!store.keys.format.isPlain() || !store.values.format.isPlain())
      return attend.emitOpError(noBackward)
             << ": region " << i << " is quantized; expected keys and values of f16 or bf16";
  }
  return verifyHolds(attend, noBackward);
}

LogicalResult mlir::attn::verifyWeighs(func::FuncOp function, AttendOp attend) {
  auto of = significanceAttr.get(function);
  if (!of || !symbolizeTogether(of.getValue()))
    return function.emitError("expected ") << significanceAttr << " = \"max\", \"mean\" or \"sum\", got "
                                           << function->getAttr(significanceAttr);
  Attribute given = function->getAttr(significanceRowsAttr);
  auto rows = dyn_cast_or_null<IntegerAttr>(given);
  if (given && (!rows || !rows.getType().isInteger(32) || rows.getInt() < 1))
    return function.emitError("expected ")
           << significanceRowsAttr << " of 1 : i32 and more, or none for all rows, got " << given;
  if (backwardAttr.isOn(function))
    return function.emitError(
        "expected attn.backward or attn.significance, got both: gradients come from a later run");
  if (!attend.getLse())
    return attend.emitOpError(
        "cannot compute the significance of tokens (attn.significance): expected its LSE as a "
        "result, from which weights are computed");
  return verifyHolds(attend, "cannot compute the significance of tokens (attn.significance)");
}
