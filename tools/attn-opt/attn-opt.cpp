//===- attn-opt.cpp - The compiler as a program ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Tools/Tools.h"

int main(int argc, char **argv) { return attn_opt_main(argc, argv); }
