//===- Work.h - The steps of planning ---------------------------*- C++ -*-===//
//
// batch -> units (Units.cpp, Lists.cpp) -> pieces in blocks (Balance.cpp) ->
// arrays of the plan (Emit.cpp). Every step reuses the memory of the last call. Where a batch
// has only grown, all of that is kept and extended (Extend.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_WORK_H
#define ATTN_RT_PLAN_WORK_H

#include "attn_rt/Plan.h"
#include "attn_rt/Visibility.h"

#include <cmath>

namespace attn::rt {

/// An instance that rows read.
struct Seen {
  int32_t operand, instance;
};

/// A tile of packed rows and the segments its rows see; done once for each slot.
struct Unit {
  SlotRange slots;
  int32_t packedBegin, packedCount;
  int32_t rowBegin, rowEnd;         ///< that the packed rows are of
  int32_t seenBegin, seenEnd;       ///< into Work::seen
  int32_t segmentBegin, segmentEnd; ///< into Work::segments
  int32_t tiles;                    ///< key tiles of all segments
  bool partial;                     ///< other units hold results for some of its rows
  bool sink;                        ///< adds the sink logit
  bool follows;                     ///< taskRowsFollow
};

/// Bytes that a token of one KV head has.
inline int64_t tokenBytes(const Argument &argument) { return storeOf(argument).tokenBytes(); }

/// Where tasks are cut whatever the blocks: at multiples of so many tokens of an instance. 0: they are not.
inline int64_t chunkOf(const PlanOptions &options) {
  return options.fixedSplit > 0                      ? options.fixedSplit
         : options.strategy == Strategy::ByNodeChunk ? chunkTokens
                                                     : 0;
}

struct Work {
  int kernel = 0;
  bool fixedSplit = false; ///< parts never span two segments, and are merged in the order of instances
  std::vector<Unit> units;
  std::vector<PlanSegment> segments;
  std::vector<Seen> seen;
  std::vector<int32_t> slots; ///< as in Plan
  std::vector<uint32_t> bits;
  bool shared = false;  ///< some units are partial whether cut or not
  bool omitted = false; ///< a unit was left out, as it had no keys
  int32_t tasks = 0;
  int64_t tiles = 0;       ///< of all tasks
  int64_t tokensOnce = 0;  ///< of all KV heads, each once where several units read it
  int32_t largestUnit = 0; ///< packed rows

  std::span<const PlanSegment> segmentsOf(const Unit &unit) const {
    return {segments.data() + unit.segmentBegin, static_cast<size_t>(unit.segmentEnd - unit.segmentBegin)};
  }
};

/// Key tiles [tileBegin, tileEnd) of a task.
struct Piece {
  int32_t unit, slot;
  int32_t tileBegin, tileEnd;
  int32_t part; ///< pieces of one part differ in nothing but the slot; -1: the only one of its part
  bool whole;
};

struct Assignment {
  std::vector<Piece> pieces; ///< in the order of blocks
  int32_t parts = 0;
  std::vector<int32_t> blockTasks; ///< [blocks + 1]
  int64_t cuts = 0;
  int usedBlocks = 0;
  int64_t maxCost = 0, totalCost = 0;
};

/// Whether a kernel reads lists, what one holds at most, and the rows that `bits` has for each word.
bool takesLists(const KernelInfo &kernel);
int64_t listTokensBound(const KernelInfo &kernel);
int64_t listBitsBound(const KernelInfo &kernel, int group);
int64_t listRows(const KernelInfo &kernel, int group);

class UnitBuilder {
public:
  /// Fills `work`; reads `ends` from the batch or the manifest.
  void build(const Manifest &manifest, const Batch &batch, const PlanOptions &options, Work &work);

  /// The segments of a unit of the last build, as this batch has it, which differs in lengths and positions
  /// only. `unit` gets the number of tiles.
  void segmentsOf(const Batch &batch, const Work &work, Unit &unit, std::vector<PlanSegment> &segments);

private:
  bool rowsFollow(const Unit &unit, std::span<const Seen> seen) const;

  struct Group {
    int32_t rowBegin, rowEnd;
    int32_t leastPosition, greatestPosition; ///< of its rows
    int32_t seenBegin = 0, seenEnd = 0;      ///< into seen_: the instances read for this group alone
    int32_t units = 0;                       ///< shared units that cover it
  };
  std::vector<uint8_t> isBoundary_; ///< by row
  std::vector<int32_t> boundaries_;
  std::vector<Group> groups_;
  std::vector<int32_t> groupOfRow_;
  std::vector<Seen> seen_, shared_;
  int32_t spreadClass_ = -1; ///< the class of which these are
  bool allNestedShared_ = false;
  std::vector<Seen> nested_; ///< instances that several groups see
  struct Listed {
    int32_t slot;
    std::vector<int32_t> rows; ///< counted from the tile's first
  };
  std::vector<Listed> list_;
  std::vector<std::vector<Visibility>> visibilities_; ///< what each class sees of each operand
  SlotRange slots_{};                                 ///< the heads at hand
  IntervalList possible_, certain_;
  const Manifest *manifest_ = nullptr;
  const Batch *batch_ = nullptr;
  Strategy strategy_ = Strategy::Flatten;
  bool fixedSplit_ = false;
  std::span<const int32_t> ends_;
  int64_t rangeTokens_ = 0; ///< in segments of the heads at hand

  void findGroups();
  int chooseKernel(std::span<const SlotRange> ranges);
  int64_t longestInstance() const;
  void setHeads(const SlotRange &slots);
  bool sees(size_t operand) const {
    return manifest_->isSeenBy(operand, static_cast<size_t>(slots_.headClass));
  }
  const Visibility &visibilityOf(int32_t operand) const {
    return visibilities_[static_cast<size_t>(slots_.headClass)][static_cast<size_t>(operand)];
  }
  const Argument &argumentOf(int32_t operand) const {
    return manifest_->argumentOf(manifest_->operands[static_cast<size_t>(operand)]);
  }
  /// The tokens of an instance that the heads at hand have; and which of the operand's lists they are.
  size_t listOf(const Seen &seen) const {
    return batch_->operands[static_cast<size_t>(seen.operand)].listOf(
        static_cast<size_t>(seen.instance), slots_.placeIn(argumentOf(seen.operand)));
  }
  int32_t lengthOf(const Seen &seen) const {
    return batch_->operands[static_cast<size_t>(seen.operand)].lengths[listOf(seen)];
  }
  bool sharingDependsOnLengths() const {
    return fixedSplit_ || (strategy_ == Strategy::Flatten && !nested_.empty());
  }
  bool isShared(const Seen &seen, int64_t tileRows);
  bool isSeenAlike(const Seen &seen);
  bool worthSharing(const Seen &seen, int64_t tileRows);
  void spreadInstances(int64_t tileRows);
  void addRange(const SlotRange &slots, Work &work);
  bool listable(const Group &group) const;
  bool addToList(const Group &group, int32_t firstRow, const KernelInfo &kernel);
  size_t addListed(const SlotRange &slots, size_t g, Work &work);
  void addUnits(const SlotRange &slots, int64_t rowBegin, int64_t rowEnd, std::span<const Seen> seen,
                bool partial, bool sink, Work &work);
  void addSegments(const Seen &seen, int64_t qMin, int64_t qMax, const KernelInfo &kernel, Unit &unit,
                   std::vector<PlanSegment> &segments);
};

/// Blocks of a launch, before those without work are left out.
int launchBlocks(const KernelInfo &kernel, const PlanOptions &options);

/// Integer cost: a key tile costs `tile`, a task `fixed` on top, each part of a cut one more by its rows. The
/// planner compares costs, in seconds where all blocks are busy; of a finished plan the seconds are told.
struct CostModel {
  static constexpr int64_t tile = 16;
  int64_t fixed = 0, partial = 0; ///< `partial`: of the unit with the most rows
  int64_t partialOf(int32_t packedRows) const { return llround(costPerRow * packedRows); }
  double secondsPerCost = 0;
  int64_t shareTiles = 1;    ///< the shortest share
  double mergeSeconds = 0;   ///< of starting the merge,
  double secondsPerPart = 0; ///< and of merging one part

  CostModel(const Manifest &manifest, const KernelInfo &kernel, const Work &work, int blocks,
            const GpuModel &gpu);
  /// What two events around the launch of a plan of these stats, which merges so many rows, should show.
  double planSeconds(const PlanStats &stats, int64_t mergeRows) const;

private:
  double bytesPerSecond, l2BytesPerSecond;
  double costPerRow = 0;          ///< of a part
  double storeBytes = 0;          ///< of K and V, each once
  double leastSecondsPerCost = 0; ///< of a block that has the memory for itself
  double tileSeconds = 0;         ///< of a tile whose bytes are there
  double waveRows = 0;            ///< rows that are merged at once
};

/// Key tiles of a unit, for each of its slots.
struct Part {
  int64_t cost;
  int32_t unit, tileBegin, tileEnd;
};

/// Slots of a part that are dealt one after the other.
struct Turn {
  int32_t part, slotBegin, slotEnd;
};

/// Brings parts into the order in which they are dealt (Sections.cpp).
class SectionOrder {
public:
  /// `parts` are sorted, longest first; `l2Bytes` is what the L2 holds, 0 if nobody knows.
  void order(const Manifest &manifest, const Work &work, std::span<const Part> parts, int64_t l2Bytes,
             int blocks, std::vector<Turn> &turns);

private:
  /// Units that read the same instances, and the slots that fit one section. Families that are small share a
  /// section.
  struct Family {
    int64_t slotBytes = 0;        ///< of K and V that the unit with the most tokens reads
    int32_t units = 0, slots = 0; ///< how many
    int32_t section = -1;         ///< the first of its sections
    int32_t sections = 1;
    int32_t firstSlot(int32_t section) const {
      return static_cast<int32_t>(int64_t{slots} * section / sections);
    }
  };
  std::vector<Family> families_;
  std::vector<int32_t> familyOf_; ///< of each unit
  std::vector<int64_t> tasks_;    ///< of each section
  std::vector<int32_t> next_;     ///< of each section, where its next turn goes

  bool findFamilies(const Manifest &manifest, const Work &work);
  int32_t fillSections(std::span<const Part> parts, int64_t sectionBytes);
};

class Balancer {
public:
  void balance(const Manifest &manifest, const Work &work, const PlanOptions &options, int blocks,
               Assignment &out);
  const CostModel &cost() const { return *cost_; }
  /// Of each block, in cost; whoever extends tasks adds to it, and then asks for the sums again.
  std::vector<int64_t> &loads() { return loads_; }
  void sumLoads(Assignment &out) const;

private:
  std::optional<CostModel> cost_;
  std::vector<Part> parts_, sorted_;
  SectionOrder sections_;
  std::vector<Turn> turns_;
  std::vector<int32_t> blockOf_, nextPiece_; ///< blockOf_: as turns_, slot by slot
  std::vector<uint64_t> tournament_;
  std::vector<int64_t> loads_;
  int blocks_ = 1;

  int64_t taskCost(const Unit &unit) const;
  void listWhole(const Work &work);
  void listChunks(const Work &work, int64_t chunk, int keys);
  void sortParts();
  int64_t deal(const Manifest &manifest, const Work &work, int64_t l2Bytes);
  void emitDealt(const Work &work, Assignment &out);
  void chooseShares(const Manifest &manifest, const Work &work, int64_t l2Bytes, Assignment &out);
  template <typename Sink>
  bool cutList(const Work &work, int64_t share, int shares, int64_t leastPart, Sink sink) const;
  void cut(const Work &work, int64_t total, int shares, Assignment &out);
  void fill(const Work &work, int64_t share, int shares, int64_t leastPart, Assignment &out);
};

/// The tokens of key tiles [tileBegin, tileEnd) of a unit's segments, as segments of their own.
void cutSegments(std::span<const PlanSegment> segments, int32_t tileBegin, int32_t tileEnd, int keys,
                 std::vector<PlanSegment> &out);

/// Turns pieces into the plan's arrays.
class Emitter {
public:
  void emit(const Manifest &manifest, const Batch &batch, const Work &work, const Assignment &assignment,
            Plan &plan);

private:
  std::vector<int32_t> partTasks_; ///< the first task of each part
  struct MergeList {
    int32_t size, next; ///< entries, and where the next one goes
  };
  std::vector<MergeList> lists_;
  std::vector<int32_t> order_; ///< of tasks in merge lists, where it is not that of the plan
  void emitMerges(const Manifest &manifest, const Batch &batch, bool byInstance, Plan &plan);
};

/// Keeps a plan's tasks and changes what they read, where a batch has grown at the ends of its instances.
class Extender {
public:
  /// After a full plan: what the next batch is compared with.
  void remember(const Manifest &manifest, const Batch &batch, const Assignment &assignment);
  /// False where another plan is due; `plan` and `work` are then no longer of use.
  bool extend(const Manifest &manifest, const Batch &batch, const PlanOptions &options,
              const PlanCapacity &capacity, UnitBuilder &builder, Work &work, Balancer &balancer,
              Assignment &assignment, Plan &plan);
  /// Did the last one change more of the plan than its segments?
  bool moved() const { return moved_; }

private:
  Batch last_; ///< without tables
  struct OperandCost {
    int64_t tokenBytes;
    Store store;
  };
  std::vector<OperandCost> operands_;
  int64_t firstTotal_ = 0;
  double firstExcess_ = 0;
  bool indexed_ = false, moved_ = false;
  std::vector<int32_t> unitPieces_, pieces_; ///< CSR: the pieces of each unit, which are the plan's tasks
  std::vector<int32_t> blockOf_;             ///< of each piece
  std::vector<int32_t> wholeSegments_;       ///< where the plan has those of a unit that is not cut, or -1
  std::vector<PlanSegment> segments_, cut_;

  bool hasOnlyGrown(const Batch &batch) const;
  void index(const Work &work, const Assignment &assignment, const Plan &plan);
  bool extendUnit(size_t index, const Unit &before, const Unit &now, int keys, Work &work,
                  Assignment &assignment, std::vector<int64_t> &loads, Plan &plan);
  bool moveUnit(size_t index, const Unit &before, Unit &now, int64_t room, Work &work, Assignment &assignment,
                std::vector<int64_t> &loads, Plan &plan);
  void count(std::span<const PlanSegment> segments, int64_t times, PlanStats &stats) const;
};

} // namespace attn::rt

#endif
