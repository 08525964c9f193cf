//===- Forest.h - What reading a forest costs, four ways --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ablation of DeFT (arXiv 2404.00242) on forests of any size, counted, not
// run. A strategy turns the nodes into *work tiles*: tiles of up to 128 packed rows,
// with the key tiles that they read, done once for each KV head.
//
//     by-query       each row reads its whole path (Radix, Flash-Decoding)
//     by-node        a node is one item for all rows below it, never cut
//     by-node-chunk  the same, cut into chunks of fixed length
//     flatten        the same, laid end to end and cut into equal shares
//
//     [prompt, head 0 . . . . . . . . . .][prompt, head 1 . . . .  ][a][a][b]
//     '---- block 0 ----'---- block 1 ----'---- block 2 ----'---- block 3 --'
//
// Work tiles that differ only in the KV head or the query row are one entry with a number
// of copies. So the work is O(nodes + blocks), while a list of tasks has nodes x heads or
// rows x heads entries. That is why this is not the Planner, which must write the list.
// The other difference: `flatten` here reads every node once for all of its rows, as in
// the paper. The Planner shares a node only if that saves more bytes than its partials
// cost. If every shared node pays, both count the same bytes and tiles (tested).
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_FOREST_FOREST_H
#define ATTN_RT_FOREST_FOREST_H

#include "attn_rt/plan/Gpu.h"
#include "attn_rt/plan/Strategy.h"
#include "attn_rt/workload/Workload.h"

#include <functional>
#include <optional>
#include <span>

namespace attn::rt {

struct ForestOptions {
  Strategy strategy = Strategy::Flatten;
  int blocks = 132;
  const GpuModel *gpu = &defaultGpu();
};

inline constexpr int64_t forestTileKeys = 64;  ///< tokens of a key tile
inline constexpr int64_t forestTileRows = 128; ///< packed rows of the larger kernel,
inline constexpr int64_t forestSmallRows = 16; ///< and of the smaller one

/// One step of one layer. Bytes are laid out and counted as in PlanStats; Q and O have 16 bits.
struct ForestStats {
  int64_t kvBytes = 0, partialBytes = 0, metadataBytes = 0, queryBytes = 0, outputBytes = 0;
  int64_t tasks = 0, cuts = 0;
  int64_t tiles = 0;    ///< key tiles of all blocks
  int64_t maxTiles = 0; ///< of the block with the most
  int usedBlocks = 0;
  double flops = 0;            ///< of whole tiles
  double rooflineSeconds = 0;  ///< the larger of: all bytes at full bandwidth, all FLOPs at the peak
  double estimatedSeconds = 0; ///< at least the time of the largest share

  double meanTiles() const { return usedBlocks ? static_cast<double>(tiles) / usedBlocks : 0; }
  double balance() const { return tiles ? static_cast<double>(maxTiles) / meanTiles() : 1; }
  int64_t bytes() const { return kvBytes + partialBytes + metadataBytes + queryBytes + outputBytes; }
};

/// Copies of a tile of packed rows that all read the same key tiles.
struct ForestWorkTile {
  int32_t node;     ///< the node of the row, for by-query
  int32_t segments; ///< nodes whose tokens are read
  int32_t packedRows;
  bool partial; ///< whether other work tiles hold results for some of its rows
  int64_t tiles;
  int64_t copies;
};

/// Part of one block's work: `tiles` key tiles of copies of one work tile, `begin` tiles after its start.
struct ForestPiece {
  int block;
  int32_t workTile;
  int64_t begin, tiles;
};

class ForestPlanner {
public:
  /// The workload must outlive the planner.
  ForestPlanner(const Workload &workload, ForestOptions options);

  /// Plans a step. The nodes must have passed checkForest. Fails only if a sum exceeds 63 bits.
  /// Deterministic.
  Result<ForestStats> plan(std::span<const ForestNode> nodes);

  /// Calls `sink` for each piece of the last plan, whose nodes must still exist: in the order of work tiles
  /// or, if shares are cut, of blocks.
  void forEachPiece(const std::function<void(const ForestPiece &)> &sink);
  std::span<const ForestWorkTile> workTiles() const { return workTiles_; }

private:
  struct Deal {
    int32_t workTile;
    int32_t block;
    int64_t copies;
  };
  const Workload *workload_;
  ForestOptions options_;
  std::vector<ForestWorkTile> workTiles_;
  std::vector<int32_t> rowsBelow_, workTileAbove_, sameRows_, order_, pathSegments_;
  std::vector<int64_t> pathTokens_, pathTiles_, loads_;
  std::vector<Deal> deals_;
  std::vector<std::pair<int64_t, int32_t>> heap_;
  std::span<const ForestNode> nodes_;
  int shares_ = 0; ///< 0: work tiles are assigned whole
  int64_t mergedOutputs_ = 0;

  struct Cuts {
    int64_t count = 0, partialRows = 0, segments = 0, outputs = 0, packedRows = 0;
  };
  bool cutting() const;
  void findPaths();
  int addWorkTiles(int32_t node, int64_t rows, int64_t times, int32_t segments, int64_t tiles, bool partial);
  void buildByQuery();
  void buildByNode();
  double tileSeconds() const;
  Cuts cutInto(int shares) const;
  int chooseShares(int64_t tiles) const;
  void dealWhole(bool record);
  void dealCopies(int32_t workTile, int64_t tiles, int64_t copies, bool record);
};

} // namespace attn::rt

#endif
