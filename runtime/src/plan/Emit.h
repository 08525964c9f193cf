//===- Emit.h - Pieces become the arrays of a plan --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes a whole plan (Emit.cpp), or updates one that has only grown (Extend.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_EMIT_H
#define ATTN_RT_PLAN_EMIT_H

#include "plan/Balance.h"
#include "plan/WorkTiles.h"

namespace attn::rt {

/// Appends the tokens of key tiles [tileBegin, tileEnd) of a work tile's segments, as segments of their own.
void cutSegments(std::span<const PlanSegment> segments, int32_t tileBegin, int32_t tileEnd, int keys,
                 std::vector<PlanSegment> &out);

/// Turns pieces into the plan's arrays.
class Emitter {
public:
  void emit(const Manifest &manifest, const Batch &batch, const Work &work, const Assignment &assignment,
            Plan &plan);
  /// Packed rows of all tasks, and segments that they read, of the last plan.
  int64_t packedRows() const { return packedRows_; }
  int64_t segmentReads() const { return segmentReads_; }

private:
  std::vector<PlanTask> partTasks_; ///< a task of each part, for any ordinal
  int64_t packedRows_ = 0, segmentReads_ = 0;
  struct MergeList {
    int32_t size, next; ///< its entries, and the index of the next one
  };
  std::vector<MergeList> lists_;
  std::vector<int32_t> order_; ///< of tasks in merge lists, if it differs from the plan's order
  static void placeTotals(const Manifest &manifest, Plan &plan);
  void emitMerges(const Manifest &manifest, const Batch &batch, bool byInstance, Plan &plan);
};

/// Keeps a plan's tasks and changes what they read, if a batch has grown at the ends of its instances.
class Extender {
public:
  /// Remembers a full plan and its batch, with which the next batch is compared.
  void remember(const Manifest &manifest, const Batch &batch, const Assignment &assignment);
  /// Extends the plan. Returns false if a new plan is needed; `work` and the plan's segments are then
  /// invalid.
  bool extend(const Manifest &manifest, const Batch &batch, const PlanOptions &options,
              const PlanCapacity &capacity, WorkTileBuilder &builder, Work &work, Balancer &balancer,
              Assignment &assignment, Plan &plan);
  /// Whether the last call changed more of the plan than its segments.
  bool moved() const { return moved_; }
  /// Restores the segment indices of tasks that the last call changed.
  void moveBack(Plan &plan);

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
  std::vector<int32_t> workTilePieces_,
      pieces_;                         ///< CSR: the pieces of each work tile, which are the plan's tasks
  std::vector<int32_t> blockOf_;       ///< of each piece
  std::vector<int32_t> wholeSegments_; ///< index in the plan of the segments of an uncut work tile, or -1
  std::vector<PlanSegment> segments_, cut_;
  struct Moved {
    size_t task;
    int32_t segmentBegin, segmentEnd;
  };
  std::vector<Moved> movedFrom_;

  bool hasOnlyGrown(const Batch &batch) const;
  void index(const Work &work, const Assignment &assignment, const Plan &plan);
  void moveEnds(size_t index, int32_t before, int32_t now, Assignment &assignment) const;
  bool extendWorkTile(size_t index, const WorkTile &before, const WorkTile &now, int keys, Work &work,
                      Assignment &assignment, std::vector<int64_t> &loads, Plan &plan);
  bool moveWorkTile(size_t index, const WorkTile &before, WorkTile &now, int64_t room, Work &work,
                    Assignment &assignment, std::vector<int64_t> &loads, Plan &plan);
  void count(std::span<const PlanSegment> segments, int64_t times, PlanStats &stats) const;
};

} // namespace attn::rt

#endif
