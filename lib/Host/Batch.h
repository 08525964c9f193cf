//===- Batch.h - Matrix operations as programs of the warp ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_HOST_BATCH_H
#define ATTN_LIB_HOST_BATCH_H

#include "Rewriter.h"

namespace attn::host {

/// A run of matrix operations of one basic block, while it is collected.
struct Batcher {
  /// Word `second` of the result of `first`.
  using Wire = std::pair<mlir::Operation *, unsigned>;

  explicit Batcher(const llvm::DenseMap<mlir::Operation *, uint32_t> &opIds) : opIds(&opIds) {}
  static bool isPure(mlir::Operation *op);
  bool fits(mlir::Operation *op) const;
  void add(mlir::Operation *op);
  /// Notes a pure operation between or after the run's operations.
  void follow(mlir::Operation *op);
  /// Is the value used by anything but the run and what takes its structs apart?
  bool isExported(mlir::Value value) const;
  void assignWords(rt::host::WarpProgram &program, llvm::DenseMap<mlir::Value, unsigned> &inputs,
                   llvm::DenseMap<Wire, unsigned> &outputs, const llvm::DenseSet<Wire> &exported);

  llvm::DenseMap<mlir::Operation *, uint32_t> const *opIds;
  llvm::SmallVector<mlir::Operation *> steps;
  llvm::SmallVector<mlir::Operation *> extracts;  ///< take results out of structs
  llvm::SmallVector<mlir::Operation *> followers; ///< use results otherwise
  size_t followersToMove = 0;                     ///< those that stand before the last step
  llvm::DenseSet<mlir::Value> tainted;            ///< depend on results
  llvm::DenseMap<mlir::Value, Wire> wires;        ///< are results
  unsigned words = 0;
};

} // namespace attn::host

#endif
