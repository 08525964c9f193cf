//===- OnlineOpInterface.cpp - What an operation does to a tile -----------===//
#include "attn/Conversion/OnlineOpInterface.h"

using namespace mlir;
using namespace mlir::attn;

#include "attn/Conversion/OnlineOpInterface.cpp.inc"
