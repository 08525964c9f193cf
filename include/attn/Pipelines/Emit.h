//===- Emit.h - Any level of a problem as text ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PIPELINES_EMIT_H
#define ATTN_PIPELINES_EMIT_H

#include "attn/Pipelines/Compile.h"

namespace mlir::attn {

/// Printable levels of a problem, from the attention to the code that a GPU loads.
enum class Level { Problem, Online, Tile, Machine, Ptx, Cubin, Manifest };

/// Parses the name of --emit.
std::optional<Level> parseLevel(StringRef name);
std::string listLevels();

/// Compiles up to the level, which changes the module. For a cubin, `log` receives the output of ptxas -v.
/// Errors are diagnostics.
FailureOr<std::string> emitLevel(ModuleOp module, Level level, StringRef entry, const CompileOptions &options,
                                 std::string *log = nullptr);

} // namespace mlir::attn

#endif
