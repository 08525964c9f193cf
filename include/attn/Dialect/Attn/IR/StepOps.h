//===- StepOps.h - An update, step by step ----------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_ATTN_IR_STEPOPS_H
#define ATTN_DIALECT_ATTN_IR_STEPOPS_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Tile/IR/Tile.h"

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnStepOps.h.inc"

#endif
