//===- Work.h - The steps of planning ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// batch -> work tiles (WorkTiles.h) -> pieces in blocks (Balance.h) -> arrays of the plan (Emit.h).
// These types pass from one step to the next. Every step reuses the memory of the last call.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_WORK_H
#define ATTN_RT_PLAN_WORK_H

#include "attn_rt/batch/Visibility.h"
#include "attn_rt/plan/Plan.h"
#include "attn_rt/plan/PlanTerms.h"

#include <algorithm>

namespace attn::rt {

/// An instance that rows read.
struct Seen {
  int32_t operand, instance;
};

/// A work tile: a tile of packed rows and the segments its rows see; done once for each ordinal.
struct WorkTile {
  OrdinalRange ordinals;
  int32_t packedBegin, packedCount;
  int32_t rowBegin, rowEnd;         ///< query rows of the packed rows
  int32_t seenBegin, seenEnd;       ///< into Work::seen
  int32_t segmentBegin, segmentEnd; ///< into Work::segments
  int32_t tiles;                    ///< key tiles of all segments
  bool partial;                     ///< whether other work tiles hold results for some of its rows
  bool sink;                        ///< whether it adds the sink logit
  bool follows;                     ///< taskRowsFollow
};

/// The options under the manifest's numerics contract, which fixes the split.
inline PlanOptions underContract(const Manifest &manifest, PlanOptions options) {
  if (manifest.numerics && options.fixedSplit == 0)
    options.fixedSplit = manifest.numerics->split;
  return options;
}

/// Whether a tile must have the rows of a single token, with fixed splits: see rowsOfTile. Under a numerics
/// contract tiles of keys do not depend on rows, so this is left where a row may see several ranges.
inline bool needsOneRow(const Manifest &manifest, const Visibility &visibility) {
  return beginsWithRow(visibility) && (!manifest.numerics || intervalBound(visibility) > 1);
}

/// Rows of partials that a plan of tasks which fold may have at most, if tasks need not be cut: beyond that,
/// parts of enough tasks to fill all blocks are not worth their memory.
inline int64_t foldedPartialRows(const KernelInfo &kernel, int64_t blocks) {
  constexpr int64_t partsOfBlock = 8;
  return partsOfBlock * blocks * kernel.rows;
}

/// The distance of fixed cuts in tokens, counted from originOf. 0: cuts are not fixed.
inline int64_t chunkOf(const PlanOptions &options) {
  return options.fixedSplit > 0                      ? options.fixedSplit
         : options.strategy == Strategy::ByNodeChunk ? chunkTokens
                                                     : 0;
}

/// The number to add to an instance's tokens to find their chunk.
inline int64_t originOf(const PlanSegment &segment, bool fixedSplit) {
  return fixedSplit ? chunkOrigin(segment.pos0) : 0;
}

inline RangeOf<int64_t> tokensOf(const PlanSegment &segment) { return {segment.kvBegin, segment.kvEnd}; }

/// Packed rows of a tile. If splits are fixed and the visible tokens begin at a distance from the row, a tile
/// has the packed rows of one row. For segments of a tile begin where its first row's do, and the rows that
/// share a tile depend on the chunks in which a sequence was read. These must not move the tiles of keys in
/// which a row's results are added up.
int64_t rowsOfTile(const KernelInfo &kernel, int64_t group, bool oneRow);

/// The kernels that plans may use, those with the fewest rows first.
std::vector<int> kernelsByRows(const Manifest &manifest);

struct Work {
  int kernel = 0;
  bool fixedSplit = false;   ///< parts never span two segments, and are merged in the order of instances
  bool sinkLast = false;     ///< sinks follow all parts: the numerics contract says so
  std::vector<Store> stores; ///< of the operands
  std::vector<WorkTile> workTiles;
  std::vector<PlanSegment> segments;
  std::vector<Seen> seen;
  std::vector<int32_t> slots; ///< as in Plan
  std::vector<uint32_t> bits;
  bool shared = false;  ///< whether some work tiles are partial even if uncut
  bool omitted = false; ///< whether a work tile was left out because it had no keys
  int32_t tasks = 0;
  int64_t tiles = 0;           ///< of all tasks
  int64_t tokensOnce = 0;      ///< of all KV heads, each counted once even if several work tiles read it
  int32_t largestWorkTile = 0; ///< packed rows

  std::span<const PlanSegment> segmentsOf(const WorkTile &workTile) const {
    return {segments.data() + workTile.segmentBegin,
            static_cast<size_t>(workTile.segmentEnd - workTile.segmentBegin)};
  }
};

/// Key tiles [tileBegin, tileEnd) of a work tile. All pieces of it read the same segments.
struct PieceTiles {
  int32_t workTile, tileBegin, tileEnd;
  bool whole; ///< all tiles
};

/// The tiles of an entry of Assignment::parts for one ordinal.
struct Piece {
  int32_t part, ordinal;
};

struct Assignment {
  std::vector<PieceTiles> parts;
  std::vector<Piece> pieces;       ///< in the order of blocks
  std::vector<int32_t> blockTasks; ///< [blocks + 1]
  int64_t cuts = 0;
  int usedBlocks = 0;
  int64_t maxCost = 0, totalCost = 0;
};

/// Whether a kernel reads lists, the most tokens of a list, and the words of `bits` for a list.
bool takesLists(const KernelInfo &kernel);
int64_t listTokensBound(const KernelInfo &kernel);
int64_t listBitsBound(const KernelInfo &kernel, int group);
int64_t listRows(const KernelInfo &kernel, int group);

} // namespace attn::rt

#endif
