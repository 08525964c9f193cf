//===- CacheBatch.h - From a forest to a launch -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which query rows an attention has, and which instances they see: the way from
// a Cache to a Batch. The user names nodes, in any order; here rows are numbered
// depth-first, which makes the rows that see a node one range:
//
//     user's rows       answer B, thought C, answer A
//     depth first       A  B  C       prompt [0, 3)  thought [0, 2)  A [0, 1) …
//
// Decoding is a row per leaf, a prompt's chunk many rows on one node, verifying a
// draft a row for each of its tokens; a batch may hold all of them. Siblings come
// in the order in which the user names rows on or below them, so an order that is
// depth-first already is kept. Queries are gathered into the batch's order, and
// results scattered back, with the two maps of CacheBatch.
//
// Rows of one node or one chain of a draft share an instance and differ only in
// how far they see, so operands made here must be seen `causal`, or less. A Cache keeps the
// same tokens of all heads of a class, so they are not ragged.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_CACHEBATCH_H
#define ATTN_RT_CACHE_CACHEBATCH_H

#include "attn_rt/batch/Batch.h"
#include "attn_rt/cache/Cache.h"

#include <atomic>

namespace attn::rt {

/// Rows on one node: its last `rows` tokens, in order, and then, with `draft`, all tokens of its draft as
/// they were given to speculate.
struct RowGroup {
  NodeId node;
  int32_t rows = 1;
  bool draft = false;
};

/// What one operand of the attention shows of the cache. Operands of one class show the same memory.
struct CacheOperand {
  int32_t headClass = 0;
  bool nodes = true, drafts = true;
  /// Tokens of a page, as the operand's store must have it: draftPage where it shows drafts only. 0 where no
  /// store fits, nodes and drafts being on pages of different sizes.
  int32_t page(const CacheOptions &options) const {
    const int32_t ofDrafts = options.draftPage ? options.draftPage : options.pageTokens;
    return !drafts ? options.pageTokens : !nodes || ofDrafts == options.pageTokens ? ofDrafts : 0;
  }
};

struct CacheBatchOptions {
  std::vector<CacheOperand> operands = {CacheOperand()}; ///< as in Manifest::operands
  /// Columns of block tables: longer runs of tokens are cut into several instances. 0: as many as the longest
  /// run takes.
  int32_t maxPages = 0;
};

class NodeLog;
class PageLog;

/// Nodes that something was made of, so that it can be told when one has got or lost tokens since, or was
/// pruned.
class WatchedNodes {
public:
  /// From here on, of these nodes.
  void begin(const Cache &cache, std::span<const RowGroup> groups);
  /// From here on, of the same.
  void restart();
  /// The count of the log when this began, and its present count.
  uint64_t count() const { return count_; }
  uint64_t countNow() const;
  /// Names a node that has changed, if one has. `count` is the log's at the last check: where nothing
  /// has changed since, no node is looked at. Any thread may ask, whatever the cache does meanwhile.
  Status check(uint64_t &count) const;

private:
  struct Watched {
    NodeId node;
    const std::atomic<uint64_t> *entry;
  };
  std::shared_ptr<const NodeLog> log_;
  std::vector<Watched> nodes_;
  uint64_t count_ = 0;
};

struct CacheBatch {
  Batch batch;
  /// The user's row of each row of the batch, and the way back. Users count the rows of their groups through.
  std::vector<int32_t> userRow, batchRow;
  std::vector<std::vector<NodeId>> nodes; ///< by operand: where each instance begins

  /// The pages that an operand's tables are of, so that it can be told when the cache has given one to
  /// others.
  struct Source {
    std::shared_ptr<const PageLog> log;
    int32_t page = 0;    ///< tokens of the table's pages,
    int32_t perPage = 1; ///< of which one of the cache's is as many
    uint64_t count = 0;  ///< of the log, when the tables were made
  };
  std::vector<Source> sources; ///< by operand; none where the batch is not of a cache
  WatchedNodes watched;        ///< that have rows
};

/// The counts of the logs of pages, by operand, and of that of nodes.
struct LogCounts {
  std::vector<uint64_t> pages;
  uint64_t nodes = 0;
  /// When the batch was made.
  static LogCounts of(const CacheBatch &batch);
  /// Whether that is what they are now.
  bool areCurrent(const CacheBatch &batch) const;
};

/// Names a node of the batch that has changed since, or a page that it reads and that others were given, with
/// the node where its run of pages begins. `counts` are the logs' at the last check: where nothing happened
/// since, nothing is looked at. Any thread may ask, whatever the cache
/// does meanwhile.
Status checkCurrent(const CacheBatch &batch, LogCounts &counts);

/// Makes batches, keeping its scratch memory between them.
class BatchBuilder {
public:
  explicit BatchBuilder(CacheBatchOptions options = {});
  ~BatchBuilder();
  BatchBuilder(BatchBuilder &&) noexcept;

  /// One instance for each node with rows at or below it, per class: two where a streaming class has given
  /// back what is between its sink and its recent tokens, one where a node fills its pages and only one
  /// child's rows see it; and one for each chain of a draft. Refuses, naming the group and the node: a node
  /// that was pruned, or named twice; more rows than it has tokens; a draft that is not there; rows that
  /// would see what a streaming class has given back. `out` is then unspecified. O(rows + nodes + entries of
  /// the tables).
  Status build(const Cache &cache, std::span<const RowGroup> rows, CacheBatch &out);

  /// The next step of decoding: where nothing but appends has happened since the last build, into this `out`
  /// and of the same rows (the last ones of their nodes, wherever these end now), writes what has changed and
  /// returns true. Else, and where tables get too narrow or a streaming class has given pages back, returns
  /// false and leaves `out` as it was: build again. O(rows).
  bool update(const Cache &cache, CacheBatch &out);

private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The tables of a batch as tensors, named as in design's table: what Session::bind takes, next to the data.
TensorMap tablesOf(const Manifest &manifest, const Batch &batch);

} // namespace attn::rt

#endif
