//===- SolveLayouts.cpp - A layout for every value ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LayoutGraph.h"

using namespace mlir;
using namespace mlir::tile;

/// Moves layouts along flows. Values from a loop's iterations come before its initial values, because they
/// are read more often.
bool LayoutGraph::forward(bool enterLoops) {
  bool changed = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (const Flow &flow : flows) {
      Layout from = nodeOf(flow.use->get()).layout;
      Node &to = nodeOf(flow.to);
      if ((flow.enters && !enterLoops) || from == Layout::Unassigned || to.layout != Layout::Unassigned)
        continue;
      to.layout = from;
      moved = changed = true;
    }
  }
  return changed;
}

/// Moves layouts one step against the data, from the last users on. Operations with a layout of their own
/// come before those that would pass one on.
bool LayoutGraph::backward() {
  bool changed = false;
  auto ask = [&](Value value, Layout layout) {
    Node &node = nodeOf(value);
    if (node.layout != Layout::Unassigned || layout == Layout::Unassigned)
      return;
    node.layout = layout;
    changed = true;
  };
  for (const Need &need : needs)
    ask(need.use->get(), need.layout);
  if (changed)
    return true;
  for (const Flow &flow : llvm::reverse(flows))
    ask(flow.use->get(), nodeOf(flow.to).layout);
  return changed;
}

/// Gives the first value without a layout any layout: no user depends on it.
bool LayoutGraph::fallBack() {
  for (; settled < nodes.size(); ++settled) {
    Node &node = nodes[settled];
    if (node.values.empty() || node.layout != Layout::Unassigned)
      continue;
    FragmentType type = fragmentOf(node.values.front());
    node.layout = type.getRank() == 2                 ? Layout::Acc
                  : type.getSizes().front() % 16 == 0 ? Layout::Row
                                                      : Layout::Col;
    return true;
  }
  return false;
}

void LayoutGraph::solve() {
  do
    while (forward(/*enterLoops=*/false) || forward(/*enterLoops=*/true) || backward()) {
    }
  while (fallBack());
}
