//===- LayoutGraph.h - Fragments and their layouts --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values are the nodes of a graph. Operations state three kinds of facts:
//
//   define  the value has this layout                  (an MMA's result, a reduction)
//   need    this operand is read in this layout        (an MMA's left operand)
//   flow    this operand is read in the layout of that value
//           (carried values of loops, results of branches, maps over one axis)
//
// Layouts first travel with the data, along flows. Values that no layout reaches get one against the data,
// from their users. In the end, a need or a flow between two layouts becomes a conversion.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_TILE_TRANSFORMS_LAYOUTS_LAYOUTGRAPH_H
#define ATTN_DIALECT_TILE_TRANSFORMS_LAYOUTS_LAYOUTGRAPH_H

#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"

namespace mlir::tile {

inline FragmentType fragmentOf(Value value) { return dyn_cast<FragmentType>(value.getType()); }

/// The values of one kernel and the facts about their layouts.
class LayoutGraph {
public:
  explicit LayoutGraph(func::FuncOp kernel) : kernel(kernel) {}
  void build();
  void solve();
  /// Sets the types of all values and inserts conversions.
  LogicalResult materialize();
  /// Numbers of inserted conversions, and of values computed again in another layout.
  unsigned conversions = 0, remade = 0;

private:
  /// Values that must have one type, such as a loop's iteration arguments and results.
  struct Node {
    SmallVector<Value, 1> values;
    Layout layout = Layout::Unassigned;
  };
  struct Need {
    OpOperand *use;
    Layout layout;
  };
  struct Flow {
    OpOperand *use;
    Value to;
    bool enters; ///< from the loop's initial values into its carried values
  };

  // Facts that operations state.
  void define(Value value, Layout layout);
  void need(OpOperand &use, Layout layout);
  void need(Operation *op, Layout layout);
  void flow(Operation *op, Value to);
  void visit(Operation *op);
  void visitElementwise(Operation *op);
  void visitMergeWarps(Operation *op);
  void visitBranch(RegionBranchOpInterface op);

  Node &nodeOf(Value value) { return nodes[index.find(value)->second]; }
  void add(Value value);
  void unite(Value a, Value b);

  bool forward(bool enterLoops);
  bool backward();
  bool fallBack();

  LogicalResult assign();
  FailureOr<Value> inLayout(Value value, Layout layout, Operation *user);
  LogicalResult convertUses();
  static bool isLaneRelative(Value value);

  func::FuncOp kernel;
  SmallVector<Node> nodes;
  size_t settled = 0; ///< leading nodes that surely have a layout
  DenseMap<Value, size_t> index;
  SmallVector<Need> needs;
  SmallVector<Flow> flows;
  DenseMap<std::pair<Value, Layout>, Value> converted;
};

} // namespace mlir::tile

#endif
