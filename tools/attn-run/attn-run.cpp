//===- attn-run.cpp - The runner as a program -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Tools/Tools.h"

int main(int argc, char **argv) { return attn_run_main(argc, argv); }
