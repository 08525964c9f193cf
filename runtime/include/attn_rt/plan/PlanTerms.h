//===- PlanTerms.h - The planner's arithmetic -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every formula that the planner on the host (runtime/src/plan) and the one on the device
// (lib/Conversion/AttnToTile/Plan) both need, over any numbers (Arithmetic.h). What they
// do in different ways, which loops there are and which thread takes what, is theirs.
//
//   rows     packed rows of a sequence, in tiles: work tiles
//   tiles    key tiles of a range of tokens, and the tokens of some of them
//   cuts     at multiples of a chunk of tokens, where splits are fixed
//   costs    of a task, and of a share of all tasks
//   sizes    how much there is room for
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

/// Tiles of `tileRows` packed rows that so many query rows take.
template <typename N, typename Group, typename TileRows>
auto tilesOfRows(N rows, Group group, TileRows tileRows) {
  return ceilDiv(rows * group, tileRows);
}

/// Packed rows of the tile that begins at `packedBegin`, of query rows that end before `rowsEnd`.
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

/// Where the results of query row `row` lie, for one member of the group of a KV head: each row has `heads`.
template <typename N, typename Member, typename Heads, typename Group>
auto outputOf(N row, N kvHead, Member member, Heads heads, Group group) {
  return row * heads + (kvHead * group + member);
}

// Key tiles.

/// Tiles of `keys` tokens from the first one of a range on.
template <typename N, typename Keys> auto tilesOf(const RangeOf<N> &range, Keys keys) {
  return ceilDiv(range.size(), keys);
}

/// The tokens of tiles [tileBegin, tileEnd) in a range whose first tile has the number `firstTile`. Empty
/// where none of these is in it.
template <typename N, typename Keys>
RangeOf<N> tokensOfTiles(const RangeOf<N> &range, N firstTile, N tileBegin, N tileEnd, Keys keys) {
  return {range.begin + max(tileBegin - firstTile, 0) * keys,
          range.begin + min((tileEnd - firstTile) * keys, range.size())};
}

// Cuts at multiples of a chunk.

/// Where tokens are counted from: the position of an instance's first token, so that which of a sequence's
/// tokens an instance still has moves no cut.
template <typename N> auto chunkOrigin(N pos0) { return max(pos0, 0); }

/// The chunk that a token is in.
template <typename N, typename Chunk> auto chunkOfToken(N origin, N token, Chunk chunk) {
  return (origin + token) / chunk;
}

/// Cuts between the tokens of a range.
template <typename N, typename Chunk> auto cutsInside(const RangeOf<N> &range, N origin, Chunk chunk) {
  const auto isSome = range.begin < range.end;
  const auto last = select(isSome, origin + (range.end - 1), 0);
  return select(isSome, last / chunk - chunkOfToken(origin, range.begin, chunk), 0);
}

/// The tile, counted from the range's first, at whose begin cut `number` is, from 1 on: the first tile behind
/// the chunk's end.
template <typename N, typename Number, typename Chunk, typename Keys>
auto tileOfCut(const RangeOf<N> &range, N origin, Number number, Chunk chunk, Keys keys) {
  const auto begin = origin + range.begin;
  return ceilDiv((begin / chunk + number) * chunk - begin, keys);
}

// Costs.

/// Cost of a key tile. All others are counted in sixteenths of it.
inline constexpr int64_t tileCost = 16;

/// Cost of a task that reads so many key tiles. `overhead` is what it costs beside them.
template <typename Overhead, typename Tiles> auto costOfTask(Overhead overhead, Tiles tiles) {
  return overhead + tiles * tileCost;
}

/// The key tiles of tasks of a cost, whose overheads are `overheads` together.
template <typename Cost, typename Overheads> auto tilesOfCost(Cost cost, Overheads overheads) {
  return (cost - overheads) / tileCost;
}

/// The most shares of so many key tiles, of which none may have less than `shareTiles`.
template <typename Blocks, typename Tiles, typename ShareTiles>
auto mostShares(Blocks blocks, Tiles tiles, ShareTiles shareTiles) {
  return min(blocks, tiles / shareTiles);
}

/// Cost of each of so many shares, if they were equal.
template <typename Cost, typename Shares> auto equalShare(Cost total, Shares shares) {
  return ceilDiv(total, shares);
}

// Significance, made of stored scores.

/// Tasks that weigh the scores of tokens for which there is room, for a KV head.
template <typename N> auto scoreTasksOf(N room) { return ceilDiv(room, int64_t{scoreTaskTokens}); }

/// Where the task that begins with a token ends.
template <typename N> auto scoreTaskEnd(N kvBegin, N room) { return min(kvBegin + scoreTaskTokens, room); }

/// Words of 32 bits that the scores of so many tokens take, two in a word.
template <typename N, typename Group> auto scoreWordsOf(N tokens, Group group) {
  return ceilDiv(tokens * group, 2);
}

// Sizes.

/// The most tiles that rows of so many groups take: a group of n packed rows takes n / tileRows + 1 at most,
/// rounded down.
template <typename N> N tilesBound(N packed, N tileRows, N groups) { return packed / tileRows + groups; }

/// The most partial rows of tasks that are cut into shares: each row of a cut task has a part in each of two.
template <typename N> N cutRowsBound(N blocks, N tileRows, N packed) {
  return 2 * blocks * min(tileRows, packed);
}

/// Arrays of words that a block of the planning kernel has in scratch memory, one behind the other, and the
/// words of each (PlanScratchSizes).
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

/// What there is at most. `lists`: of a sequence, of tokens: one, or one for each head.
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
