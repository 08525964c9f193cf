//===- Exports.cc - The symbols the compiler library exports --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Tools/Tools.h"

int attn_opt_main(int argc, char **argv) { return mlir::attn::attnOptMain(argc, argv); }
int attn_run_main(int argc, char **argv) { return mlir::attn::attnRunMain(argc, argv); }
