#include "plan/Work.h"

#include <algorithm>

namespace attn::rt {

void cutSegments(std::span<const PlanSegment> segments, int32_t tileBegin, int32_t tileEnd, int keys,
                 std::vector<PlanSegment> &out) {
  int32_t first = 0; // tile number of the segment's first tile
  for (PlanSegment segment : segments) {
    const int32_t tiles = (segment.kvEnd - segment.kvBegin + keys - 1) / keys;
    const int32_t begin = std::max(tileBegin - first, 0), end = std::min(tileEnd - first, tiles);
    first += tiles;
    if (begin >= end)
      continue;
    const int32_t origin = segment.kvBegin;
    segment.kvBegin = origin + begin * keys;
    if (end < tiles)
      segment.kvEnd = origin + end * keys;
    segment.fullBegin = std::max(segment.fullBegin, segment.kvBegin);
    segment.fullEnd = std::min(segment.fullEnd, segment.kvEnd);
    if (segment.fullBegin >= segment.fullEnd)
      segment.fullBegin = segment.fullEnd = segment.kvBegin;
    out.push_back(segment);
  }
}

/// For every (row, head) that has partials, the list of them in the order in which tasks appear in the plan.
void Emitter::emitMerges(const Manifest &manifest, const Batch &batch, Plan &plan) {
  const int32_t group = manifest.groupSize(), qHeads = manifest.qHeads;
  // Runs of packed rows that are neighbours among the outputs: the members of a group.
  const auto forEachRun = [&](auto &&visit) {
    for (const PlanTask &task : plan.tasks) {
      if (task.partial < 0)
        continue;
      int32_t member = task.packedBegin % group;
      int32_t output = task.packedBegin / group * qHeads + task.slot * group + member;
      for (int32_t r = 0; r < task.packedCount;) {
        const int32_t count = std::min(group - member, task.packedCount - r);
        visit(output, task.partial + r, count);
        r += count;
        output += qHeads - member;
        member = 0;
      }
    }
  };
  counts_.assign(static_cast<size_t>(batch.rows * qHeads), 0);
  forEachRun([&](int32_t output, int32_t, int32_t count) {
    int32_t *counts = counts_.data() + output;
    for (int32_t i = 0; i < count; ++i)
      ++counts[i];
  });
  plan.mergeRows.resize(counts_.size());
  plan.mergeStart.resize(counts_.size() + 1);
  int32_t total = 0;
  size_t rows = 0;
  for (size_t output = 0; output < counts_.size(); ++output) {
    const int32_t count = counts_[output];
    plan.mergeRows[rows] = static_cast<int32_t>(output);
    plan.mergeStart[rows] = total;
    rows += count > 0;
    counts_[output] = total;
    total += count;
  }
  plan.mergeStart[rows] = total;
  plan.mergeRows.resize(rows);
  plan.mergeStart.resize(rows + 1);
  plan.mergePartials.resize(static_cast<size_t>(total));
  forEachRun([&](int32_t output, int32_t partial, int32_t count) {
    int32_t *next = counts_.data() + output;
    for (int32_t i = 0; i < count; ++i)
      plan.mergePartials[static_cast<size_t>(next[i]++)] = partial + i;
  });
}

void Emitter::emit(const Manifest &manifest, const Batch &batch, const Work &work,
                   const Assignment &assignment, Plan &plan) {
  const int keys = manifest.kernels[static_cast<size_t>(work.kernel)].keys;
  plan.kernel = work.kernel;
  plan.blockTasks = assignment.blockTasks;
  plan.tasks.clear();
  plan.segments.clear();
  plan.mergeStart.clear();
  plan.mergeRows.clear();
  plan.mergePartials.clear();
  plan.partialRows = 0;
  partTasks_.assign(static_cast<size_t>(assignment.parts), -1);
  plan.tasks.reserve(assignment.pieces.size());
  for (const Piece &piece : assignment.pieces) {
    const Unit &unit = work.units[static_cast<size_t>(piece.unit)];
    PlanTask task{unit.packedBegin, unit.packedCount, piece.slot, 0, 0, -1, 0, unit.slots.headClass};
    // All slots that do the same part read the same segments.
    if (int32_t *known = piece.part < 0 ? nullptr : &partTasks_[static_cast<size_t>(piece.part)];
        known && *known >= 0) {
      task.segmentBegin = plan.tasks[static_cast<size_t>(*known)].segmentBegin;
      task.segmentEnd = plan.tasks[static_cast<size_t>(*known)].segmentEnd;
    } else {
      if (known)
        *known = static_cast<int32_t>(plan.tasks.size());
      task.segmentBegin = static_cast<int32_t>(plan.segments.size());
      if (piece.whole)
        plan.segments.insert(plan.segments.end(), work.segments.begin() + unit.segmentBegin,
                             work.segments.begin() + unit.segmentEnd);
      else
        cutSegments(work.segmentsOf(unit), piece.tileBegin, piece.tileEnd, keys, plan.segments);
      task.segmentEnd = static_cast<int32_t>(plan.segments.size());
    }
    if (unit.partial || !piece.whole) {
      task.partial = static_cast<int32_t>(plan.partialRows);
      plan.partialRows += unit.packedCount;
    }
    if (manifest.sinkLogits && unit.sink && piece.tileBegin == 0)
      task.flags |= taskHasSink;
    plan.tasks.push_back(task);
  }
  if (plan.partialRows > 0)
    emitMerges(manifest, batch, plan);
  else
    plan.mergeStart.push_back(0);
}

} // namespace attn::rt
