//===- Extend.cpp - The plan of a batch that has grown --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A decoding step appends a token here and there. Nearly always the same tasks
// then read one token more, and every 64 steps one key tile more:
//
//     before   [# # # # # #|# # # #] [# #] [# # #|# # # # #]
//     after    [# # # # # #|# # # # +] [# #] [# # #|# # # # # +]
//
// So the tasks are kept, with their blocks, partials and merge lists, and only the
// segments that have grown are written again. In a task that was cut, the last part
// grows. The loads of blocks with such ends drift away from the others; loads are kept,
// and when one gets too large, everything is planned anew.
//===----------------------------------------------------------------------===//
#include "plan/Emit.h"

#include <algorithm>

namespace attn::rt {

namespace {

// A new plan is made if the work has grown by one part in growthLimit (it might cut and share otherwise) …
constexpr int64_t growthLimit = 16;
// … or when the largest load exceeds the mean by more than the last new plan's did, by more than a tile, and
// by more than this part of the mean.
constexpr double drift = 0.05;

double meanLoad(const Assignment &assignment) {
  return static_cast<double>(assignment.totalCost) / std::max(assignment.usedBlocks, 1);
}

/// Whether the same segments would be cut at the same tokens.
bool sameChunks(std::span<const PlanSegment> before, std::span<const PlanSegment> now, int64_t chunk,
                bool fixedSplit) {
  bool same = before.size() == now.size();
  for (size_t s = 0; s < before.size() && same; ++s) {
    const auto chunks = [&](const PlanSegment &segment) {
      const int64_t origin = originOf(segment, fixedSplit), begin = segment.kvBegin, end = segment.kvEnd;
      return std::pair(chunkOfToken(origin, begin, chunk), chunkOfToken(origin, end - 1, chunk));
    };
    const auto [first, last] = chunks(before[s]);
    same = chunks(now[s]) == std::pair(first, last) &&
           (first == last || (before[s].kvBegin == now[s].kvBegin &&
                              originOf(before[s], fixedSplit) == originOf(now[s], fixedSplit)));
  }
  return same;
}

bool noneShrank(const std::vector<int32_t> &before, const std::vector<int32_t> &now) {
  bool shrank = before.size() != now.size();
  for (size_t i = 0; i < before.size() && !shrank; ++i)
    shrank = now[i] < before[i];
  return !shrank;
}

} // namespace

void Extender::remember(const Manifest &manifest, const Batch &batch, const Assignment &assignment) {
  last_.rows = batch.rows;
  last_.qStart = batch.qStart;
  last_.qPos = batch.qPos;
  last_.ends = batch.ends;
  last_.classes = batch.classes;
  last_.operands.resize(batch.operands.size());
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    last_.operands[o].lengths = batch.operands[o].lengths;
    last_.operands[o].pos0 = batch.operands[o].pos0;
    last_.operands[o].rowFirst = batch.operands[o].rowFirst;
    last_.operands[o].rowLast = batch.operands[o].rowLast;
  }
  operands_.clear();
  for (const OperandInfo &operand : manifest.operands) {
    const Store store = storeOf(manifest.argumentOf(operand));
    operands_.push_back({store.tokenBytes(), store});
  }
  indexed_ = false;
  firstTotal_ = assignment.totalCost;
  firstExcess_ = static_cast<double>(assignment.maxCost) - meanLoad(assignment);
}

bool Extender::hasOnlyGrown(const Batch &batch) const {
  if (batch.rows != last_.rows || batch.qStart != last_.qStart || batch.ends != last_.ends ||
      batch.classes != last_.classes || !noneShrank(last_.qPos, batch.qPos))
    return false;
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &before = last_.operands[o], &now = batch.operands[o];
    if (now.rowFirst != before.rowFirst || now.rowLast != before.rowLast || now.pos0 != before.pos0 ||
        !noneShrank(before.lengths, now.lengths))
      return false;
  }
  return true;
}

/// Indexes the pieces of each work tile, by counting.
void Extender::index(const Work &work, const Assignment &assignment, const Plan &plan) {
  workTilePieces_.assign(work.workTiles.size() + 1, 0);
  const auto workTileOf = [&](const Piece &piece) {
    return static_cast<size_t>(assignment.parts[static_cast<size_t>(piece.part)].workTile);
  };
  for (const Piece &piece : assignment.pieces)
    ++workTilePieces_[workTileOf(piece) + 1];
  for (size_t u = 1; u < workTilePieces_.size(); ++u)
    workTilePieces_[u] += workTilePieces_[u - 1];
  pieces_.resize(assignment.pieces.size());
  for (size_t p = 0; p < assignment.pieces.size(); ++p)
    pieces_[static_cast<size_t>(workTilePieces_[workTileOf(assignment.pieces[p])]++)] =
        static_cast<int32_t>(p);
  for (size_t u = workTilePieces_.size() - 1; u > 0; --u)
    workTilePieces_[u] = workTilePieces_[u - 1];
  workTilePieces_[0] = 0;
  blockOf_.resize(assignment.pieces.size());
  for (size_t b = 0; b + 1 < assignment.blockTasks.size(); ++b)
    std::fill(blockOf_.begin() + assignment.blockTasks[b], blockOf_.begin() + assignment.blockTasks[b + 1],
              static_cast<int32_t>(b));
  wholeSegments_.assign(work.workTiles.size(), -1);
  for (size_t u = 0; u < work.workTiles.size(); ++u)
    if (workTilePieces_[u + 1] - workTilePieces_[u] == work.workTiles[u].ordinals.count())
      wholeSegments_[u] =
          plan.tasks[static_cast<size_t>(pieces_[static_cast<size_t>(workTilePieces_[u])])].segmentBegin;
  indexed_ = true;
}

/// Moves the end of the parts that read a work tile's last tile.
void Extender::moveEnds(size_t index, int32_t before, int32_t now, Assignment &assignment) const {
  for (int32_t i = workTilePieces_[index]; i < workTilePieces_[index + 1]; ++i)
    if (PieceTiles &part = assignment.parts[static_cast<size_t>(
            assignment.pieces[static_cast<size_t>(pieces_[static_cast<size_t>(i)])].part)];
        part.tileEnd == before)
      part.tileEnd = now;
}

bool Extender::extendWorkTile(size_t index, const WorkTile &before, const WorkTile &now, int keys, Work &work,
                              Assignment &assignment, std::vector<int64_t> &loads, Plan &plan) {
  const std::span<const PlanSegment> old = work.segmentsOf(before);
  if (wholeSegments_[index] >= 0 && now.tiles == before.tiles) { // nearly always
    std::copy(segments_.begin(), segments_.end(), plan.segments.begin() + wholeSegments_[index]);
    std::copy(segments_.begin(), segments_.end(), work.segments.begin() + before.segmentBegin);
    return true;
  }
  // Parts before the last are unchanged if only the end of the last segment moved.
  bool frontStays = true;
  for (size_t s = 0; s < old.size(); ++s) {
    const PlanSegment &a = old[s], &b = segments_[s];
    const bool last = s + 1 == old.size();
    if (a.operand != b.operand || a.instance != b.instance)
      return false;
    frontStays &= a.kvBegin == b.kvBegin && a.fullBegin == b.fullBegin &&
                  (last ? a.fullEnd == a.kvEnd && b.fullEnd >= a.fullEnd
                        : a.kvEnd == b.kvEnd && a.fullEnd == b.fullEnd);
  }
  std::copy(segments_.begin(), segments_.end(), work.segments.begin() + before.segmentBegin);
  int32_t written = -1;
  for (int32_t i = workTilePieces_[index]; i < workTilePieces_[index + 1]; ++i) {
    const auto p = static_cast<size_t>(pieces_[static_cast<size_t>(i)]);
    const PieceTiles &part = assignment.parts[static_cast<size_t>(assignment.pieces[p].part)];
    const bool grows = part.tileEnd == before.tiles;
    if (frontStays && !grows)
      continue;
    if (grows)
      loads[static_cast<size_t>(blockOf_[p])] += tileCost * (now.tiles - before.tiles);
    const PlanTask &task = plan.tasks[p];
    if (task.segmentBegin == written)
      continue; // the ordinals of a part read the same segments
    written = task.segmentBegin;
    if (part.whole) {
      std::copy(segments_.begin(), segments_.end(), plan.segments.begin() + written);
      continue;
    }
    cut_.clear();
    cutSegments(segments_, part.tileBegin, grows ? now.tiles : part.tileEnd, keys, cut_);
    if (std::ssize(cut_) != task.segmentEnd - task.segmentBegin)
      return false;
    std::copy(cut_.begin(), cut_.end(), plan.segments.begin() + written);
  }
  moveEnds(index, before.tiles, now.tiles, assignment);
  return true;
}

/// Moves the segments of a work tile whose number of segments has changed, by giving its tasks another index.
/// A work tile with cut tasks cannot be moved.
bool Extender::moveWorkTile(size_t index, const WorkTile &before, WorkTile &now, int64_t room, Work &work,
                            Assignment &assignment, std::vector<int64_t> &loads, Plan &plan) {
  if (wholeSegments_[index] < 0 || std::ssize(plan.segments) + std::ssize(segments_) > room)
    return false;
  now.segmentBegin = static_cast<int32_t>(work.segments.size());
  work.segments.insert(work.segments.end(), segments_.begin(), segments_.end());
  now.segmentEnd = static_cast<int32_t>(work.segments.size());
  const auto begin = static_cast<int32_t>(plan.segments.size());
  plan.segments.insert(plan.segments.end(), segments_.begin(), segments_.end());
  for (int32_t i = workTilePieces_[index]; i < workTilePieces_[index + 1]; ++i) {
    const auto p = static_cast<size_t>(pieces_[static_cast<size_t>(i)]);
    movedFrom_.push_back({p, plan.tasks[p].segmentBegin, plan.tasks[p].segmentEnd});
    plan.tasks[p].segmentBegin = begin;
    plan.tasks[p].segmentEnd = static_cast<int32_t>(plan.segments.size());
    loads[static_cast<size_t>(blockOf_[p])] += tileCost * (now.tiles - before.tiles);
  }
  moveEnds(index, before.tiles, now.tiles, assignment);
  wholeSegments_[index] = begin;
  moved_ = true;
  return true;
}

void Extender::moveBack(Plan &plan) {
  for (const Moved &moved : movedFrom_) {
    plan.tasks[moved.task].segmentBegin = moved.segmentBegin;
    plan.tasks[moved.task].segmentEnd = moved.segmentEnd;
  }
  movedFrom_.clear();
}

/// Adds the cost of reading segments to the plan's stats.
void Extender::count(std::span<const PlanSegment> segments, int64_t times, PlanStats &stats) const {
  for (const PlanSegment &segment : segments) {
    const auto &[bytes, store] = operands_[static_cast<size_t>(segment.operand)];
    const int64_t tokens = segment.kvEnd - segment.kvBegin;
    stats.kvBytes += tokens * bytes * times;
    stats.metadataBytes += store.entriesOf(tokens) * 4 * times;
  }
}

bool Extender::extend(const Manifest &m, const Batch &batch, const PlanOptions &options,
                      const PlanCapacity &capacity, WorkTileBuilder &builder, Work &work, Balancer &balancer,
                      Assignment &assignment, Plan &plan) {
  moved_ = false;
  movedFrom_.clear();
  // Rows that saw the same may differ now, tasks without keys were left out, and lists hold the tokens of the
  // batch before.
  if (!hasOnlyGrown(batch) || (work.fixedSplit && work.shared) || work.omitted || !work.slots.empty())
    return false;
  // The part of a sink would read the tokens that a task has got.
  if (work.sinkLast && assignment.cuts > 0)
    return false;
  if (!indexed_)
    index(work, assignment, plan);
  const int keys = m.kernels[static_cast<size_t>(work.kernel)].keys;
  const int64_t chunk = chunkOf(options);
  for (size_t u = 0; u < work.workTiles.size(); ++u) {
    WorkTile &workTile = work.workTiles[u];
    const WorkTile before = workTile;
    const std::span<const PlanSegment> old = work.segmentsOf(before);
    builder.segmentsOf(batch, work, workTile, segments_);
    count(old, -workTile.ordinals.count(), plan.stats);
    count(segments_, workTile.ordinals.count(), plan.stats);
    work.tiles += int64_t{workTile.tiles - before.tiles} * workTile.ordinals.count();
    if (workTile.follows != before.follows ||
        (chunk > 0 && !sameChunks(old, segments_, chunk, work.fixedSplit)))
      return false;
    if (segments_.size() == old.size()
            ? !extendWorkTile(u, before, workTile, keys, work, assignment, balancer.loads(), plan)
            : !moveWorkTile(u, before, workTile, capacity.segments, work, assignment, balancer.loads(), plan))
      return false;
  }
  balancer.sumLoads(assignment);
  const int64_t grown = assignment.totalCost - firstTotal_;
  const int64_t least = tileCost * int64_t{std::max(assignment.usedBlocks, 1)};
  if (std::abs(grown) > std::max(firstTotal_ / growthLimit, least))
    return false;
  const CostModel &cost = balancer.cost();
  const double mean = meanLoad(assignment), excess = static_cast<double>(assignment.maxCost) - mean;
  if (excess >
      std::max({firstExcess_, static_cast<double>(costOfTask(cost.fixed + cost.partial, 1)), drift * mean}))
    return false;
  last_.qPos = batch.qPos;
  for (size_t o = 0; o < batch.operands.size(); ++o)
    last_.operands[o].lengths = batch.operands[o].lengths;
  return true;
}

} // namespace attn::rt
