//===- BatchState.h - The steps of making a batch ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// groups of rows -> rows in depth-first order (BatchRows.cpp) -> instances and
// tables of each operand (Batch.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_BATCHSTATE_H
#define ATTN_RT_CACHE_BATCHSTATE_H

#include "attn_rt/cache/CacheBatch.h"
#include "cache/State.h"

namespace attn::rt {

/// A node that rows see.
struct SeenNode {
  int32_t index;
  int32_t first, last;               ///< rows at or below it
  int32_t draftRow = -1;             ///< the row of its draft's first token, if the draft has rows
  int32_t leastPosition = neverSeen; ///< the least position of these rows
  int32_t leastNode = 0;             ///< the node of the row at leastPosition
};

/// Tokens of consecutive positions on pages that follow each other in a list.
struct Instance {
  int32_t index, pos0, tokens, first, last;
  int32_t lastNode = index; ///< the node whose tokens end it
  size_t pagesBegin = 0, pagesEnd = 0;
};

struct BatchBuilder::State {
  CacheBatchOptions options;
  const Cache::State *cache = nullptr;

  // One per node, reset after use.
  struct Entry {
    int32_t group = -1;
    bool seen = false;
    int32_t firstChild = -1, lastChild = -1, next = -1; ///< seen nodes, by their first row group
  };
  std::vector<Entry> entries;
  std::vector<int32_t> touched;
  std::vector<int32_t> userFirst; ///< by group
  std::vector<SeenNode> seen;     ///< parents first
  std::vector<Instance> instances;
  std::vector<int32_t> pages;

  // The last build, for update.
  uint64_t serial = 0, shape = 0;
  std::vector<RowGroup> groups;
  std::vector<int32_t> firstRow;           ///< by group
  std::vector<std::vector<int32_t>> tails; ///< by operand and group: the instance that grows with the node

  Entry &entry(int32_t index) { return entries[static_cast<size_t>(index)]; }
  Status readGroups(std::span<const RowGroup> groups);
  void see(int32_t index);
  void numberRows(std::span<const RowGroup> groups, CacheBatch &out);
  void addRows(const RowGroup &group, int32_t userRow, SeenNode &node, CacheBatch &out);
  Status checkGivenBack(size_t c);
  void addNode(const SeenNode &node, size_t c);
  void addDraft(const SeenNode &node, size_t c, int32_t page);
  void push(const Instance &next, int32_t page);
  void writeOperand(size_t o, int32_t page, CacheBatch &out);
  Status build(std::span<const RowGroup> rowGroups, CacheBatch &out);
  bool update(CacheBatch &out) const;
};

} // namespace attn::rt

#endif
