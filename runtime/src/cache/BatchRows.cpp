//===- BatchRows.cpp - Which rows of a batch see which node ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/BatchState.h"

namespace attn::rt {

/// Marks the node and all nodes above it, so that the children of a parent are in the order of their first
/// group.
void BatchBuilder::State::see(int32_t index) {
  while (!entry(index).seen) {
    entry(index).seen = true;
    touched.push_back(index);
    if (index == ground)
      return;
    const int32_t parent = cache->at(index).parent;
    Entry &above = entry(parent);
    (above.firstChild < 0 ? above.firstChild : entry(above.lastChild).next) = index;
    above.lastChild = index;
    index = parent;
  }
}

Status BatchBuilder::State::readGroups(std::span<const RowGroup> groups) {
  int64_t rows = 0;
  userFirst.clear();
  firstRow.resize(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    const RowGroup &group = groups[i];
    const std::string where = "rows[" + std::to_string(i) + "]: ";
    Result<int32_t> index = cache->find(group.node);
    if (!index)
      return inputError(where + index.error().message);
    const Node &node = cache->at(*index);
    if (entry(*index).group >= 0)
      return inputError(where + nodeText(group.node) + " has rows already, rows[" +
                        std::to_string(entry(*index).group) + "]");
    if (group.draft && !node.draft)
      return inputError(where + nodeText(group.node) + " has no draft");
    if (const std::string why = refuseRows(node, group.node, group.rows, group.draft); !why.empty())
      return inputError(where + why);
    see(*index);
    entry(*index).group = static_cast<int32_t>(i);
    userFirst.push_back(static_cast<int32_t>(rows));
    rows += group.rows + (group.draft ? node.draft->tree.size() : 0);
    if (rows > std::numeric_limits<int32_t>::max())
      return inputError(where + "all rows so far exceed " +
                        std::to_string(std::numeric_limits<int32_t>::max()));
  }
  return {};
}

void BatchBuilder::State::addRows(const RowGroup &group, int32_t userRow, SeenNode &node, CacheBatch &out) {
  firstRow[static_cast<size_t>(entry(node.index).group)] = static_cast<int32_t>(out.userRow.size());
  const Node &of = cache->at(node.index);
  for (int32_t i = 0; i < group.rows; ++i) {
    out.userRow.push_back(userRow + i);
    out.batch.qPos.push_back(of.end() - group.rows + i);
  }
  if (group.draft) {
    node.draftRow = static_cast<int32_t>(out.userRow.size());
    const TokenTree &tree = of.draft->tree;
    for (int32_t d = 0; d < tree.size(); ++d) {
      out.userRow.push_back(userRow + group.rows + tree.order()[static_cast<size_t>(d)]);
      out.batch.qPos.push_back(of.end() + tree.depth()[static_cast<size_t>(d)]);
    }
  }
  node.leastPosition = of.end() - group.rows;
  node.leastNode = node.index;
  out.batch.qStart.push_back(static_cast<int32_t>(out.userRow.size()));
}

/// Walks depth-first over the seen nodes: a node's own rows, then those of its draft or of its children.
void BatchBuilder::State::numberRows(std::span<const RowGroup> groups, CacheBatch &out) {
  out.userRow.clear();
  out.batch.qPos.clear();
  out.batch.qStart.assign(1, 0);
  seen.clear();
  const auto rows = [&] { return static_cast<int32_t>(out.userRow.size()); };
  std::vector<size_t> path; // of indices into `seen`
  for (int32_t index = entry(ground).firstChild; index >= 0;) {
    const Entry &here = entry(index);
    path.push_back(seen.size());
    seen.push_back({index, rows(), 0});
    if (here.group >= 0)
      addRows(groups[static_cast<size_t>(here.group)], userFirst[static_cast<size_t>(here.group)],
              seen.back(), out);
    int32_t next = here.firstChild;
    while (next < 0 && !path.empty()) {
      SeenNode &done = seen[path.back()];
      done.last = rows();
      next = entry(done.index).next;
      path.pop_back();
      if (!path.empty() && done.leastPosition < seen[path.back()].leastPosition) {
        seen[path.back()].leastPosition = done.leastPosition;
        seen[path.back()].leastNode = done.leastNode;
      }
    }
    index = next;
  }
  out.batch.rows = rows();
  out.batchRow.resize(out.userRow.size());
  for (size_t row = 0; row < out.userRow.size(); ++row)
    out.batchRow[static_cast<size_t>(out.userRow[row])] = static_cast<int32_t>(row);
}

} // namespace attn::rt
