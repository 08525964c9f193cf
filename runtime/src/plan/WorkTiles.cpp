//===- WorkTiles.cpp - Tiles of rows and what they see ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/WorkTiles.h"

#include <algorithm>
#include <numeric>

namespace attn::rt {

int64_t rowsOfTile(const KernelInfo &kernel, int64_t group, bool oneRow) {
  if (!oneRow)
    return kernel.rows;
  return group <= kernel.rows ? group : std::gcd<int64_t>(group, kernel.rows);
}

std::vector<int> kernelsByRows(const Manifest &manifest) {
  const std::span<const int> planned = manifest.plannedKernels();
  std::vector<int> kernels(planned.begin(), planned.end());
  const auto rowsOf = [&](int kernel) { return manifest.kernels[static_cast<size_t>(kernel)].rows; };
  std::sort(kernels.begin(), kernels.end(),
            [&](int a, int b) { return std::pair(rowsOf(a), a) < std::pair(rowsOf(b), b); });
  return kernels;
}

/// In 32 bits: counting tiles divides, which dominates the time of a segment.
static RangeOf<uint32_t> narrow(const Interval &range) {
  return {static_cast<uint32_t>(range.begin), static_cast<uint32_t>(range.end)};
}

void WorkTileBuilder::setHeads(const OrdinalRange &ordinals) {
  ordinals_ = ordinals;
  const auto c = static_cast<size_t>(ordinals.headClass);
  if (visibilities_.size() <= c)
    visibilities_.resize(c + 1);
  if (visibilities_[c].empty())
    for (size_t o = 0; o < manifest_->operands.size(); ++o)
      visibilities_[c].push_back(simplified(manifest_->visibilityOf(o, c)));
  shown_.clear();
  for (size_t o = 0; o < batch_->operands.size(); ++o) {
    const Argument &argument = argumentOf(static_cast<int32_t>(o));
    const Visibility &visibility = visibilities_[c][o];
    shown_.push_back({&batch_->operands[o], &visibility, ordinals.placeIn(argument),
                      argument.headClass >= 0 ? ordinals.classBegin : 0, manifest_->isSeenBy(o, c),
                      visibility.kind == Visibility::Kind::Causal});
  }
}

/// Chooses one kernel for the whole plan: the smallest whose tile holds the packed rows of every group (and
/// of every shared instance), else the largest. A larger tile reads keys less often; a smaller one wastes
/// less on padding. A kernel for short sequences serves them whatever its tile.
int WorkTileBuilder::chooseKernel(std::span<const OrdinalRange> ranges) {
  const std::vector<int> kernels = kernelsByRows(*manifest_);
  if (fixedSplit_ && !manifest_->numerics)
    return kernels.front();
  const int64_t largest = manifest_->kernels[static_cast<size_t>(kernels.back())].rows;
  int64_t rows = 0;
  for (const Group &group : groups_)
    rows = std::max<int64_t>(rows, group.rowEnd - group.rowBegin);
  for (size_t r = 0; r < ranges.size() && !nested_.empty() && strategy_ != Strategy::ByQuery; ++r) {
    if (r > 0 && ranges[r].headClass == ordinals_.headClass && !sharingDependsOnLengths())
      continue;
    setHeads(ranges[r]);
    for (const Seen &seen : nested_) { // the other instances have the rows of a group
      const OperandBatch &operand = batch_->operands[static_cast<size_t>(seen.operand)];
      const auto i = static_cast<size_t>(seen.instance);
      if (sees(static_cast<size_t>(seen.operand)) && isShared(seen, largest))
        rows = std::max<int64_t>(rows, operand.rowLast[i] - operand.rowFirst[i]);
    }
  }
  for (int kernel : kernels) {
    const KernelInfo &info = manifest_->kernels[static_cast<size_t>(kernel)];
    const int64_t most = info.sequencesUpTo > 0 ? info.sequencesUpTo : info.rows;
    if (rows * manifest_->groupSize() <= most && (info.sequencesUpTo == 0 || longestInstance() <= most))
      return kernel;
  }
  return kernels.back();
}

int64_t WorkTileBuilder::longestInstance() const {
  int64_t longest = 0;
  for (const OperandBatch &operand : batch_->operands)
    for (const int32_t length : operand.lengths)
      longest = std::max<int64_t>(longest, length);
  return longest;
}

void WorkTileBuilder::addSegments(const Seen &seen, int64_t qMin, int64_t qMax, const KernelInfo &kernel,
                                  WorkTile &workTile, std::vector<PlanSegment> &segments) {
  const Shown &operand = shown(seen.operand);
  const Visibility &visibility = *operand.visibility;
  const int32_t pos0 = operand.batch->pos0[static_cast<size_t>(seen.instance)];
  const int32_t length = lengthOf(seen);
  if (operand.isCausal) { // nearly always: one interval, from the first token on
    const auto seenBy = [&](int64_t position) -> Interval {
      const auto shown = intervalOf(Visibility::Kind::Causal, IntegerPositions(), position, ends_);
      return tokensOf(shown, int64_t{pos0}, int64_t{length});
    };
    const Interval range = seenBy(qMax);
    if (range.isEmpty())
      return;
    const Interval full = fullOf(range, seenBy(qMin), {});
    addSegment({.operand = seen.operand,
                .instance = seen.instance,
                .kvEnd = static_cast<int32_t>(range.end),
                .fullEnd = static_cast<int32_t>(full.end),
                .pos0 = pos0,
                .firstOrdinal = operand.firstOrdinal},
               kernel, workTile, segments);
    return;
  }
  possiblePositions(visibility, ends_, qMin, qMax, possible_);
  toTokens(possible_, pos0, length);
  const bool oneRow = qMin == qMax;
  if (!oneRow) {
    certainPositions(visibility, ends_, qMin, qMax, certain_);
    toTokens(certain_, pos0, length);
  } else if (kernel.keyAlign > 1) {
    certain_ = possible_;
  }
  const IntervalList &certain = oneRow && kernel.keyAlign == 1 ? possible_ : certain_;
  // Kernels that copy whole boxes need segments that begin with one. The extra tokens in front are masked; if
  // they belong to the segment before, the two become one.
  if (kernel.keyAlign > 1) {
    size_t kept = 0;
    for (Interval range : possible_) {
      range = alignedTo(kernel.keyAlign, range);
      if (kept > 0 && overlaps(possible_[kept - 1], range))
        possible_[kept - 1].end = range.end;
      else
        possible_[kept++] = range;
    }
    possible_.resize(kept);
  }
  for (const Interval &range : possible_) {
    Interval full{range.begin, range.begin};
    for (const Interval &sure : certain)
      full = fullOf(range, sure, full);
    addSegment({.operand = seen.operand,
                .instance = seen.instance,
                .kvBegin = static_cast<int32_t>(range.begin),
                .kvEnd = static_cast<int32_t>(range.end),
                .fullBegin = static_cast<int32_t>(full.begin),
                .fullEnd = static_cast<int32_t>(full.end),
                .pos0 = pos0,
                .firstOrdinal = operand.firstOrdinal},
               kernel, workTile, segments);
  }
}

/// Adds a segment; under a numerics contract one for each of its parts, since tasks fold what their segments
/// give.
void WorkTileBuilder::addSegment(const PlanSegment &whole, const KernelInfo &kernel, WorkTile &workTile,
                                 std::vector<PlanSegment> &segments) {
  rangeTokens_ += whole.kvEnd - whole.kvBegin;
  const auto count = [&](const PlanSegment &segment) {
    const Interval range{segment.kvBegin, segment.kvEnd};
    workTile.tiles += static_cast<int32_t>(tilesOf(narrow(range), static_cast<uint32_t>(kernel.keys)));
  };
  if (!manifest_->numerics) {
    segments.push_back(whole);
    return count(whole);
  }
  const int64_t split = manifest_->numerics->split, origin = chunkOrigin(int64_t{whole.pos0});
  for (int64_t begin = whole.kvBegin; begin < whole.kvEnd;) {
    const int64_t end =
        std::min<int64_t>((chunkOfToken(origin, begin, split) + 1) * split - origin, whole.kvEnd);
    const Interval full = fullWithin(Interval{begin, end}, Interval{whole.fullBegin, whole.fullEnd});
    PlanSegment &part = segments.emplace_back(whole);
    part.kvBegin = static_cast<int32_t>(begin);
    part.kvEnd = static_cast<int32_t>(end);
    part.fullBegin = static_cast<int32_t>(full.begin);
    part.fullEnd = static_cast<int32_t>(full.end);
    count(part);
    begin = end;
  }
}

WorkTileBuilder::RowPositions WorkTileBuilder::positionsOf(int32_t rowBegin, int32_t rowEnd) const {
  const int32_t *position = batch_->qPos.data() + rowBegin, *end = batch_->qPos.data() + rowEnd;
  RowPositions rows{*position, *position};
  for (int32_t before = *position++; position < end; before = *position++) {
    rows.least = std::min(rows.least, *position);
    rows.greatest = std::max(rows.greatest, *position);
    rows.follow &= int64_t{*position} - before == 1;
  }
  return rows;
}

/// If rows follow each other and all that they see is causal, the end of the visible tokens follows the rows:
/// causal masks end at a row's position. The first row, which alone decides `full`, sees least.
bool WorkTileBuilder::areCausal(std::span<const Seen> seen) const {
  return std::all_of(seen.begin(), seen.end(), [&](const Seen &one) { return shown(one.operand).isCausal; });
}

void WorkTileBuilder::addWorkTiles(const OrdinalRange &ordinals, int64_t rowBegin, int64_t rowEnd,
                                   std::span<const Seen> seen, bool partial, bool sink, Work &work) {
  const KernelInfo &kernel = manifest_->kernels[static_cast<size_t>(work.kernel)];
  const int64_t group = group_;
  const auto seenBegin = static_cast<int32_t>(work.seen.size());
  for (const Seen &one : seen)
    work.seen.push_back(one);
  const auto seenEnd = static_cast<int32_t>(work.seen.size());
  const bool causal = areCausal(seen);
  const bool oneRow = fixedSplit_ && std::any_of(seen.begin(), seen.end(), [&](const Seen &one) {
                        return needsOneRow(*manifest_, visibilityOf(one.operand));
                      });
  const int64_t tileRows = rowsOfTile(kernel, group, oneRow);
  for (int64_t packed = rowBegin * group; packed < rowEnd * group; packed += tileRows) {
    const int64_t count = packedInTile(packed, rowEnd, group, tileRows);
    const bool whole = count == (rowEnd - rowBegin) * group; // nearly always true, and divisions are slow
    WorkTile workTile{ordinals,
                      static_cast<int32_t>(packed),
                      static_cast<int32_t>(count),
                      static_cast<int32_t>(whole ? rowBegin : rowOf(packed, group)),
                      static_cast<int32_t>(whole ? rowEnd : rowEndOf(packed, count, group)),
                      seenBegin,
                      seenEnd,
                      static_cast<int32_t>(work.segments.size()),
                      0,
                      0,
                      partial,
                      sink,
                      /*follows=*/false};
    const RowPositions rows = positionsOf(workTile.rowBegin, workTile.rowEnd);
    workTile.follows = causal && rows.follow;
    for (const Seen &one : seen)
      addSegments(one, rows.least, rows.greatest, kernel, workTile, work.segments);
    // The first operand's results exist even if the rows see none of its tokens.
    if (returnsFirst_ && (static_cast<size_t>(workTile.segmentBegin) == work.segments.size() ||
                          work.segments[static_cast<size_t>(workTile.segmentBegin)].operand != 0))
      work.segments.insert(work.segments.begin() + workTile.segmentBegin, PlanSegment{.operand = 0});
    workTile.segmentEnd = static_cast<int32_t>(work.segments.size());
    // Whether a task without keys is in a list must not depend on what other rows share.
    if (fixedSplit_ && partial && !sink && workTile.tiles == 0) {
      work.omitted = true;
      continue;
    }
    work.tasks += ordinals.count();
    work.tiles += int64_t{workTile.tiles} * ordinals.count();
    work.largestWorkTile = std::max(work.largestWorkTile, workTile.packedCount);
    work.workTiles.push_back(workTile);
  }
}

void WorkTileBuilder::segmentsOf(const Batch &batch, const Work &work, WorkTile &workTile,
                                 std::vector<PlanSegment> &segments) {
  batch_ = &batch;
  ends_ = batch.ends.empty() ? manifest_->ends : batch.ends;
  const bool same = !shown_.empty() && shown_.front().batch == batch.operands.data() &&
                    ordinals_.headClass == workTile.ordinals.headClass &&
                    ordinals_.begin == workTile.ordinals.begin;
  if (!same)
    setHeads(workTile.ordinals);
  const RowPositions rows = positionsOf(workTile.rowBegin, workTile.rowEnd);
  const auto seen = std::span(work.seen).subspan(static_cast<size_t>(workTile.seenBegin),
                                                 static_cast<size_t>(workTile.seenEnd - workTile.seenBegin));
  segments.clear();
  workTile.tiles = 0;
  workTile.follows = rows.follow && areCausal(seen);
  for (const Seen &one : seen)
    addSegments(one, rows.least, rows.greatest, manifest_->kernels[static_cast<size_t>(work.kernel)],
                workTile, segments);
}

/// Adds the work tiles of heads with the same work.
void WorkTileBuilder::addRange(const OrdinalRange &ordinals, Work &work) {
  setHeads(ordinals);
  rangeTokens_ = 0;
  spreadInstances(manifest_->kernels[static_cast<size_t>(work.kernel)].rows);
  work.shared |= !shared_.empty();
  for (const Seen &seen : shared_) {
    const OperandBatch &operand = batch_->operands[static_cast<size_t>(seen.operand)];
    const int32_t first = operand.rowFirst[static_cast<size_t>(seen.instance)];
    const int32_t last = operand.rowLast[static_cast<size_t>(seen.instance)];
    bool partial = manifest_->sinkLogits;
    for (int32_t g = groupOfRow_[static_cast<size_t>(first)]; g < groupOfRow_[static_cast<size_t>(last)];
         ++g) {
      const Group &group = groups_[static_cast<size_t>(g)];
      partial |= group.workTiles > 1 || group.seenEnd > group.seenBegin;
    }
    addWorkTiles(ordinals, first, last, {&seen, 1}, partial, false, work);
  }
  // A list joins rows that are neighbours by chance, which must not affect a sequence with fixed splits.
  const bool lists = strategy_ == Strategy::Flatten && !fixedSplit_ &&
                     takesLists(manifest_->kernels[static_cast<size_t>(work.kernel)]);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (const size_t end = lists && listable(groups_[g]) ? addListed(ordinals, g, work) : g; end > g) {
      g = end - 1;
      continue;
    }
    const Group &group = groups_[g];
    const std::span<const Seen> seen(seen_.data() + group.seenBegin,
                                     static_cast<size_t>(group.seenEnd - group.seenBegin));
    // Rows that only shared work tiles serve need no work tile of their own, unless one has to add the sink.
    if (fixedSplit_ && (group.workTiles > 0 || (manifest_->sinkLogits && !manifest_->numerics))) {
      addWorkTiles(ordinals, group.rowBegin, group.rowEnd, seen, true, false, work);
      if (manifest_->sinkLogits)
        addWorkTiles(ordinals, group.rowBegin, group.rowEnd, {}, true, true, work);
    } else if (group.workTiles == 0 || !seen.empty() || manifest_->sinkLogits) {
      addWorkTiles(ordinals, group.rowBegin, group.rowEnd, seen, group.workTiles > 0, true, work);
    }
  }
  int64_t storedTokens = 0; // of all instances that some row sees through these heads
  for (const Shown &operand : shown_)
    for (size_t i = 0; operand.isSeen && i < operand.batch->rowFirst.size(); ++i)
      if (operand.batch->rowFirst[i] < operand.batch->rowLast[i])
        storedTokens += operand.batch->length(i, operand.place);
  work.tokensOnce += std::min(rangeTokens_, storedTokens) * ordinals.count();
}

void WorkTileBuilder::build(const Manifest &manifest, const Batch &batch, const PlanOptions &options,
                            Work &work) {
  manifest_ = &manifest;
  batch_ = &batch;
  ends_ = batch.ends.empty() ? manifest.ends : batch.ends;
  group_ = manifest.groupSize();
  returnsFirst_ = manifest.returnsFirst();
  findGroups();
  const std::vector<OrdinalRange> ranges = ordinalRanges(manifest, batch);
  strategy_ = options.strategy;
  work.fixedSplit = fixedSplit_ = options.fixedSplit > 0;
  work.sinkLast = manifest.numerics && manifest.sinkLogits;
  work.kernel = options.kernel >= 0 ? options.kernel : chooseKernel(ranges);
  work.stores.clear();
  for (const OperandInfo &operand : manifest.operands)
    work.stores.push_back(storeOf(manifest.argumentOf(operand)));
  work.workTiles.clear();
  work.segments.clear();
  work.seen.clear();
  work.slots.clear();
  work.bits.clear();
  work.tasks = work.largestWorkTile = 0;
  work.tiles = work.tokensOnce = 0;
  work.shared = work.omitted = false;
  spreadClass_ = -1;
  for (const OrdinalRange &ordinals : ranges)
    addRange(ordinals, work);
}

} // namespace attn::rt
