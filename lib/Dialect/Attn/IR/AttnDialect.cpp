//===- AttnDialect.cpp - Registration of the attn dialect -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/PageOps.h"
#include "attn/Dialect/Attn/IR/StepOps.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::attn;

#include "attn/Dialect/Attn/IR/AttnDialect.cpp.inc"
#include "attn/Dialect/Attn/IR/AttnEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Attn/IR/AttnAttributes.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Attn/IR/AttnTypes.cpp.inc"

void AttnDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "attn/Dialect/Attn/IR/AttnAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "attn/Dialect/Attn/IR/AttnTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Attn/IR/AttnOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Attn/IR/AttnPageOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Attn/IR/AttnStepOps.cpp.inc"
      >();
}

/// Checks the attributes that one pass sets for another. The passes that read a function's requests check
/// those, in the user's words.
LogicalResult AttnDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName().strref();
  Attribute value = attribute.getValue();
  auto expect = [&](bool isExpected, StringRef what) -> LogicalResult {
    if (isExpected)
      return success();
    return op->emitOpError("expected '") << name << "' to be " << what << ", got " << value;
  };
  for (StringRef mark :
       std::initializer_list<StringRef>{devicePlanAttr, fusedAttr, splitsTokensAttr, plansAttr, sumsPartsAttr,
                                        storesScoresAttr, startsNextAttr, firstAttr})
    if (name == mark)
      return expect(isa<UnitAttr>(value), "without a value");
  if (name == numericsAttr) {
    auto contract = dyn_cast<StringAttr>(value);
    return expect(contract && contract.getValue() == "row", "\"row\"");
  }
  if (name == gradientAttr)
    return expect(isa<StationaryAttr>(value), "a #attn.stationary");
  if (name == fusedPartAttr)
    return expect(isa<FusedPartAttr>(value), "a #attn.fused_part");
  if (name == weighsScoresAttr || name == weighsTokensAttr)
    return expect(isa<TogetherAttr>(value), "a #attn.together");
  if (name == formAttr)
    return expect(isa<FormAttr>(value), "an #attn.form");
  if (name == operandAttr || name == firstEndAttr || name == firstClassEndAttr || name == rowSumsAttr) {
    auto number = dyn_cast<IntegerAttr>(value);
    return expect(number && !number.getValue().isNegative(), "an integer that is not negative");
  }
  if (name == tablesAttr) {
    auto list = dyn_cast<ArrayAttr>(value);
    return expect(list && llvm::all_of(list, llvm::IsaPred<StringAttr>), "a list of names");
  }
  return success();
}

LogicalResult AttnDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned argIndex,
                                                    NamedAttribute attribute) {
  StringRef name = attribute.getName();
  if (name == "attn.name") {
    auto value = dyn_cast<StringAttr>(attribute.getValue());
    if (!value || value.empty())
      return op->emitOpError("argument ")
             << argIndex << ": expected attn.name to be a string that is not empty, got "
             << attribute.getValue();
    return success();
  }
  if (name == "attn.dims") {
    auto values = dyn_cast<ArrayAttr>(attribute.getValue());
    if (!values || !llvm::all_of(values, [](Attribute dim) {
          auto text = dyn_cast<StringAttr>(dim);
          return text && !text.empty();
        }))
      return op->emitOpError("argument ")
             << argIndex << ": expected attn.dims to be an array of strings that are not empty, got "
             << attribute.getValue();
    return success();
  }
  return op->emitOpError("argument ")
         << argIndex << ": expected attn.name or attn.dims, got " << attribute.getName();
}
