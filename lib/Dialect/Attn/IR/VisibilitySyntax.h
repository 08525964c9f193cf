//===- VisibilitySyntax.h - Visibilities in operations ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_VISIBILITYSYNTAX_H
#define ATTN_DIALECT_ATTN_IR_VISIBILITYSYNTAX_H

#include "attn/Dialect/Attn/IR/Attn.h"

namespace mlir::attn {

/// Parses `custom<Visibility>` of assembly formats: the expression without the attribute's name and brackets.
inline ParseResult parseVisibility(OpAsmParser &parser, VisibilityAttr &visibility) {
  FailureOr<VisibilityAttr> parsed = VisibilityAttr::parseExpression(parser);
  if (failed(parsed))
    return failure();
  visibility = *parsed;
  return success();
}

inline void printVisibility(OpAsmPrinter &printer, Operation *, VisibilityAttr visibility) {
  visibility.printExpression(printer);
}

} // namespace mlir::attn

#endif
