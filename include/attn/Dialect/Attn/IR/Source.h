//===- Source.h - Text as people write it -----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_SOURCE_H
#define ATTN_DIALECT_ATTN_IR_SOURCE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

#include <optional>
#include <string>

namespace mlir::attn {

/// MLIR's lexer has no `&`, so no dialect can give it a meaning. `parseSource` calls this before parsing: it
/// replaces every `&` outside strings and comments by `*`, which visibility expressions read as `and`. One
/// character for one, so every location stays true. Returns the buffer itself if there is nothing to do.
std::unique_ptr<llvm::MemoryBuffer> acceptAmpersand(std::unique_ptr<llvm::MemoryBuffer> source);

/// What MLIR's parser would not survive, and where it begins. The parser recurses into brackets and aliases,
/// reads numbers into arrays of fixed size, makes room for any number of results, and takes arrays of `index`
/// for arrays of floats. Affine maps overflow its stack and its arithmetic, and bytecode is not checked at
/// all.
struct SourceFault {
  unsigned line, column; ///< counted from 1
  std::string message;
};
inline constexpr unsigned mostBrackets = 256, mostDigits = 1000, mostResults = 65535;
std::optional<SourceFault> findSourceFault(llvm::StringRef text);

/// The module that the first buffer holds, verified; empty with an error. MLIR's own parser may complain and
/// go on all the same: what it cannot read behind the type of a dialect, as a string without an end, it
/// leaves out.
OwningOpRef<ModuleOp> parseSource(llvm::SourceMgr &sources, MLIRContext *context);

} // namespace mlir::attn

#endif
