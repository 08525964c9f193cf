//===- Asks.cpp - Requests beside a function's text -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Pipelines/Compile.h"

#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::attn;

/// Sorts names and removes duplicates: lists that request the same gradients are equal. None is an empty
/// list.
static Attribute normalizeBackward(Attribute backward) {
  auto listed = dyn_cast<ArrayAttr>(backward);
  if (!listed)
    return isa<UnitAttr>(backward) ? ArrayAttr::get(backward.getContext(), {}) : backward;
  if (!llvm::all_of(listed, llvm::IsaPred<StringAttr>))
    return backward;
  SmallVector<Attribute> names(listed.begin(), listed.end());
  llvm::sort(names, [](Attribute a, Attribute b) {
    return cast<StringAttr>(a).getValue() < cast<StringAttr>(b).getValue();
  });
  names.erase(llvm::unique(names), names.end());
  return ArrayAttr::get(backward.getContext(), names);
}

/// `attn.ordered` alone means true.
static Attribute normalizeOrdered(Attribute ordered) {
  return isa<UnitAttr>(ordered) ? BoolAttr::get(ordered.getContext(), true) : ordered;
}

namespace {
struct Asker {
  func::FuncOp function;

  LogicalResult ask(
      StringRef name, Attribute wanted,
      function_ref<Attribute(Attribute)> normalize = [](Attribute a) { return a; }) {
    Attribute written = function->getAttr(name);
    if (!written) {
      function->setAttr(name, wanted);
      return success();
    }
    if (normalize(written) == normalize(wanted))
      return success();
    auto error = function.emitError("the text says ") << name;
    print(error, written);
    error << ", and the options ask for " << name;
    print(error, wanted);
    return error << "; expected it in one of these places, or the same in both";
  }

  /// Prints the value in the syntax of the text.
  static void print(InFlightDiagnostic &error, Attribute value) {
    if (!isa<UnitAttr>(value))
      error << " = " << value;
  }
};
} // namespace

LogicalResult mlir::attn::askFor(func::FuncOp function, const Asks &asks) {
  if (!asks.any())
    return success();
  if (function.getOps<AttendOp>().empty())
    return function.emitError(
        "gradients, significance, numerics or a plan on the device are requested; expected a "
        "function with an attn.attend");
  Builder b(function.getContext());
  Asker asker{function};
  if (asks.backward) {
    SmallVector<StringRef> tables(asks.backward->begin(), asks.backward->end());
    Attribute wanted = tables.empty() ? Attribute(b.getUnitAttr()) : b.getStrArrayAttr(tables);
    if (failed(asker.ask(backwardAttr, wanted, normalizeBackward)))
      return failure();
  }
  if (asks.ordered) {
    Attribute wanted = b.getBoolAttr(false);
    if (*asks.ordered != Order::Any)
      wanted = *asks.ordered == Order::Apart ? Attribute(b.getStringAttr(orderedApart)) : b.getUnitAttr();
    if (failed(asker.ask(orderedAttr, wanted, normalizeOrdered)))
      return failure();
  }
  if (asks.significance && failed(asker.ask(significanceAttr, b.getStringAttr(*asks.significance))))
    return failure();
  if (asks.significanceRows &&
      failed(asker.ask(significanceRowsAttr, b.getI32IntegerAttr(*asks.significanceRows))))
    return failure();
  if (asks.numerics && failed(asker.ask(numericsAttr, b.getStringAttr(*asks.numerics))))
    return failure();
  return asks.devicePlan ? asker.ask(devicePlanAttr, b.getUnitAttr()) : success();
}
