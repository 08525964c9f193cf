//===- Copying.h - How warps make copies ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_STAGE_COPYING_H
#define ATTN_CONVERSION_ATTNTOTILE_STAGE_COPYING_H

#include "Memory.h"
#include "Source.h"

namespace mlir::attn {

/// The way in which copies come to shared memory.
class Copying {
public:
  explicit Copying(StagedKernel &kernel) : k(kernel), b(kernel.b) {}
  static std::unique_ptr<Copying> of(StagedKernel &kernel);
  virtual ~Copying() = default;

  /// Starts copies of a source by warps of this scope, one for each name of the buffers.
  virtual SmallVector<Value> start(Source &source, ArrayRef<Buffer> buffers, tile::Scope copiers) = 0;
  /// Starts copies of quantized tokens to `stored`, which the copying warps widen to `buffers`.
  virtual SmallVector<Value> startWidened(Source &, ArrayRef<Buffer> /*stored*/,
                                          ArrayRef<Buffer> /*buffers*/) {
    llvm_unreachable("only warps that do nothing else widen tiles");
  }
  /// Starts copies of both halves of a tile of quantized tokens, which the copying warps widen on the way.
  virtual SmallVector<Value> startHalves(TokenSource & /*front*/, TokenSource & /*behind*/,
                                         ArrayRef<Buffer> /*buffers*/) {
    llvm_unreachable("only warps that do nothing else widen tiles");
  }
  /// Lets warps of this scope read the copies that were started.
  virtual void await(tile::Scope) {}
  /// Lets copies be overwritten after the last operation that reads them in this scope's warps.
  virtual void release(Operation *, tile::Scope) {}

protected:
  StagedKernel &k;
  KernelBuilder &b;
};

} // namespace mlir::attn

#endif
