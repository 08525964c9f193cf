//===- CacheBatch.h - From a forest to a launch -----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which query rows an attention has, and which instances they see: the way from
// a Cache to a Batch. The user names nodes, in any order; rows are numbered
// depth-first here, so that the rows that see a node are one range:
//
//     user's rows       answer B, thought C, answer A
//     depth first       A  B  C       prompt [0, 3)  thought [0, 2)  A [0, 1) …
//
// Decoding has a row per leaf, a prompt's chunk many rows on one node, verification
// of a draft a row per token of the draft; a batch may hold all of them. Siblings come
// in the order in which the user names rows on or below them, so an order that is
// depth-first already is kept. The two maps of CacheBatch gather queries into the
// batch's order and scatter results back.
//
// Rows of one node or one chain of a draft share an instance and differ only in the
// number of tokens they see, so operands made here need visibility `causal`, or less. A
// Cache keeps the same tokens of all heads of a class, so they are not ragged.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_CACHEBATCH_H
#define ATTN_RT_CACHE_CACHEBATCH_H

#include "attn_rt/batch/Batch.h"
#include "attn_rt/cache/Cache.h"

#include <atomic>

namespace attn::rt {

/// Rows on one node: its last `rows` tokens, in order, and then, with `draft`, all tokens of its draft in the
/// order given to speculate.
struct RowGroup {
  NodeId node;
  int32_t rows = 1;
  bool draft = false;
};

/// The part of a cache that one operand of the attention shows. Operands of one class show the same memory.
struct CacheOperand {
  int32_t headClass = 0;
  bool nodes = true, drafts = true;
  /// Tokens of a page, as the operand's store must declare: draftPage if it shows drafts only. 0: no store
  /// fits, because nodes and drafts are on pages of different sizes.
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

/// Nodes that an object was made from, watched for changes: whether one has gained or lost tokens since, or
/// was pruned.
class WatchedNodes {
public:
  /// Starts to watch these nodes.
  void begin(const Cache &cache, std::span<const RowGroup> groups);
  /// Starts to watch the same nodes anew.
  void restart();
  /// The count of the log when this began, and its present count.
  uint64_t count() const { return count_; }
  uint64_t countNow() const;
  /// An error names a node that has changed. `count` is the log's count at the last check: if it is still
  /// current, no node is checked. Thread-safe against changes of the cache.
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
  /// The user's row of each row of the batch, and the inverse. The user's rows are numbered over all groups.
  std::vector<int32_t> userRow, batchRow;
  std::vector<std::vector<NodeId>> nodes; ///< by operand: where each instance begins

  /// The pages that an operand's tables list, watched for a page that the cache has reassigned.
  struct Source {
    std::shared_ptr<const PageLog> log;
    int32_t page = 0;    ///< tokens of the table's pages
    int32_t perPage = 1; ///< pages of the table in one page of the cache
    uint64_t count = 0;  ///< the log's count when the tables were made
  };
  std::vector<Source> sources; ///< by operand; empty if the batch is not of a cache
  WatchedNodes watched;        ///< the nodes with rows
};

/// The counts of the logs of pages, by operand, and of the log of nodes.
struct LogCounts {
  std::vector<uint64_t> pages;
  uint64_t nodes = 0;
  /// The counts at the time the batch was made.
  static LogCounts of(const CacheBatch &batch);
  /// Whether these counts are still current.
  bool areCurrent(const CacheBatch &batch) const;
};

/// Checks that a batch is current. An error names a node of the batch that has changed since, or a page that
/// the batch reads and that was reassigned, with the node where its run of pages begins. `counts` are the
/// logs' counts at the last check: if they are still current, nothing is checked. Thread-safe against changes
/// of the cache.
Status checkCurrent(const CacheBatch &batch, LogCounts &counts);

/// Makes batches, and keeps its scratch memory between them.
class BatchBuilder {
public:
  explicit BatchBuilder(CacheBatchOptions options = {});
  ~BatchBuilder();
  BatchBuilder(BatchBuilder &&) noexcept;

  /// Makes a batch of the rows. Per class, each node with rows at or below it is one instance: two if a
  /// streaming class has freed the tokens between its sink and its recent tokens. A node that fills its pages
  /// is one instance with its child if only one child's rows see it. Each chain of a draft is one instance.
  /// On an error `out` is unspecified. O(rows + nodes + entries of the tables). Refuses, naming the group and
  /// the node:
  /// - a node that was pruned, or named twice
  /// - more rows than the node has tokens
  /// - a draft that does not exist
  /// - rows that would see tokens that a streaming class has freed
  Status build(const Cache &cache, std::span<const RowGroup> rows, CacheBatch &out);

  /// Advances a batch by a step of decoding. Nothing but appends may have happened since the last build, into
  /// this `out` and with the same rows (the last rows of their nodes, wherever these end now): then it writes
  /// what has changed and returns true. Otherwise, or if tables get too narrow or a streaming class has freed
  /// pages, it returns false and leaves `out` unchanged: build again. O(rows).
  bool update(const Cache &cache, CacheBatch &out);

private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The tables of a batch as tensors, under the names of the kernels' buffers: what Session::bind takes, in
/// addition to the data.
TensorMap tablesOf(const Manifest &manifest, const Batch &batch);

} // namespace attn::rt

#endif
