//===- LayoutGraph.cpp - Layout facts of operations -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LayoutGraph.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::tile;

/// Returns the layout of a one-axis fragment beside a two-axis one: along its rows or its columns.
static Layout layoutBeside(FragmentType oneAxis, FragmentType twoAxes) {
  return oneAxis.getAxes()[0] == twoAxes.getAxes()[0] ? Layout::Row : Layout::Col;
}

/// Returns the layout of queries: few rows are a right operand, others a left one.
static Layout queryLayout(Value queries) {
  return fragmentOf(queries).getSizes().front() == ScheduleAttr::fewRows ? Layout::Rhs : Layout::Lhs;
}

/// Returns the layout of a left operand in registers.
static Layout leftLayout(Operation *op) {
  auto mma = dyn_cast<MmaOp>(op);
  return mma ? mma.getLeftLayout() : Layout::Lhs;
}

void LayoutGraph::add(Value value) {
  auto type = fragmentOf(value);
  if (!type || !index.insert({value, nodes.size()}).second)
    return;
  nodes.push_back({{value}, type.getLayout()});
}

void LayoutGraph::unite(Value a, Value b) {
  size_t kept = index.find(a)->second, gone = index.find(b)->second;
  if (kept == gone)
    return;
  for (Value value : nodes[gone].values)
    index.find(value)->second = kept;
  nodes[kept].values.append(nodes[gone].values);
  if (nodes[kept].layout == Layout::Unassigned)
    nodes[kept].layout = nodes[gone].layout;
  nodes[gone].values.clear();
}

/// Defines a layout; a layout in the text takes precedence, because verifiers have checked it.
void LayoutGraph::define(Value value, Layout layout) {
  Node &node = nodeOf(value);
  if (node.layout == Layout::Unassigned)
    node.layout = layout;
}

void LayoutGraph::need(OpOperand &use, Layout layout) {
  if (fragmentOf(use.get()))
    needs.push_back({&use, layout});
}

void LayoutGraph::need(Operation *op, Layout layout) {
  for (OpOperand &use : op->getOpOperands())
    need(use, layout);
}

void LayoutGraph::flow(Operation *op, Value to) {
  for (OpOperand &use : op->getOpOperands())
    if (fragmentOf(use.get()))
      flows.push_back({&use, to, false});
}

/// Visits an elementwise operation, whose scalars match by coordinate. Operands of `lhs` have no scalars.
void LayoutGraph::visitElementwise(Operation *op) {
  FragmentType result = fragmentOf(op->getResult(0));
  for (Value value : op->getResults())
    result.getRank() == 1 ? flow(op, value) : define(value, Layout::Acc);
  if (result.getRank() == 1)
    return;
  for (OpOperand &use : op->getOpOperands())
    if (auto type = fragmentOf(use.get()))
      need(use, type.getRank() == 2 ? Layout::Acc : layoutBeside(type, result));
}

void LayoutGraph::visitBranch(RegionBranchOpInterface op) {
  auto carries = [](auto values) { return llvm::any_of(values, [](Value v) { return fragmentOf(v); }); };
  if (!carries(op->getResults()) &&
      llvm::none_of(op->getRegions(), [&](Region &region) { return carries(region.getArguments()); }))
    return; // most branches are over scalars, and the mapping is slow
  RegionBranchSuccessorMapping mapping;
  op.getSuccessorOperandInputMapping(mapping);
  auto addFlows = [&](Operation *from, bool enters) {
    for (OpOperand &use : from->getOpOperands()) {
      auto it = fragmentOf(use.get()) ? mapping.find(&use) : mapping.end();
      if (it == mapping.end())
        continue;
      for (Value input : it->second)
        unite(it->second.front(), input);
      flows.push_back({&use, it->second.front(), enters});
    }
  };
  addFlows(op, true);
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (block.mightHaveTerminator())
        addFlows(block.getTerminator(), false);
}

/// Visits a merge: the rows and the accumulator of a warp, before and after.
void LayoutGraph::visitMergeWarps(Operation *op) {
  for (OpOperand &use : op->getOpOperands())
    if (auto type = fragmentOf(use.get()))
      need(use, type.getRank() == 2                                ? Layout::Acc
                : type.getSizes().front() == ScheduleAttr::fewRows ? Layout::Col
                                                                   : Layout::Row);
  for (Value result : op->getResults())
    define(result, fragmentOf(result).getRank() == 2 ? Layout::Acc : Layout::Row);
}

void LayoutGraph::visit(Operation *op) {
  auto defineAll = [&](Layout layout) {
    for (Value result : op->getResults())
      define(result, layout);
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<MmaOp, StartMmaOp>([&](auto mma) {
        if (fragmentOf(mma.getLhs()))
          need(op->getOpOperand(0), leftLayout(op));
        for (OpOperand &use : op->getOpOperands().drop_front())
          need(use, use.get() == mma.getRhs() ? Layout::Rhs : Layout::Acc);
        defineAll(Layout::Acc);
      })
      .Case([&](WaitMmasOp) {
        need(op, Layout::Acc);
        defineAll(Layout::Acc);
      })
      .Case([&](LoadOp load) { defineAll(queryLayout(load.getFragment())); })
      .Case([&](LoadColumnsOp load) {
        for (Value column : load.getColumns())
          unite(load.getColumns().front(), column);
      })
      .Case([&](LoadRhsOp) { defineAll(Layout::Rhs); })
      .Case([&](LoadLhsOp) { defineAll(Layout::Lhs); })
      .Case([&](WidenOp widen) {
        for (OpOperand &use : op->getOpOperands())
          need(use, fragmentOf(use.get()).getRank() == 2
                        ? Layout::Rhs
                        : layoutBeside(fragmentOf(use.get()), widen.getResult().getType()));
        defineAll(Layout::Rhs);
      })
      .Case([&](PartOp part) { flow(op, part.getResult()); })
      .Case([&](JoinOp) {
        for (OpOperand &use : op->getOpOperands())
          need(use, Layout::Acc);
        defineAll(Layout::Acc);
      })
      .Case<NarrowOp, BalanceOp>([&](auto) {
        need(op, queryLayout(op->getResult(0)));
        define(op->getResult(0), queryLayout(op->getResult(0)));
      })
      .Case([&](CastOp cast) {
        need(op, Layout::Acc);
        bool turns = cast.getSource().getType().getAxes() != cast.getResult().getType().getAxes();
        defineAll(turns ? Layout::Rhs : Layout::Lhs);
      })
      .Case([&](RestoreOp) {
        need(op, Layout::Acc);
        defineAll(Layout::Acc);
      })
      .Case([&](ReduceOp reduce) {
        need(op, Layout::Acc);
        defineAll(layoutBeside(reduce.getResult().getType(), reduce.getSource().getType()));
      })
      .Case<MapOp, MaskOp>([&](auto) { visitElementwise(op); })
      .Case([&](CompleteOp complete) { flow(op, complete.getResult()); })
      .Case([&](SplatOp splat) {
        if (splat.getFragment().getType().getRank() == 2) // `lhs` has no scalars
          defineAll(Layout::Acc);
      })
      .Case([&](MergeWarpsOp) { visitMergeWarps(op); })
      .Case([&](ReduceWarpsOp) {
        need(op->getOpOperand(0), Layout::Row);
        defineAll(Layout::Row);
      })
      .Case([&](StageOp stage) {
        need(op, stage.getFragment().getType().getRank() == 2 ? Layout::Acc : Layout::Row);
      })
      .Case([&](StoreOp store) {
        if (store.getFragment().getType().getRank() == 2)
          need(op->getOpOperand(0), Layout::Acc);
      })
      .Case([&](StoreLanesOp) { need(op->getOpOperand(0), Layout::Acc); })
      .Case<LoadSumsOp, LoadFeaturesOp, LoadLanesOp>([&](auto) { defineAll(Layout::Acc); })
      .Case([&](LoadLinesOp load) {
        if (load.getFragment().getType().getRank() == 2)
          defineAll(Layout::Acc);
      })
      .Case([&](StoreScoresOp) { need(op->getOpOperand(0), Layout::Acc); })
      .Case([&](RegionBranchOpInterface branch) { visitBranch(branch); });
}

void LayoutGraph::build() {
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) {
    for (Value result : op->getResults())
      add(result);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (Value argument : block.getArguments())
          add(argument);
  });
  kernel.walk<WalkOrder::PreOrder>([&](Operation *op) { visit(op); });
}
