//===- Svg.cpp - Who does what: blocks x time, coloured by depth ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every box is a run of key tiles that one block reads from one node.
//
//===----------------------------------------------------------------------===//
#include "Report.h"
#include "attn_rt/picture/Picture.h"

#include <algorithm>
#include <cstdio>

namespace attn::plan {

namespace {

class Picture {
public:
  Picture(const rt::Workload &workload, size_t step, const rt::ForestOptions &options, int64_t maxTiles)
      : nodes_(workload.steps[step].nodes),
        shares_(options.blocks, maxTiles, [this](const rt::SharesPicture::Run &run) {
          return "block " + std::to_string(run.block) + ", node " + std::to_string(run.node) + " (" +
                 std::to_string(nodes_[static_cast<size_t>(run.node)].tokens) +
                 " tokens): " + std::to_string(run.length) + " tiles of " + std::to_string(run.detail) +
                 " packed rows";
        }) {
    for (const rt::ForestNode &node : nodes_)
      depths_.push_back(node.parent < 0 ? 0 : depths_[static_cast<size_t>(node.parent)] + 1);
  }

  void add(const rt::ForestPiece &piece, const rt::ForestWorkTile &workTile) {
    const auto draw = [&](int64_t tiles, int32_t node) {
      const int32_t depth = std::min(depths_[static_cast<size_t>(node)], deepest);
      shares_.add({piece.block, 0, tiles, node, depth, node, false, false, workTile.packedRows});
    };
    // Draws one copy after the other, each along its nodes, unless they are too narrow.
    if (!shares_.isDrawn(piece.block) || shares_.tooNarrow(workTile.tiles) || workTile.segments == 1)
      return draw(piece.tiles, workTile.node);
    path_.clear();
    int64_t tiles = workTile.tiles;
    for (int32_t node = workTile.node; tiles > 0; node = nodes_[static_cast<size_t>(node)].parent) {
      const int64_t own =
          (nodes_[static_cast<size_t>(node)].tokens + rt::forestTileKeys - 1) / rt::forestTileKeys;
      tiles -= own;
      if (own > 0)
        path_.push_back({node, own});
    }
    std::reverse(path_.begin(), path_.end());
    int64_t skip = piece.begin, done = 0;
    while (done < piece.tiles)
      for (const auto &[node, own] : path_) {
        const int64_t here = std::min(own - std::min(skip, own), piece.tiles - done);
        skip -= std::min(skip, own);
        if (here > 0)
          draw(here, node);
        done += here;
      }
  }

  std::string text(const std::string &title) {
    rt::SharesPicture::Words words;
    words.lines = {title};
    words.axis = "what a block reads, in tiles of " + std::to_string(rt::forestTileKeys) + " tokens";
    const int32_t last = depths_.empty() ? -1 : *std::max_element(depths_.begin(), depths_.end());
    for (int32_t depth = 0; depth <= std::min(last, deepest); ++depth)
      words.series.push_back("nodes of depth " + std::to_string(depth) +
                             (depth == deepest && last > deepest ? " and below" : ""));
    words.caption = "numbers in boxes: nodes";
    return shares_.text(words);
  }

private:
  static constexpr int32_t deepest = rt::SharesPicture::mostSeries - 1;
  const std::vector<rt::ForestNode> &nodes_;
  std::vector<int32_t> depths_; ///< of nodes, parents before children
  rt::SharesPicture shares_;
  std::vector<std::pair<int32_t, int64_t>> path_;
};

} // namespace

std::string svgText(const rt::Workload &workload, size_t step, const rt::ForestOptions &options) {
  rt::ForestPlanner planner(workload, options);
  const rt::Result<rt::ForestStats> stats = planner.plan(workload.steps[step].nodes);
  Picture picture(workload, step, options, stats ? stats->maxTiles : 0);
  if (stats)
    planner.forEachPiece([&](const rt::ForestPiece &piece) {
      picture.add(piece, planner.workTiles()[static_cast<size_t>(piece.workTile)]);
    });
  char title[160];
  snprintf(title, sizeof(title), "%s, step %zu of %zu, one layer: %.1f tiles a block, the most %lld (%.3f)",
           std::string(rt::strategyNames[static_cast<size_t>(options.strategy)]).c_str(), step,
           workload.steps.size(), stats ? stats->meanTiles() : 0.0,
           static_cast<long long>(stats ? stats->maxTiles : 0), stats ? stats->balance() : 1.0);
  return picture.text(title);
}

} // namespace attn::plan
