//===- RowAccess.h - A load or a store of a piece of rows -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWACCESS_H
#define ATTN_CONVERSION_ATTNTOTILE_ROWS_ROWACCESS_H

#include "RowExpansion.h"

namespace mlir::attn {

/// The operands and attributes that attn.load_rows and attn.store_rows have in common.
struct RowExpansion::Access {
  RowPart part;
  bool meta;
  Value argument;
  bool listed;
  Value rows, mark, layer, piece;
  ShareAttr share;

  explicit Access(LoadRowsOp op)
      : part(op.getPart()), meta(op.getMeta()), argument(op.getFrom()), listed(op.getListed()),
        rows(op.getRows()), mark(op.getMark()), layer(op.getLayer()), piece(op.getPiece()),
        share(op.getShare()) {}
  explicit Access(StoreRowsOp op)
      : part(op.getPart()), meta(op.getMeta()), argument(op.getTo()), listed(op.getListed()),
        rows(op.getRows()), mark(op.getMark()), layer(op.getLayer()), piece(op.getPiece()),
        share(op.getShare()) {}

  RowMemory memory() const { return rowMemoryOf(argument, part, meta); }
  /// Whether lanes convert lines of quantized numbers, their scales and a rest. Copies take their bytes.
  bool isMixed() const {
    return !meta && storedPartOf(argument, part).format.isMixed() && share.getChunk() == rowNumbers;
  }
};

} // namespace mlir::attn

#endif
