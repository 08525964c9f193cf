//===- Balance.h - Work tiles assigned to blocks ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cost of a work tile (Cost.cpp), the choice between cut and whole tasks (Balance.cpp), the order in
// which they are assigned (Sections.cpp), and the block of each task (Deal.cpp) or its tiles (Shares.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_BALANCE_H
#define ATTN_RT_PLAN_BALANCE_H

#include "plan/Work.h"

#include <cmath>

namespace attn::rt {

/// Blocks of a launch, before those without work are left out.
int launchBlocks(const KernelInfo &kernel, const PlanOptions &options);

/// The most packed rows of a tile in a step of decoding. With more, many rows read a node at once.
inline constexpr int stepRows = 16;

/// Integer costs: a key tile costs `tileCost`, a task `fixed` in addition, and each part of a cut task more
/// by its rows. The planner compares costs, in seconds if all blocks are busy; a finished plan is given its
/// seconds.
struct CostModel {
  int64_t fixed = 0, partial = 0; ///< `partial`: of the work tile with the most rows
  int64_t partialOf(int32_t packedRows) const { return llround(costPerRow * packedRows); }
  double secondsPerCost = 0;
  int64_t shareTiles = 1;    ///< the shortest share
  double mergeSeconds = 0;   ///< of starting the merge
  double secondsPerPart = 0; ///< of merging one part
  /// The least time of a cut list: its blocks begin anywhere in a sequence, so that blocks with the same
  /// tokens read them at different times. If the L2 does not hold them that long, each block reads memory.
  double cutSeconds = 0;

  CostModel(const Manifest &manifest, const KernelInfo &kernel, const Work &work, int blocks,
            const GpuModel &gpu);
  /// The time of tasks that are assigned whole, given the loads of blocks. In a step of decoding, which
  /// memory bounds, blocks that still have work get the bandwidth that others no longer use; otherwise the
  /// largest load counts.
  double dealtSeconds(std::span<const int64_t> loads, std::vector<int64_t> &places) const;
  /// A lower bound of dealtSeconds for a total cost, a largest task and a number of blocks.
  double leastDealtSeconds(int64_t total, int64_t largest, int blocks) const;
  /// The time of a cost in each of `running` readers at once, which are so many blocks each.
  double secondsPerCostOf(double running, double blocks = 1) const;
  /// The time that two events around the launch of a plan should show, given its stats and the rows it
  /// merges.
  double planSeconds(const PlanStats &stats, int64_t mergeRows) const;

private:
  double runOut(std::vector<int64_t> &loads, double blocks) const;

  double bytesPerSecond, l2BytesPerSecond;
  double costPerRow = 0;          ///< per row of a part
  double storeBytes = 0;          ///< of K and V, each read once
  double leastSecondsPerCost = 0; ///< of a block that has the memory to itself
  double aloneSecondsPerCost = 0; ///< of such a block if it reads for long
  double drawnSecondsPerCost = 0; ///< of the memory, per reading block; 0 if memory is not the limit
  int multiprocessors = 1;
  double tileSeconds = 0; ///< of a tile whose bytes have arrived
  double waveRows = 0;    ///< rows that are merged at once
};

/// A range of key tiles of a work tile, done for each of its ordinals.
struct Part {
  int64_t cost;
  int32_t workTile, tileBegin, tileEnd;
};

/// Ordinals of a part that are assigned one after the other.
struct Turn {
  int32_t part, ordinalBegin, ordinalEnd;
};

/// Orders parts for assignment (Sections.cpp).
class SectionOrder {
public:
  /// `parts` are sorted, longest first; `l2Bytes` is the capacity of the L2, 0 if unknown.
  void order(const Work &work, std::span<const Part> parts, int64_t l2Bytes, int blocks,
             std::vector<Turn> &turns);

private:
  /// Work tiles that read the same instances, and the ordinals that fit one section. Small families share a
  /// section.
  struct Family {
    int64_t ordinalBytes = 0; ///< of K and V that the work tile with the most tokens reads
    int32_t ordinals = 0;     ///< their number
    int32_t section = -1;     ///< the first of its sections
    int32_t sections = 1;
    int32_t firstOrdinal(int32_t section) const {
      return static_cast<int32_t>(int64_t{ordinals} * section / sections);
    }
  };
  std::vector<Family> families_;
  std::vector<int32_t> familyOf_; ///< of each work tile
  std::vector<int64_t> tasks_;    ///< of each section
  std::vector<int32_t> next_;     ///< of each section: the index of its next turn

  bool findFamilies(const Work &work);
  int32_t fillSections(std::span<const Part> parts, int64_t sectionBytes);
  /// Appends the turns of parts [begin, end), section by section; the last sections are joined into one with
  /// at least `leastOfLast` tasks.
  void orderLevel(const Work &work, std::span<const Part> parts, size_t begin, size_t end, int32_t sections,
                  int64_t leastOfLast, std::vector<Turn> &turns);
};

/// The number of heads that neighbouring blocks walk in lockstep: all of `heads`, which see the same tokens,
/// or one. `rows` are the packed rows of the kernel's tiles.
int headsInLockstep(int rows, std::span<const Store> stores, int heads, int blocks);

class Balancer {
public:
  void balance(const Manifest &manifest, const Work &work, const PlanOptions &options, int blocks,
               Assignment &out);
  const CostModel &cost() const { return *cost_; }
  /// The loads of blocks, in cost. Code that extends tasks adds to them, then calls sumLoads.
  std::vector<int64_t> &loads() { return loads_; }
  void sumLoads(Assignment &out) const;

private:
  std::optional<CostModel> cost_;
  std::vector<Part> parts_, sorted_, cutParts_;
  SectionOrder sections_;
  std::vector<Turn> turns_;
  std::vector<int32_t> blockOf_, nextPiece_;                    ///< blockOf_: like turns_, ordinal by ordinal
  std::vector<uint64_t> tournament_, ordered_, given_, merged_; ///< loads with their blocks (Deal.cpp)
  std::vector<int64_t> loads_, placeLoads_;                     ///< placeLoads_: of multiprocessors
  int blocks_ = 1;
  int rows_ = 0;     ///< of a tile
  int lockstep_ = 1; ///< neighbouring blocks that walk the same tokens in lockstep, each for another head
  /// Tasks that no share cuts, and the short tasks with which each share begins (Shares.cpp).
  struct ShortTask {
    int32_t workTile, ordinal;
    int64_t cost;
  };
  std::vector<ShortTask> short_;
  std::vector<int32_t> shortBegin_; ///< [shares + 1]; empty: no tasks are set apart
  std::vector<int64_t> shortCost_;  ///< of each share
  int64_t longest_ = 0;             ///< cost of the longest short task

  int64_t taskCost(const WorkTile &workTile) const;
  void listWhole(const Work &work);
  void listChunks(const Work &work, int64_t chunk, int keys);
  void chooseFolds(const Work &work, const PlanOptions &options, const KernelInfo &kernel, int64_t chunk);
  int64_t listRounds(const Work &work, int64_t largest);
  void sortParts();
  void dealByTournament();
  void dealByQueues(size_t tasks);
  int64_t deal(const Work &work, int64_t l2Bytes);
  void emitDealt(const Work &work, Assignment &out);
  void chooseShares(const Work &work, int64_t l2Bytes, Assignment &out);
  template <typename Sink>
  int64_t cutList(const Work &work, int64_t share, int shares, int64_t leastPart, Sink sink) const;
  void spreadShort(const Work &work, int64_t total, int shares);
  int64_t smallestShare(const Work &work, int64_t total, int shares) const;
  void cut(const Work &work, int64_t total, int shares, Assignment &out);
  void fill(const Work &work, int64_t share, int shares, int64_t leastPart, Assignment &out);
};

} // namespace attn::rt

#endif
