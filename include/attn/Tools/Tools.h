//===- Tools.h - Entry points of the programs -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The programs are thin: each calls one function of the compiler library, so that LLVM is linked once and the
// programs stay small. The library exports only these C symbols (another LLVM may live in the process).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TOOLS_TOOLS_H
#define ATTN_TOOLS_TOOLS_H

#define ATTN_EXPORT __attribute__((visibility("default")))

extern "C" {
ATTN_EXPORT int attn_opt_main(int argc, char **argv);
ATTN_EXPORT int attn_run_main(int argc, char **argv);
}

namespace mlir::attn {
int attnOptMain(int argc, char **argv);
int attnRunMain(int argc, char **argv);
} // namespace mlir::attn

#endif
