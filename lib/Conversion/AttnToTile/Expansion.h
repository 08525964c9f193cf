//===- Expansion.h - What expanding online operations needs ----*- C++ -*-===//
//
// The two forms in which a warp holds a state (see OnlineOpInterface.td), and what
// the operations of a kernel have become so far.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_EXPANSION_H
#define ATTN_CONVERSION_ATTNTOTILE_EXPANSION_H

#include "AttendKernel.h"

namespace mlir::attn {

/// What stands for values of the online level: of a state, of rows, of results.
class Pieces {
public:
  ArrayRef<Value> of(Value online) const {
    auto found = pieces.find(online);
    assert(found != pieces.end() && "an operand has not been expanded");
    return found->second;
  }
  void set(Value online, ArrayRef<Value> values) { pieces[online] = SmallVector<Value>(values); }

private:
  DenseMap<Value, SmallVector<Value>> pieces;
};

/// Sixteen rows to a warp. Pieces of a state are maximum, sum and accumulator and, where warps share the
/// columns, this warp's first; of rows their positions and query heads; of an output its fragment and the
/// first column, if there is one; of an LSE its fragment.
struct FragmentExpansion : AttendKernel {
  FragmentExpansion(Chain &chain, func::FuncOp kernel) : AttendKernel(chain, kernel) {}

  State stateOf(Value state) const {
    ArrayRef<Value> values = pieces.of(state);
    return {values[0], values[1], values[2]};
  }
  /// acc + lhs * rhs, lines of a shared left operand from the warp's or, where four multiply as one, from the
  /// warpgroup's first row on. Without `acc` the product.
  Value dot(tile::FragmentType type, Value lhs, Value rhs, Value acc);
  /// From here on these are the rows that the methods of AttendKernel speak of.
  void setRows(Value rows);
  /// The copy of a staged part.
  static Value copyOf(Value part, unsigned number) {
    return part.getDefiningOp<StagedOp>().getCopies()[number];
  }

  Pieces pieces;
};

/// One row to a warp, its columns four adjacent ones of each 128 to a lane. Pieces of a state are maximum,
/// sum and columns; of stored states which is this lane's, and their count; of an output its columns, of an
/// LSE a number.
struct LaneExpansion {
  LaneExpansion(StateType type, func::FuncOp kernel);

  int64_t chunks() const { return llvm::divideCeil(dim, 128); }
  /// Whether a chunk has lanes without columns.
  bool isRagged(int64_t chunk) const { return (chunk + 1) * 128 > dim; }
  /// This lane's first column of a chunk.
  Value column(int64_t chunk) { return b.add(b.mul(lane, b.i32(4)), b.i32(chunk * 128)); }

  KernelBuilder b;
  int64_t dim;
  int64_t partsAtOnce; ///< stored states that are read before the first is used
  Value lane;
  Pieces pieces;
};

} // namespace mlir::attn

#include "attn/Conversion/OnlineOpInterface.h.inc"

#endif
