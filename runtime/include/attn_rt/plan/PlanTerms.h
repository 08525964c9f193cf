//===- PlanTerms.h - The planner's arithmetic -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Formulas that the planner on the host (runtime/src/plan) and the planner on the device
// (lib/Conversion/AttnToTile/Plan) share, over any numbers (Arithmetic.h). Each planner
// has its own loops and its own assignment of work to threads.
//
//   rows     packed rows of a sequence, in tiles: work tiles
//   tiles    key tiles of a range of tokens, and the tokens of some of them
//   cuts     at multiples of a chunk of tokens, if splits are fixed
//   costs    of a task, and of a share of all tasks
//   sizes    of buffers
//
// Packed row p of a KV head that `group` query heads read is query row p / group and member
// p % group of the group.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PLAN_PLANTERMS_H
#define ATTN_RT_PLAN_PLANTERMS_H

#include "attn_rt/artifact/PlanRecords.h"
#include "attn_rt/batch/TokenRanges.h"

namespace attn::rt {

// Rows.

/// Tiles of `tileRows` packed rows for `rows` query rows.
template <typename N, typename Group, typename TileRows>
auto tilesOfRows(N rows, Group group, TileRows tileRows) {
  return ceilDiv(rows * group, tileRows);
}

/// Packed rows of the tile that begins at `packedBegin`; the sequence's query rows end before `rowsEnd`.
template <typename N, typename Group, typename TileRows>
auto packedInTile(N packedBegin, N rowsEnd, Group group, TileRows tileRows) {
  return min(tileRows, rowsEnd * group - packedBegin);
}

/// The query row of a packed row.
template <typename N, typename Group> auto rowOf(N packed, Group group) { return packed / group; }

/// The end of the query rows of a tile of packed rows.
template <typename N, typename Group> auto rowEndOf(N packedBegin, N packedCount, Group group) {
  return rowOf(packedBegin + packedCount - 1, group) + 1;
}

/// The index of the results of query row `row`, for one member of the group of a KV head. Each row has
/// `heads` results.
template <typename N, typename Member, typename Heads, typename Group>
auto outputOf(N row, N kvHead, Member member, Heads heads, Group group) {
  return row * heads + (kvHead * group + member);
}

// Key tiles.

/// Tiles of `keys` tokens, from the first token of a range on.
template <typename N, typename Keys> auto tilesOf(const RangeOf<N> &range, Keys keys) {
  return ceilDiv(range.size(), keys);
}

/// The tokens of tiles [tileBegin, tileEnd) in a range whose first tile has the number `firstTile`. Empty if
/// none of these tiles is in the range.
template <typename N, typename Keys>
RangeOf<N> tokensOfTiles(const RangeOf<N> &range, N firstTile, N tileBegin, N tileEnd, Keys keys) {
  return {range.begin + max(tileBegin - firstTile, 0) * keys,
          range.begin + min((tileEnd - firstTile) * keys, range.size())};
}

// Cuts at multiples of a chunk.

/// The origin of cuts: the position of an instance's first token, so that the number of a sequence's tokens
/// that an instance still holds moves no cut.
template <typename N> auto chunkOrigin(N pos0) { return max(pos0, 0); }

/// The chunk of a token.
template <typename N, typename Chunk> auto chunkOfToken(N origin, N token, Chunk chunk) {
  return (origin + token) / chunk;
}

/// The number of cuts between the tokens of a range.
template <typename N, typename Chunk> auto cutsInside(const RangeOf<N> &range, N origin, Chunk chunk) {
  const auto isSome = range.begin < range.end;
  const auto last = select(isSome, origin + (range.end - 1), 0);
  return select(isSome, last / chunk - chunkOfToken(origin, range.begin, chunk), 0);
}

/// The tile, counted from the range's first, at whose begin cut `number` (from 1 on) is: the first tile that
/// begins at or after the chunk's end.
template <typename N, typename Number, typename Chunk, typename Keys>
auto tileOfCut(const RangeOf<N> &range, N origin, Number number, Chunk chunk, Keys keys) {
  const auto begin = origin + range.begin;
  return ceilDiv((begin / chunk + number) * chunk - begin, keys);
}

// Costs.

/// The cost of a key tile. All other costs are counted in sixteenths of it.
inline constexpr int64_t tileCost = 16;

/// The cost of a task with `tiles` key tiles. `overhead` is its cost besides them.
template <typename Overhead, typename Tiles> auto costOfTask(Overhead overhead, Tiles tiles) {
  return overhead + tiles * tileCost;
}

/// The key tiles of tasks with a total cost of `cost` and total overheads of `overheads`.
template <typename Cost, typename Overheads> auto tilesOfCost(Cost cost, Overheads overheads) {
  return (cost - overheads) / tileCost;
}

/// The most shares of `tiles` key tiles of which each has at least `shareTiles`.
template <typename Blocks, typename Tiles, typename ShareTiles>
auto mostShares(Blocks blocks, Tiles tiles, ShareTiles shareTiles) {
  return min(blocks, tiles / shareTiles);
}

/// The cost of each of `shares` equal shares.
template <typename Cost, typename Shares> auto equalShare(Cost total, Shares shares) {
  return ceilDiv(total, shares);
}

// Significance, made of stored scores.

/// Tasks, for a KV head, that compute significance of stored scores; `room` is the capacity in tokens.
template <typename N> auto scoreTasksOf(N room) { return ceilDiv(room, int64_t{scoreTaskTokens}); }

/// The end of the task that begins with a token.
template <typename N> auto scoreTaskEnd(N kvBegin, N room) { return min(kvBegin + scoreTaskTokens, room); }

/// Words of 32 bits for the scores of `tokens` tokens, two in a word.
template <typename N, typename Group> auto scoreWordsOf(N tokens, Group group) {
  return ceilDiv(tokens * group, 2);
}

// Sizes.

/// An upper bound of the tiles of the rows of `groups` groups: a group of n packed rows takes at most n /
/// tileRows + 1, rounded down.
template <typename N> N tilesBound(N packed, N tileRows, N groups) { return packed / tileRows + groups; }

/// An upper bound of the partial rows of tasks that are cut into shares: each row of a cut task has a part in
/// each of two shares.
template <typename N> N cutRowsBound(N blocks, N tileRows, N packed) {
  return 2 * blocks * min(tileRows, packed);
}

/// Arrays of words of each block of the planning kernel in scratch memory, one after another, and the words
/// of each (PlanScratchSizes).
#define ATTN_PLAN_SCRATCH(ARRAY)                                                                             \
  ARRAY(workTileStart, sequences + 1)     /* of each sequence, and the end */                                \
  ARRAY(piecesUpTo, sequences *lists + 1) /* of each list, and the end: pieces of rows of block tables */    \
  ARRAY(sequenceOf, workTiles + 1)        /* of each work tile */                                            \
  ARRAY(partStart, workTiles + 1)         /* of each work tile, and the end: its first part, */              \
  ARRAY(partial, workTiles + 1)           /* the first of its partial rows, */                               \
  ARRAY(mergeStart, workTiles + 1)        /* of its rows to merge, */                                        \
  ARRAY(costs, workTiles + 1)             /* and the cost of all work tiles before */                        \
  ARRAY(order, parts)                     /* parts, longest first */                                         \
  ARRAY(sorted, parts)                                                                                       \
  ARRAY(workTileOfPart, parts)                                                                               \
  ARRAY(cutTask, blocks + 1)    /* of each cut, and the end: the task that it is in, */                      \
  ARRAY(cutTile, blocks + 1)    /* the tile that it is in front of, */                                       \
  ARRAY(cutsUpTo, blocks + 1)   /* cuts, with this one, */                                                   \
  ARRAY(cutPartial, blocks + 1) /* the first of its partial rows, */                                         \
  ARRAY(cutMerge, blocks + 1)   /* and of its rows to merge */

template <typename Array> struct PlanScratchOf {
#define ATTN_PLAN_SCRATCH_ARRAY(name, words) Array name = {};
  ATTN_PLAN_SCRATCH(ATTN_PLAN_SCRATCH_ARRAY)
#undef ATTN_PLAN_SCRATCH_ARRAY
};

/// The capacities. `lists`: lists of tokens per sequence: one, or one for each head.
template <typename N> struct PlanScratchSizes {
  N sequences, lists, workTiles, parts, blocks;

  /// Calls `visit(array, words)` for all arrays in their order.
  template <typename Array, typename Visit> void forEach(PlanScratchOf<Array> &arrays, Visit visit) const {
#define ATTN_PLAN_SCRATCH_ARRAY(name, words) visit(arrays.name, words);
    ATTN_PLAN_SCRATCH(ATTN_PLAN_SCRATCH_ARRAY)
#undef ATTN_PLAN_SCRATCH_ARRAY
  }
};

} // namespace attn::rt

#endif
