//===- Emit.h - Pieces become the arrays of a plan --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A whole plan (Emit.cpp), or one that has only grown (Extend.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_EMIT_H
#define ATTN_RT_PLAN_EMIT_H

#include "plan/Balance.h"
#include "plan/WorkTiles.h"

namespace attn::rt {

/// The tokens of key tiles [tileBegin, tileEnd) of a work tile's segments, as segments of their own.
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
  /// False where another plan is due; `work` is then no longer of use, nor what the plan has of segments.
  bool extend(const Manifest &manifest, const Batch &batch, const PlanOptions &options,
              const PlanCapacity &capacity, WorkTileBuilder &builder, Work &work, Balancer &balancer,
              Assignment &assignment, Plan &plan);
  /// Did the last one change more of the plan than its segments?
  bool moved() const { return moved_; }
  /// The last one's tasks look for their segments where they did before it.
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
  std::vector<int32_t> wholeSegments_; ///< where the plan has those of a work tile that is not cut, or -1
  std::vector<PlanSegment> segments_, cut_;
  struct Moved {
    size_t task;
    int32_t segmentBegin, segmentEnd;
  };
  std::vector<Moved> movedFrom_;

  bool hasOnlyGrown(const Batch &batch) const;
  void index(const Work &work, const Assignment &assignment, const Plan &plan);
  bool extendWorkTile(size_t index, const WorkTile &before, const WorkTile &now, int keys, Work &work,
                      Assignment &assignment, std::vector<int64_t> &loads, Plan &plan);
  bool moveWorkTile(size_t index, const WorkTile &before, WorkTile &now, int64_t room, Work &work,
                    Assignment &assignment, std::vector<int64_t> &loads, Plan &plan);
  void count(std::span<const PlanSegment> segments, int64_t times, PlanStats &stats) const;
};

} // namespace attn::rt

#endif
