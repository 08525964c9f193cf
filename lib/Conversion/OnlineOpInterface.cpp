//===- OnlineOpInterface.cpp - What an operation does to a tile -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/OnlineOpInterface.h"

using namespace mlir;
using namespace mlir::attn;

#include "attn/Conversion/OnlineOpInterface.cpp.inc"
