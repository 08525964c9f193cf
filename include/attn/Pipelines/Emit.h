//===- Emit.h - Any level of a problem as text ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_PIPELINES_EMIT_H
#define ATTN_PIPELINES_EMIT_H

#include "attn/Pipelines/Compile.h"

namespace mlir::attn {

/// What can be printed of a problem, from what is attended to what a GPU loads.
enum class Level { Problem, Online, Tile, Machine, Ptx, Cubin, Manifest };

/// By the name that --emit takes.
std::optional<Level> parseLevel(StringRef name);
std::string listLevels();

/// Compiles as far as the level asks for, which changes the module. Of a cubin `log` gets what ptxas -v said.
/// Errors are diagnostics.
FailureOr<std::string> emitLevel(ModuleOp module, Level level, StringRef entry, const CompileOptions &options,
                                 std::string *log = nullptr);

} // namespace mlir::attn

#endif
