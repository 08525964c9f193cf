//===- WorkTiles.h - From a batch to work tiles ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows that see the same instances are a group (Groups.cpp). Its rows are cut into tiles, and each tile with
// the segments that its rows see is a work tile, a work tile (WorkTiles.cpp). Tokens that few rows see can be
// in a list (Lists.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_UNITS_H
#define ATTN_RT_PLAN_UNITS_H

#include "plan/Work.h"

namespace attn::rt {

class WorkTileBuilder {
public:
  /// Fills `work`; reads `ends` from the batch or the manifest.
  void build(const Manifest &manifest, const Batch &batch, const PlanOptions &options, Work &work);

  /// Computes the segments of a work tile of the last build for this batch, which differs only in lengths and
  /// positions. `workTile` gets the number of tiles.
  void segmentsOf(const Batch &batch, const Work &work, WorkTile &workTile,
                  std::vector<PlanSegment> &segments);

private:
  /// The positions of a tile's rows, and whether each follows the one before.
  struct RowPositions {
    int32_t least, greatest;
    bool follow = true;
  };
  RowPositions positionsOf(int32_t rowBegin, int32_t rowEnd) const;
  bool areCausal(std::span<const Seen> seen) const;

  struct Group {
    int32_t rowBegin, rowEnd;
    int32_t leastPosition, greatestPosition; ///< of its rows
    int32_t seenBegin = 0, seenEnd = 0;      ///< into seen_: the instances read for this group alone
    int32_t workTiles = 0;                   ///< shared work tiles that cover it
  };
  std::vector<uint8_t> isBoundary_; ///< by row
  std::vector<int32_t> boundaries_;
  std::vector<Group> groups_;
  std::vector<int32_t> groupOfRow_;
  std::vector<Seen> seen_, shared_;
  int32_t spreadClass_ = -1; ///< the class of seen_ and shared_
  bool allNestedShared_ = false;
  std::vector<Seen> nested_; ///< instances that several groups see
  struct Listed {
    int32_t slot;
    std::vector<int32_t> rows; ///< counted from the tile's first row
  };
  std::vector<Listed> list_;
  std::vector<std::vector<Visibility>> visibilities_; ///< what each class sees of each operand
  OrdinalRange ordinals_{};                           ///< the current heads
  /// An operand as the current heads see it.
  struct Shown {
    const OperandBatch *batch;
    const Visibility *visibility;
    int32_t place;        ///< index of the first head in the operand's store
    int32_t firstOrdinal; ///< of the class whose heads the operand holds; 0 if it holds all heads
    bool isSeen, isCausal;
  };
  std::vector<Shown> shown_; ///< by operand
  IntervalList possible_, certain_;
  const Manifest *manifest_ = nullptr;
  const Batch *batch_ = nullptr;
  Strategy strategy_ = Strategy::Flatten;
  bool fixedSplit_ = false;
  std::span<const int32_t> ends_;
  int64_t rangeTokens_ = 0; ///< in segments of the current heads
  int64_t group_ = 1;       ///< query heads of a KV head
  bool returnsFirst_ = false;

  void findGroups();
  int chooseKernel(std::span<const OrdinalRange> ranges);
  int64_t longestInstance() const;
  void setHeads(const OrdinalRange &ordinals);
  const Shown &shown(int32_t operand) const { return shown_[static_cast<size_t>(operand)]; }
  bool sees(size_t operand) const { return shown_[operand].isSeen; }
  const Visibility &visibilityOf(int32_t operand) const { return *shown(operand).visibility; }
  const Argument &argumentOf(int32_t operand) const {
    return manifest_->argumentOf(manifest_->operands[static_cast<size_t>(operand)]);
  }
  /// The index of the operand's list of tokens of an instance, for the current heads.
  size_t listOf(const Seen &seen) const {
    return shown(seen.operand).batch->listOf(static_cast<size_t>(seen.instance), shown(seen.operand).place);
  }
  int32_t lengthOf(const Seen &seen) const { return shown(seen.operand).batch->lengths[listOf(seen)]; }
  bool sharingDependsOnLengths() const {
    return fixedSplit_ || (strategy_ == Strategy::Flatten && !nested_.empty());
  }
  bool isShared(const Seen &seen, int64_t tileRows);
  bool isSeenAlike(const Seen &seen);
  bool worthSharing(const Seen &seen, int64_t tileRows);
  void spreadInstances(int64_t tileRows);
  void addRange(const OrdinalRange &ordinals, Work &work);
  bool listable(const Group &group) const;
  bool addToList(const Group &group, int32_t firstRow, const KernelInfo &kernel);
  size_t addListed(const OrdinalRange &ordinals, size_t g, Work &work);
  void addWorkTiles(const OrdinalRange &ordinals, int64_t rowBegin, int64_t rowEnd,
                    std::span<const Seen> seen, bool partial, bool sink, Work &work);
  void addSegment(const PlanSegment &whole, const KernelInfo &kernel, WorkTile &workTile,
                  std::vector<PlanSegment> &segments);
  void addSegments(const Seen &seen, int64_t qMin, int64_t qMax, const KernelInfo &kernel, WorkTile &workTile,
                   std::vector<PlanSegment> &segments);
};

} // namespace attn::rt

#endif
