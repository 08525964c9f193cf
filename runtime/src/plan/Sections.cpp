//===- Sections.cpp - Tasks in an order that the L2 can serve -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles of rows of one sequence and head read the same keys and values. If tasks are
// assigned longest first over a whole batch, the blocks of a GPU work at the same time on
// as many sequences and heads as there are blocks:
//
//     4 x 4,096 tokens, 32 heads: 128 longest tasks, then 128 that are a tile shorter, ...
//     each reads 2 MiB that no other block has read for 256 MiB: all of it comes from memory
//
// So the batch is divided into sections, whose keys and values fit the L2 together,
// and tasks are assigned section by section, longest first in each:
//
//     section 1    heads 0 and 1 of sequence 0: 32 tasks each, of which one reads memory
//     section 2    heads 2 and 3 ...
//
// A section is a range of the ordinals of one family, the work tiles that read the same
// instances, or several small families. The section with the longest task comes first.
// Blocks do not wait for each other between sections.
//
// The last sections become one, whose short tasks even out the loads of the blocks. If lengths are alike
// there are no short tasks, and a chunk of a long prompt may have no more tasks than that section. Then all
// sections stay, for each level of lengths: whole tasks, and the one or two lengths of pieces of tasks that
// Balance.cpp splits.
//
// If no two work tiles read the same instance (decode), there is nothing to gain: one section.
//
//===----------------------------------------------------------------------===//
#include "plan/Balance.h"

#include <algorithm>
#include <numeric>

namespace attn::rt {

namespace {

/// A section holds at most this part of the L2. Half of the L2 would fit; but at the begin of a section all
/// blocks read memory at once, and at its end none does, so that many small sections are faster than a few
/// large ones. At 15 batches of 1 to 32 sequences on an H200, 4 MiB were never slower than 16, and up to 6 %
/// faster; 1 to 8 MiB were alike (2026-11-22).
constexpr int64_t l2Part = 16;
/// The least number of tasks of the last section, per block: the tasks assigned last are then short, and even
/// out the loads of the blocks.
constexpr int64_t lastTasks = 4;
/// A level's shortest part is shorter than its longest by at most this fraction. With more levels than
/// mostLevels, the short ones even out the loads of the blocks.
constexpr int64_t levelPart = 16;
constexpr size_t mostLevels = 3;

/// The begins of the levels of parts, which are sorted, longest first: all levels, or mostLevels + 1 of them.
std::vector<size_t> findLevels(std::span<const Part> parts) {
  std::vector<size_t> begins{0};
  for (size_t p = 0; p < parts.size() && begins.size() <= mostLevels; ++p)
    if (const int64_t longest = parts[begins.back()].cost; parts[p].cost < longest - longest / levelPart)
      begins.push_back(p);
  return begins;
}

} // namespace

/// Finds families: work tiles made of one group of rows follow each other and share what they see. Returns
/// whether some family has several work tiles; if none has, families are not listed.
bool SectionOrder::findFamilies(const Work &work) {
  const auto areOne = [](const WorkTile &before, const WorkTile &workTile) {
    return workTile.seenBegin != workTile.seenEnd && workTile.seenBegin == before.seenBegin &&
           workTile.ordinals.begin == before.ordinals.begin;
  };
  if (std::adjacent_find(work.workTiles.begin(), work.workTiles.end(), areOne) == work.workTiles.end())
    return false;
  families_.clear();
  familyOf_.clear();
  const WorkTile *before = nullptr;
  for (const WorkTile &workTile : work.workTiles) {
    if (!before || !areOne(*before, workTile))
      families_.push_back({});
    before = &workTile;
    Family &family = families_.back();
    familyOf_.push_back(static_cast<int32_t>(families_.size()) - 1);
    family.ordinals = workTile.ordinals.count();
    int64_t bytes = 0;
    for (const PlanSegment &segment : work.segmentsOf(workTile))
      bytes +=
          (segment.kvEnd - segment.kvBegin) * work.stores[static_cast<size_t>(segment.operand)].tokenBytes();
    family.ordinalBytes = std::max(family.ordinalBytes, bytes);
  }
  return true;
}

/// Assigns sections to every family, families with the longest task first; returns the number of sections.
int32_t SectionOrder::fillSections(std::span<const Part> parts, int64_t sectionBytes) {
  int32_t sections = 0;
  int64_t filled = sectionBytes; // of the current section: full, so that the first family begins one
  for (const Part &part : parts) {
    Family &family = families_[static_cast<size_t>(familyOf_[static_cast<size_t>(part.workTile)])];
    if (family.section >= 0)
      continue;
    const int64_t bytes = family.ordinalBytes * family.ordinals;
    if (filled + bytes <= sectionBytes && sections > 0) {
      family.section = sections - 1;
      filled += bytes;
      continue;
    }
    family.section = sections;
    family.sections = static_cast<int32_t>(
        std::clamp<int64_t>((bytes + sectionBytes - 1) / sectionBytes, 1, family.ordinals));
    sections += family.sections;
    filled = bytes / family.sections;
  }
  return sections;
}

void SectionOrder::order(const Work &work, std::span<const Part> parts, int64_t l2Bytes, int blocks,
                         std::vector<Turn> &turns) {
  turns.clear();
  int32_t sections = 1;
  if (l2Bytes > 0 && findFamilies(work))
    sections = fillSections(parts, std::max<int64_t>(l2Bytes / l2Part, 1));
  if (sections == 1) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const OrdinalRange &ordinals = work.workTiles[static_cast<size_t>(parts[p].workTile)].ordinals;
      turns.push_back({static_cast<int32_t>(p), ordinals.begin, ordinals.end});
    }
    return;
  }
  std::vector<size_t> levels = findLevels(parts);
  const bool joins = levels.size() > mostLevels;
  if (joins)
    levels.resize(1);
  levels.push_back(parts.size());
  for (size_t level = 0; level + 1 < levels.size(); ++level)
    orderLevel(work, parts, levels[level], levels[level + 1], sections, joins ? lastTasks * blocks : 0,
               turns);
}

void SectionOrder::orderLevel(const Work &work, std::span<const Part> parts, size_t begin, size_t end,
                              int32_t sections, int64_t leastOfLast, std::vector<Turn> &turns) {
  const auto familyOf = [&](const Part &part) -> const Family & {
    return families_[static_cast<size_t>(familyOf_[static_cast<size_t>(part.workTile)])];
  };
  next_.assign(static_cast<size_t>(sections) + 1, 0);
  next_.front() = static_cast<int32_t>(turns.size());
  tasks_.assign(static_cast<size_t>(sections), 0);
  for (const Part &part : parts.subspan(begin, end - begin)) {
    const Family &family = familyOf(part);
    for (int32_t s = 0; s < family.sections; ++s) {
      ++next_[static_cast<size_t>(family.section + s) + 1];
      tasks_[static_cast<size_t>(family.section) + static_cast<size_t>(s)] +=
          family.firstOrdinal(s + 1) - family.firstOrdinal(s);
    }
  }
  // Joins the last sections into one with enough short tasks to even out the loads of the blocks.
  int32_t last = sections - 1;
  for (int64_t tasks = tasks_.back(); last > 0 && tasks < leastOfLast;
       tasks += tasks_[static_cast<size_t>(last)])
    --last;
  for (int32_t s = last + 1; s < sections; ++s)
    next_[static_cast<size_t>(last) + 1] += next_[static_cast<size_t>(s) + 1];
  next_.resize(static_cast<size_t>(last) + 2);
  std::inclusive_scan(next_.begin(), next_.end(), next_.begin());
  turns.resize(static_cast<size_t>(next_.back()));
  for (size_t p = begin; p < end; ++p) {
    const Family &family = familyOf(parts[p]);
    const int32_t first = work.workTiles[static_cast<size_t>(parts[p].workTile)].ordinals.begin;
    for (int32_t s = 0; s < family.sections; ++s)
      turns[static_cast<size_t>(next_[static_cast<size_t>(std::min(family.section + s, last))]++)] = {
          static_cast<int32_t>(p), first + family.firstOrdinal(s), first + family.firstOrdinal(s + 1)};
  }
}

} // namespace attn::rt
