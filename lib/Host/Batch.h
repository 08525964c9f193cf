//===- Batch.h - Matrix operations as programs of the warp ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_HOST_BATCH_H
#define ATTN_LIB_HOST_BATCH_H

#include "Rewriter.h"

namespace attn::host {

/// A run of matrix operations of one basic block, during its collection.
struct Batcher {
  /// Word `second` of the result of `first`.
  using Wire = std::pair<mlir::Operation *, unsigned>;

  explicit Batcher(const llvm::DenseMap<mlir::Operation *, uint32_t> &opIds) : opIds(&opIds) {}
  static bool isPure(mlir::Operation *op);
  bool fits(mlir::Operation *op) const;
  void add(mlir::Operation *op);
  /// Records a pure operation between or after the run's operations.
  void follow(mlir::Operation *op);
  /// Whether the value is used by anything but the run and the extractions from its structs.
  bool isExported(mlir::Value value) const;
  void assignWords(rt::host::WarpProgram &program, llvm::DenseMap<mlir::Value, unsigned> &inputs,
                   llvm::DenseMap<Wire, unsigned> &outputs, const llvm::DenseSet<Wire> &exported);

  llvm::DenseMap<mlir::Operation *, uint32_t> const *opIds;
  llvm::SmallVector<mlir::Operation *> steps;
  llvm::SmallVector<mlir::Operation *> extracts;  ///< extract results from structs
  llvm::SmallVector<mlir::Operation *> followers; ///< use results in other ways
  size_t followersToMove = 0;                     ///< followers before the last step
  llvm::DenseSet<mlir::Value> tainted;            ///< values that depend on results
  llvm::DenseMap<mlir::Value, Wire> wires;        ///< values that are results
  unsigned words = 0;
};

} // namespace attn::host

#endif
