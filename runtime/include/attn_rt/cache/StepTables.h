//===- StepTables.h - Tables that one recording reads -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What launches of a step read of a cache, in one piece of memory whose layout never
// changes: the rows of each sequence, lengths, pages, and the slots of new tokens.
// Lengths, sequences and rows of any step within the capacity fit in it. So a plan's
// kernel, an append and an attention over it (DevicePlan.h, CacheKernels.h) are recorded
// once for all steps.
//
// A sequence here is what a plan on the device knows: consecutive rows and, of each
// operand, one run of tokens that no other sequence shows. A leaf's path of nodes is such
// a run if all of it but the last node lies in whole pages, as after a fork. Every chain
// of a draft is a sequence: its rows see the draft's path to the chain's end, in pages
// of one token.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_STEPTABLES_H
#define ATTN_RT_CACHE_STEPTABLES_H

#include "attn_rt/cache/CacheBatch.h"

namespace attn::rt {

struct StepCapacity {
  int32_t sequences = 0, rows = 0, newTokens = 0;
  struct Operand {
    std::string name; ///< the name of the kernel's argument
    CacheOperand shown;
    int32_t pages = 0; ///< per sequence
  };
  std::vector<Operand> operands;
};

/// Words of a list of up to `tokens` new tokens: their number in a sector of its own, and their slots, padded
/// to the whole pieces that an append copies.
constexpr size_t newTokenWords(int64_t tokens) { return static_cast<size_t>(8 + (tokens + 63) / 64 * 64); }

class StepTables {
public:
  /// Refuses what no plan on the device can show: streaming classes, and drafts whose pages hold several
  /// tokens.
  static Result<StepTables> create(const Cache &cache, StepCapacity capacity);

  struct Part {
    std::string name; ///< "new_tokens", "q_start", "kv.lengths", "kv.pos0", "kv.block_table", …
    size_t first, words;
  };
  /// The tables in the order of the words, and the number of all words.
  const std::vector<Part> &parts() const { return parts_; }
  size_t words() const { return words_.size(); }

  /// Adds the rows of a movement to the step's new tokens. A new token whose page was reassigned by the time
  /// of `update` is left out: its node was pruned.
  Status take(const Cache &cache, const Movement &movement);
  /// Cache::apply of appends, then `take` of their movement. Errors are those of both, and change nothing.
  Status append(Cache &cache, std::vector<CacheStep::Append> appends);

  /// Makes the tables of a step from the cache's present contents. Rows are those of the groups, in order.
  /// Refuses, naming the group, the node and the nearest legal value, a step that exceeds the capacity or
  /// that the device cannot plan; the tables are then unchanged. O(groups + their pages that are new since
  /// the last update), and of all their pages if nodes were made or pruned since.
  Status update(const Cache &cache, std::span<const RowGroup> groups);
  /// An error names a node with rows in the last step that has changed since. Thread-safe.
  Status checkCurrent() const {
    uint64_t none = 0;
    return watched_.check(none);
  }
  /// The prefix of all words that is in use.
  std::span<const int32_t> used() const { return {words_.data(), used_}; }
  /// The prefix of the used words that has changed since the update before: what is copied to a device that
  /// has the tables of that update. Block tables come last, and most steps add to no row of them, or to a
  /// few.
  std::span<const int32_t> changed() const { return {words_.data(), changed_}; }
  /// The rows of the last step.
  int32_t rows() const { return words_[parts_[1].first + parts_[1].words - 1]; }

private:
  struct Sequence {
    int32_t leaf, pages, rows, chain; ///< pages: of its path; chain: of its draft; -1: its own last tokens
  };
  /// A row of a block table: the leaf whose pages it lists, and how many.
  struct Row {
    int32_t leaf, pages;
  };
  struct NewToken {
    int32_t slot, page;
    uint64_t count; ///< of the pages' log
  };
  StepTables() = default;
  void layOut();
  /// The first word of the block tables, which come last.
  size_t blockTables() const { return parts_[parts_.size() - capacity_.operands.size()].first; }
  Status checkRoom(int64_t tokens) const;
  /// The request at hand, for messages: text is made only for an error.
  struct Where {
    size_t request;
    std::string operator+(const std::string &rest) const;
  };
  Status readGroup(const Cache::State &cache, const RowGroup &group, const Where &where);
  Status addDraft(const Cache::State &cache, int32_t leaf, int32_t pages, int32_t rows, const Where &where);
  Result<int32_t> checkPath(const Cache::State &cache, int32_t leaf, const Where &where) const;
  void writeSequence(const Cache::State &cache, size_t number, const Sequence &sequence);
  void writePath(const Cache::State &cache, const Row &has, int32_t pages, int32_t *row) const;
  void writeNewTokens(const Cache::State &cache);

  StepCapacity capacity_;
  size_t headClass_ = 0;
  std::vector<Part> parts_;
  std::vector<int32_t> words_;
  size_t used_ = 0, changed_ = 0;
  std::vector<NewToken> taken_;
  std::vector<Sequence> sequences_; ///< of the step that is being made
  int64_t rows_ = 0;
  // The cache of the last update, its shape, and the rows of the block tables.
  uint64_t serial_ = 0, shape_ = 0;
  std::vector<Row> written_;
  WatchedNodes watched_;
};

} // namespace attn::rt

#endif
