//===- StepTables.h - Tables that one recording reads -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What launches of a step read of a cache, in one piece of memory whose places never
// change: which rows are whose, how long sequences are, on which pages they lie, and
// where new tokens go. Lengths, sequences and rows of any step within the capacity
// fill it, so that a plan's kernel, an append and an attention over it (DevicePlan.h,
// CacheKernels.h) are recorded once for all steps.
//
// A sequence here is what a plan on the device knows: rows that follow each other, and
// of each operand one run of tokens that no other sequence shows. A leaf's path of
// nodes is such a run where all of it but the last lies in whole pages: a fork's is. Of
// a draft every chain is a sequence, and what its rows see of the draft is the path to
// the chain's end, in pages of one token.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_CACHE_STEPTABLES_H
#define ATTN_RT_CACHE_STEPTABLES_H

#include "attn_rt/cache/CacheBatch.h"

namespace attn::rt {

struct StepCapacity {
  int32_t sequences = 0, rows = 0, newTokens = 0;
  struct Operand {
    std::string name; ///< as the kernel's argument has
    CacheOperand shown;
    int32_t pages = 0; ///< of a sequence
  };
  std::vector<Operand> operands;
};

/// Words of a list of up to so many new tokens: their number in a sector of its own, and their slots with
/// room for the whole pieces that an append copies.
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
  const std::vector<Part> &parts() const { return parts_; }
  size_t words() const { return words_.size(); }

  /// The rows of a movement are the step's next new tokens. Those whose page is another's by the time of
  /// `update` are left out: their node was pruned.
  Status take(const Cache &cache, const Movement &movement);
  /// Cache::apply of appends, and `take` of what they move; refused as either is, before anything changes.
  Status append(Cache &cache, std::vector<CacheStep::Append> appends);

  /// The tables of a step, of what the cache holds now. Rows are those of the groups, one behind the other.
  /// Refuses, naming the group, the node and the nearest that is legal, what the capacity has no room for or
  /// the device cannot plan; then nothing has changed. O(groups + pages that they have and had not at the
  /// last update), and of all their pages where nodes have come or gone since.
  Status update(const Cache &cache, std::span<const RowGroup> groups);
  /// Names a node with rows in the last step that has changed since, if one has. Any thread may ask.
  Status checkCurrent() const {
    uint64_t none = 0;
    return watched_.check(none);
  }
  /// Of all words the first, behind which the step has nothing.
  std::span<const int32_t> used() const { return {words_.data(), used_}; }
  /// Of these the first, behind which all is as at the update before: what is sent to a device that has that
  /// one's. Block tables come last, and most steps add to none, or to a few rows.
  std::span<const int32_t> changed() const { return {words_.data(), changed_}; }
  /// Of the step that was made last.
  int32_t rows() const { return words_[parts_[1].first + parts_[1].words - 1]; }

private:
  struct Sequence {
    int32_t leaf, pages, rows, chain; ///< pages: of its path; chain: of its draft; -1: its own last tokens
  };
  /// Whose row of the block tables it is, and of how many pages.
  struct Row {
    int32_t leaf, pages;
  };
  struct NewToken {
    int32_t slot, page;
    uint64_t count; ///< of the pages' log
  };
  StepTables() = default;
  void layOut();
  /// The first word of the tables that come last.
  size_t blockTables() const { return parts_[parts_.size() - capacity_.operands.size()].first; }
  Status checkRoom(int64_t tokens) const;
  /// Of the request at hand, for messages: text is made only where there is one.
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
  // Of the last update: the cache, its shape, and the rows of the block tables.
  uint64_t serial_ = 0, shape_ = 0;
  std::vector<Row> written_;
  WatchedNodes watched_;
};

} // namespace attn::rt

#endif
