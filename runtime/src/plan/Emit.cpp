//===- Emit.cpp - Work becomes the arrays of a plan -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/Emit.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace attn::rt {

void cutSegments(std::span<const PlanSegment> segments, int32_t tileBegin, int32_t tileEnd, int keys,
                 std::vector<PlanSegment> &out) {
  int64_t first = 0; // tile number of the segment's first tile
  for (const PlanSegment &whole : segments) {
    const RangeOf<int64_t> tokens =
        tokensOfTiles(tokensOf(whole), first, int64_t{tileBegin}, int64_t{tileEnd}, keys);
    if (!tokens.isEmpty()) {
      const RangeOf<int64_t> full = fullWithin(tokens, {whole.fullBegin, whole.fullEnd});
      PlanSegment &segment = out.emplace_back(whole);
      segment.kvBegin = static_cast<int32_t>(tokens.begin);
      segment.kvEnd = static_cast<int32_t>(tokens.end);
      segment.fullBegin = static_cast<int32_t>(full.begin);
      segment.fullEnd = static_cast<int32_t>(full.end);
    }
    if (&whole != &segments.back()) // divisions are slow
      first += tilesOf(tokensOf(whole), keys);
  }
}

namespace {

/// Whether a task leaves parts to merge.
bool isMerged(const PlanTask &task) { return task.partial >= 0 && (task.flags & taskFolds) == 0; }

/// The row of a packed row, and its index within the row. Neighbouring tasks nearly always hold the same
/// rows, so that one division, which would dominate the time, serves many.
struct RowOfPacked {
  explicit RowOfPacked(int32_t group) : group(group) {}
  int32_t group, packed = 0, row = 0, place = 0;

  const RowOfPacked &find(int32_t wanted) {
    if (wanted != packed) {
      packed = wanted;
      row = rowOf(packed, group);
      place = packed - row * group;
    }
    return *this;
  }
};

} // namespace

/// Lists, for every (row, head) with partials, these in the order of tasks in the plan, or of instances and
/// tokens. If tasks hold whole groups, as they nearly always do, the heads of a group have equal lists and
/// count as one: `width` outputs.
void Emitter::emitMerges(const Manifest &manifest, const Batch &batch, bool byInstance, Plan &plan) {
  const int32_t group = manifest.groupSize(), qHeads = manifest.qHeads;
  RowOfPacked at(group), end(group);
  const bool whole = std::all_of(plan.tasks.begin(), plan.tasks.end(), [&](const PlanTask &task) {
    return !isMerged(task) || (at.find(task.packedBegin).place == 0 && end.find(task.packedCount).place == 0);
  });
  const int32_t width = whole ? group : 1;
  order_.clear();
  if (byInstance) { // a part has one segment, or none: the sink's, which goes last
    order_.resize(plan.tasks.size());
    std::iota(order_.begin(), order_.end(), 0);
    const auto key = [&](int32_t t) {
      const PlanTask &task = plan.tasks[static_cast<size_t>(t)];
      if (task.segmentBegin == task.segmentEnd)
        return std::tuple(std::numeric_limits<int32_t>::max(), 0, 0);
      const PlanSegment &segment = plan.segments[static_cast<size_t>(task.segmentBegin)];
      return std::tuple(segment.operand, segment.instance, segment.kvBegin);
    };
    std::sort(order_.begin(), order_.end(),
              [&](int32_t a, int32_t b) { return std::pair(key(a), a) < std::pair(key(b), b); });
  }
  const auto forEach = [&](auto &&visit) {
    for (size_t t = 0; t < plan.tasks.size(); ++t) {
      const PlanTask &task = plan.tasks[byInstance ? static_cast<size_t>(order_[t]) : t];
      if (!isMerged(task))
        continue;
      at.find(task.packedBegin);
      int32_t member = at.place, output = outputOf(at.row, task.ordinal, member, qHeads, group);
      if (whole) {
        int32_t run = outputOf(at.row, task.ordinal, 0, manifest.kvHeads, 1);
        for (int32_t r = 0; r < task.packedCount; r += group, run += manifest.kvHeads)
          visit(static_cast<size_t>(run), task.partial + r);
        continue;
      }
      for (int32_t r = 0; r < task.packedCount; ++r) {
        visit(static_cast<size_t>(output), task.partial + r);
        ++output;
        if (++member == group) {
          member = 0;
          output += qHeads - group;
        }
      }
    }
  };
  lists_.assign(static_cast<size_t>(batch.rows * qHeads / width), {0, 0});
  forEach([&](size_t list, int32_t) { ++lists_[list].size; });
  plan.mergeRows.resize(lists_.size() * static_cast<size_t>(width));
  plan.mergeStart.resize(plan.mergeRows.size() + 1);
  int32_t total = 0;
  size_t rows = 0;
  for (size_t list = 0; list < lists_.size(); ++list) {
    const int32_t size = lists_[list].size;
    if (size == 0)
      continue;
    lists_[list].next = total;
    for (int32_t i = 0; i < width; ++i, ++rows, total += size) {
      plan.mergeRows[rows] = static_cast<int32_t>(list) * width + i;
      plan.mergeStart[rows] = total;
    }
  }
  plan.mergeStart[rows] = total;
  plan.mergeRows.resize(rows);
  plan.mergeStart.resize(rows + 1);
  plan.mergePartials.resize(static_cast<size_t>(total));
  forEach([&](size_t list, int32_t partial) {
    int32_t *next = plan.mergePartials.data() + lists_[list].next++;
    for (int32_t i = 0; i < width; ++i, next += lists_[list].size)
      *next = partial + i;
  });
}

namespace {

/// The number of segments of the first operand.
int32_t firstSegments(std::span<const PlanSegment> segments) {
  return static_cast<int32_t>(std::count_if(segments.begin(), segments.end(),
                                            [](const PlanSegment &segment) { return segment.operand == 0; }));
}

} // namespace

/// Gives each block memory for the totals of a tile, after the rows to merge: its tasks follow each other.
void Emitter::placeTotals(const Manifest &manifest, Plan &plan) {
  const int64_t tileRows = manifest.kernels[static_cast<size_t>(plan.kernel)].rows, first = plan.partialRows;
  for (size_t block = 0; block + 1 < plan.blockTasks.size(); ++block)
    for (int32_t t = plan.blockTasks[block]; t < plan.blockTasks[block + 1]; ++t)
      if (PlanTask &task = plan.tasks[static_cast<size_t>(t)]; task.flags & taskFolds) {
        task.partial = static_cast<int32_t>(first + static_cast<int64_t>(block) * tileRows);
        plan.partialRows = std::max(plan.partialRows, task.partial + tileRows);
      }
}

void Emitter::emit(const Manifest &manifest, const Batch &batch, const Work &work,
                   const Assignment &assignment, Plan &plan) {
  const int keys = manifest.kernels[static_cast<size_t>(work.kernel)].keys;
  plan.kernel = work.kernel;
  plan.blockTasks = assignment.blockTasks;
  plan.segments.clear();
  plan.mergeStart.clear();
  plan.mergeRows.clear();
  plan.mergePartials.clear();
  plan.slots = work.slots;
  plan.bits = work.bits;
  const bool returnsFirst = manifest.returnsFirst(); // hoisted: it compares names
  const bool folds = manifest.kernels[static_cast<size_t>(work.kernel)].folds;
  // The records of parts for any ordinal, made where the first piece of each is: segments are in the order of
  // tasks. `partial` is 0 where results are partial.
  partTasks_.assign(assignment.parts.size(), PlanTask{.segmentBegin = -1});
  const auto recordOf = [&](const PieceTiles &part) {
    const WorkTile &workTile = work.workTiles[static_cast<size_t>(part.workTile)];
    PlanTask task{.packedBegin = workTile.packedBegin,
                  .packedCount = workTile.packedCount,
                  .segmentBegin = static_cast<int32_t>(plan.segments.size()),
                  .partial = workTile.partial || !part.whole ? 0 : -1,
                  .headClass = workTile.ordinals.headClass};
    if (part.whole)
      for (const PlanSegment &segment : work.segmentsOf(workTile))
        plan.segments.push_back(segment);
    else
      cutSegments(work.segmentsOf(workTile), part.tileBegin, part.tileEnd, keys, plan.segments);
    task.segmentEnd = static_cast<int32_t>(plan.segments.size());
    if (manifest.sinkLogits && workTile.sink &&
        (work.sinkLast ? part.whole || part.tileBegin == workTile.tiles : part.tileBegin == 0))
      task.flags |= taskHasSink;
    if (folds && task.partial < 0 && task.segmentEnd - task.segmentBegin > 1)
      task.flags |= taskFolds;
    if (workTile.follows)
      task.flags |= taskRowsFollow;
    if (returnsFirst)
      task.flags |= firstSegments(work.segmentsOf(workTile)) << taskFirstShift;
    return task;
  };
  plan.tasks.resize(assignment.pieces.size()); // each is written below
  PlanTask *task = plan.tasks.data(), *const records = partTasks_.data();
  int64_t packedRows = 0, segmentReads = 0, partialRows = 0;
  for (const Piece &piece : assignment.pieces) {
    PlanTask &record = records[piece.part];
    if (record.segmentBegin < 0)
      record = recordOf(assignment.parts[static_cast<size_t>(piece.part)]);
    *task = record;
    task->ordinal = piece.ordinal;
    packedRows += record.packedCount;
    segmentReads += record.segmentEnd - record.segmentBegin;
    if (record.partial == 0) {
      task->partial = static_cast<int32_t>(partialRows);
      partialRows += record.packedCount;
    }
    ++task;
  }
  plan.partialRows = partialRows;
  packedRows_ = packedRows;
  segmentReads_ = segmentReads;
  if (folds)
    placeTotals(manifest, plan);
  if (partialRows > 0)
    emitMerges(manifest, batch, work.fixedSplit, plan);
  else
    plan.mergeStart.push_back(0);
}

} // namespace attn::rt
