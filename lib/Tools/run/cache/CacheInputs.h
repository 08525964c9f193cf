//===- CacheInputs.h - Tensors for an operation on a cache ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_CACHE_CACHEINPUTS_H
#define ATTN_TOOLS_RUN_CACHE_CACHEINPUTS_H

#include "run/inputs/Dims.h"

#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn_rt/artifact/Artifact.h"

namespace attn::run {

/// Generates the tensors of a function with an operation on a cache, see readCacheTensors. Cache and rows
/// hold random bits, so that every bit that a kernel loses or invents shows; rows to be quantized hold normal
/// and extreme numbers. Slots are distinct and scattered over the cache, a move's over both its lists, and
/// one row in sixteen is skipped. Sizes are the dimensions that the file names: layers (2), rows (64), pages
/// (enough for twice the rows; in a packed cache, tokens).
rt::Result<rt::TensorMap> generateCacheInputs(const mlir::attn::Signature &signature,
                                              const rt::Manifest &manifest, Dims &dims, uint64_t seed);

} // namespace attn::run

#endif
