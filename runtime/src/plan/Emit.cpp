#include "plan/Work.h"

#include <algorithm>

namespace attn::rt {

/// The tokens of key tiles [tileBegin, tileEnd) of a unit, as segments of their own.
void Emitter::emitCutSegments(const Work &work, const Unit &unit, const Piece &piece, int keys, Plan &plan) {
  int32_t first = 0; // tile number of the segment's first tile
  for (int32_t s = unit.segmentBegin; s < unit.segmentEnd; ++s) {
    PlanSegment segment = work.segments[static_cast<size_t>(s)];
    const int32_t tiles = (segment.kvEnd - segment.kvBegin + keys - 1) / keys;
    const int32_t begin = std::max(piece.tileBegin - first, 0), end = std::min(piece.tileEnd - first, tiles);
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
    plan.segments.push_back(segment);
  }
}

/// For every (row, head) that has partials, the list of them in the order in which tasks appear in the plan.
void Emitter::emitMerges(const Manifest &manifest, const Batch &batch, Plan &plan) {
  const int32_t group = manifest.groupSize(), qHeads = manifest.qHeads;
  const auto forEach = [&](auto &&visit) {
    for (const PlanTask &task : plan.tasks) {
      if (task.partial < 0)
        continue;
      // Member of the group and row of each packed row, without a division for each.
      int32_t member = task.packedBegin % group;
      int32_t output = task.packedBegin / group * qHeads + task.slot * group + member;
      for (int32_t r = 0; r < task.packedCount; ++r) {
        visit(output, task.partial + r);
        ++output;
        if (++member == group) {
          member = 0;
          output += qHeads - group;
        }
      }
    }
  };
  counts_.assign(static_cast<size_t>(batch.rows * qHeads), 0);
  forEach([&](int32_t output, int32_t) { ++counts_[static_cast<size_t>(output)]; });
  int32_t total = 0;
  for (size_t output = 0; output < counts_.size(); ++output) {
    const int32_t count = counts_[output];
    if (count == 0)
      continue;
    plan.mergeStart.push_back(total);
    plan.mergeRows.push_back(static_cast<int32_t>(output));
    counts_[output] = total;
    total += count;
  }
  plan.mergeStart.push_back(total);
  plan.mergePartials.resize(static_cast<size_t>(total));
  forEach([&](int32_t output, int32_t partial) {
    plan.mergePartials[static_cast<size_t>(counts_[static_cast<size_t>(output)]++)] = partial;
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
        emitCutSegments(work, unit, piece, keys, plan);
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
