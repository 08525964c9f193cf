//===- Forest.cpp - What reading a forest costs, four ways ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/forest/Forest.h"
#include "attn_rt/plan/Plan.h"
#include "attn_rt/support/Arithmetic.h"

#include <algorithm>
#include <limits>

namespace attn::rt {

namespace {

using Wide = __int128; // products of three 32-bit numbers and a sum of them
constexpr Wide wideLimit = std::numeric_limits<int64_t>::max();

} // namespace

ForestPlanner::ForestPlanner(const Workload &workload, ForestOptions options)
    : workload_(&workload), options_(options) {}

/// Sums along each node's path: what a row of the node sees; and the rows that see each node.
void ForestPlanner::findPaths() {
  const size_t count = nodes_.size();
  rowsBelow_.resize(count);
  pathTokens_.resize(count);
  pathTiles_.resize(count);
  pathSegments_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const ForestNode &node = nodes_[i];
    const auto parent = static_cast<size_t>(node.parent);
    const bool root = node.parent < 0;
    rowsBelow_[i] = node.rows;
    pathTokens_[i] = (root ? 0 : pathTokens_[parent]) + node.tokens;
    pathTiles_[i] = (root ? 0 : pathTiles_[parent]) + ceilDiv(int64_t{node.tokens}, forestTileKeys);
    pathSegments_[i] = (root ? 0 : pathSegments_[parent]) + (node.tokens > 0);
  }
  for (size_t i = count; i-- > 0;)
    if (nodes_[i].parent >= 0)
      rowsBelow_[static_cast<size_t>(nodes_[i].parent)] += rowsBelow_[i];
}

/// Adds the row tiles of `rows` query rows, `times` over. Returns the number of entries.
int ForestPlanner::addWorkTiles(int32_t node, int64_t rows, int64_t times, int32_t segments, int64_t tiles,
                                bool partial) {
  const int64_t packed = rows * workload_->groupSize(), copies = times * workload_->kvHeads;
  const auto full = packed / forestTileRows;
  const auto rest = static_cast<int32_t>(packed % forestTileRows);
  if (full)
    workTiles_.push_back(
        {node, segments, static_cast<int32_t>(forestTileRows), partial, tiles, copies * full});
  if (rest)
    workTiles_.push_back({node, segments, rest, partial, tiles, copies});
  return (full > 0) + (rest > 0);
}

void ForestPlanner::buildByQuery() {
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].rows > 0 && pathTiles_[i] > 0)
      addWorkTiles(static_cast<int32_t>(i), 1, nodes_[i].rows, pathSegments_[i], pathTiles_[i], false);
}

/// Makes a work tile for each node with tokens that rows see. If work tiles are cut (flatten), a node with
/// the rows of the work tile above it continues that work tile: a tree of one path is a sequence, without
/// partials.
void ForestPlanner::buildByNode() {
  const size_t count = nodes_.size();
  workTileAbove_.assign(count, -1); // the nearest work tile, the node's own included
  sameRows_.assign(count, -1);      // the work tile of exactly the node's rows
  const auto sameNode = [&](int32_t workTile, auto &&visit) {
    const int32_t node = workTiles_[static_cast<size_t>(workTile)].node;
    for (auto u = static_cast<size_t>(workTile); u < workTiles_.size() && workTiles_[u].node == node; ++u)
      visit(workTiles_[u]);
  };
  for (size_t i = 0; i < count; ++i) {
    const ForestNode &node = nodes_[i];
    const auto parent = static_cast<size_t>(node.parent);
    const int32_t above = node.parent < 0 ? -1 : workTileAbove_[parent];
    workTileAbove_[i] = above;
    if (node.parent >= 0 && rowsBelow_[i] == rowsBelow_[parent])
      sameRows_[i] = sameRows_[parent];
    if (node.tokens == 0 || rowsBelow_[i] == 0)
      continue;
    const int64_t tiles = ceilDiv(int64_t{node.tokens}, forestTileKeys);
    const auto self = static_cast<int32_t>(i);
    if (cutting() && sameRows_[i] >= 0) {
      const int32_t previous = workTiles_[static_cast<size_t>(sameRows_[i])].node;
      for (auto u = static_cast<size_t>(sameRows_[i]);
           u < workTiles_.size() && workTiles_[u].node == previous; ++u) {
        workTiles_[u].tiles += tiles;
        ++workTiles_[u].segments;
        workTiles_[u].node = self;
      }
      continue;
    }
    if (above >= 0)
      sameNode(above, [](ForestWorkTile &workTile) { workTile.partial = true; });
    const auto first = static_cast<int32_t>(workTiles_.size());
    const int64_t chunk = chunkTokens / forestTileKeys;
    if (options_.strategy == Strategy::ByNodeChunk && tiles > chunk) {
      addWorkTiles(self, rowsBelow_[i], tiles / chunk, 1, chunk, true);
      if (tiles % chunk)
        addWorkTiles(self, rowsBelow_[i], 1, 1, tiles % chunk, true);
    } else {
      addWorkTiles(self, rowsBelow_[i], 1, 1, tiles, above >= 0);
    }
    workTileAbove_[i] = sameRows_[i] = first;
  }
  for (size_t i = 0; i < count; ++i)
    if (nodes_[i].rows > 0 && workTileAbove_[i] >= 0 &&
        workTiles_[static_cast<size_t>(workTileAbove_[i])].partial)
      mergedOutputs_ += int64_t{nodes_[i].rows} * workload_->qHeads;
}

Result<ForestStats> ForestPlanner::plan(std::span<const ForestNode> nodes) {
  const Workload &w = *workload_;
  nodes_ = nodes;
  workTiles_.clear();
  mergedOutputs_ = 0;
  findPaths();
  const bool byQuery = options_.strategy == Strategy::ByQuery;
  byQuery ? buildByQuery() : buildByNode();

  Wide tiles = 0, copies = 0, packedRows = 0, partialRows = 0, segmentReads = 0;
  ForestStats stats;
  for (const ForestWorkTile &workTile : workTiles_) {
    tiles += Wide{workTile.tiles} * workTile.copies;
    copies += workTile.copies;
    packedRows += Wide{workTile.packedRows} * workTile.copies;
    partialRows += workTile.partial ? Wide{workTile.packedRows} * workTile.copies : 0;
    segmentReads += Wide{workTile.segments} * workTile.copies;
    const int64_t tileRows = workTile.packedRows <= forestSmallRows ? forestSmallRows : forestTileRows;
    stats.flops += 4.0 * static_cast<double>(tileRows) * forestTileKeys * w.dim *
                   static_cast<double>(workTile.tiles) * static_cast<double>(workTile.copies);
  }
  if (tiles > wideLimit >> 8)
    return inputError("the key tiles of one layer exceed 55 bits");
  stats.tiles = static_cast<int64_t>(tiles);

  Cuts cuts;
  if (cutting()) {
    shares_ = chooseShares(stats.tiles);
    cuts = cutInto(shares_);
    stats.usedBlocks = shares_;
    stats.maxTiles = shares_ ? ceilDiv(stats.tiles, shares_) : 0;
  } else {
    dealWhole(false);
    stats.usedBlocks =
        static_cast<int>(std::count_if(loads_.begin(), loads_.end(), [](int64_t load) { return load > 0; }));
    stats.maxTiles = *std::max_element(loads_.begin(), loads_.end());
  }

  // Tokens read: a copy of a work tile reads each of its nodes once.
  Wide tokens = 0, rows = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Wide tilesOfRows = ceilDiv(int64_t{rowsBelow_[i]} * w.groupSize(), forestTileRows);
    tokens += byQuery ? Wide{nodes_[i].rows} * ceilDiv(w.groupSize(), forestTileRows) * pathTokens_[i]
                      : tilesOfRows * nodes_[i].tokens;
    rows += nodes_[i].rows;
  }
  partialRows += cuts.partialRows;
  const Wide tasks = copies + cuts.count;
  const Wide merged = Wide{mergedOutputs_} + cuts.outputs;
  const Wide kv = tokens * w.kvHeads * w.bytesPerTokenPerHead;
  const Wide partial = 2 * partialRows * (w.dim + 1) * 4;
  const Wide metadata = (Wide{options_.blocks} + 1) * 4 + tasks * sizeof(PlanTask) +
                        (segmentReads + cuts.segments) * sizeof(PlanSegment) +
                        (merged + 1 + merged + partialRows) * 4;
  const Wide query = (packedRows + cuts.packedRows) * w.dim * 2;
  const Wide output = rows * w.qHeads * (w.dim * 2 + 4);
  if (kv + partial + metadata + query + output > wideLimit)
    return inputError("the bytes of one layer exceed 63 bits");
  stats.kvBytes = static_cast<int64_t>(kv);
  stats.partialBytes = static_cast<int64_t>(partial);
  stats.metadataBytes = static_cast<int64_t>(metadata);
  stats.queryBytes = static_cast<int64_t>(query);
  stats.outputBytes = static_cast<int64_t>(output);
  stats.tasks = static_cast<int64_t>(tasks);
  stats.cuts = cuts.count;
  stats.rooflineSeconds = std::max(static_cast<double>(stats.bytes()) / options_.gpu->bytesPerSecond,
                                   stats.flops / options_.gpu->flopsPerSecond);
  stats.estimatedSeconds =
      std::max(stats.rooflineSeconds, static_cast<double>(stats.maxTiles) * tileSeconds());
  return stats;
}

} // namespace attn::rt
