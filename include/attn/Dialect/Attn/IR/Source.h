//===- Source.h - Source text before parsing --------------------*- C++ -*-===//
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

/// Replaces every `&` outside strings and comments by `*`, which visibility expressions read as `and`. MLIR's
/// lexer has no `&`, so no dialect can give it a meaning; `parseSource` calls this before parsing. Each
/// character is replaced by one, so every location stays true. Returns the buffer itself if there is nothing
/// to do.
std::unique_ptr<llvm::MemoryBuffer> acceptAmpersand(std::unique_ptr<llvm::MemoryBuffer> source);

/// Text that would break MLIR's parser, and its location. The parser recurses into brackets and aliases,
/// reads numbers into arrays of fixed size, allocates any number of results, and accepts arrays of `index` as
/// arrays of floats. Affine maps overflow its stack and its arithmetic, and it does not check bytecode.
struct SourceFault {
  unsigned line, column; ///< counted from 1
  std::string message;
};
inline constexpr unsigned mostBrackets = 256, mostDigits = 1000, mostResults = 65535;
std::optional<SourceFault> findSourceFault(llvm::StringRef text);

/// Parses the first buffer and verifies the module; empty with an error. MLIR's own parser may report an
/// error and continue: it leaves out whatever it cannot read after the type of a dialect, such as an
/// unterminated string.
OwningOpRef<ModuleOp> parseSource(llvm::SourceMgr &sources, MLIRContext *context);

} // namespace mlir::attn

#endif
