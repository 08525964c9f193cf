//===- RowSums.h - Exact gradients of tables and sinks ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPAND_ROWSUMS_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPAND_ROWSUMS_H

#include "Expansion.h"

namespace mlir::attn {

/// The gradient of each row's LSE.
Value lseGradient(FragmentExpansion &e, RowsPart &rows);

/// The sums that a kernel with stationary rows keeps beside dq, one number per row each: none, unless
/// gradients of tables or of sinks are asked for.
///
/// delta = <do, o> - dlse is computed from an output that was rounded to 16 bits. With its error e, a table's
/// gradient sum ds t is wrong by e sum p t, which is not bounded by the gradient itself: t may be thousands,
/// and nearly the same for all tokens of a row. So a kernel sums p t beside ds t and, once for all tables, p
/// and ds. When the row ends they give the error, where w is the weight of the row's sink:
///
///   e = dlse - (sum ds - w delta) / (sum p + w)
class RowSums {
public:
  explicit RowSums(FragmentExpansion &e)
      : e(e), b(e.b), whole(e.rowsOf(b.getF32Type())), share(e.rowsOf(b.getF32Type(), /*partial=*/true)) {}

  SmallVector<Value> zeros(size_t count);
  /// Adds a tile. `slopes`: the slopes of the score by each table that is read.
  void addTile(MutableArrayRef<Value> sums, Value weights, Value products, Value delta, ValueRange slopes);
  /// The results of a finished row.
  struct Settled {
    Value delta;
    SmallVector<Value> tables; ///< sum ds t of each read
  };
  Settled settle(RowsPart &rows, ValueRange sums, Value delta, bool withLse);

private:
  void addShares(Value &sum, Value ofTile);
  /// The weight of each row's sink; null if there are no sinks.
  Value sinkWeights(RowsPart &rows);

  FragmentExpansion &e;
  KernelBuilder &b;
  tile::FragmentType whole, share;
};

} // namespace mlir::attn

#endif
