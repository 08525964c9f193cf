//===- Texts.h - The texts of this repository, read and printed -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_UNIT_DIALECT_TEXTS_H
#define ATTN_TEST_UNIT_DIALECT_TEXTS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>
#include <string>
#include <vector>

namespace texts {

/// Returns the problems of all lessons, and the inputs of tests of both dialects: one text for each part
/// between `// -----`, in an order that does not depend on the file system.
std::vector<std::string> all();

/// Returns a context with both dialects and the other dialects that texts use.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// Reads a text as the programs do. Counts the errors that have a message.
mlir::OwningOpRef<mlir::ModuleOp> parse(mlir::MLIRContext &context, const std::string &text, int &errors);

std::string print(mlir::ModuleOp module);

} // namespace texts

#endif
