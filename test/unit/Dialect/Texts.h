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

/// The problems of all lessons, and what tests of both dialects read: one text for each part between `//
/// -----`, in an order that does not depend on the file system.
std::vector<std::string> all();

/// A context with both dialects and those that texts use beside them.
std::unique_ptr<mlir::MLIRContext> makeContext();

/// Reads a text as the programs do. Counts the errors that have a message.
mlir::OwningOpRef<mlir::ModuleOp> parse(mlir::MLIRContext &context, const std::string &text, int &errors);

std::string print(mlir::ModuleOp module);

} // namespace texts

#endif
