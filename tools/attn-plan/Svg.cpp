//===- Svg.cpp - Pictures of plans: blocks x time, coloured by node -------===//
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
        }) {}

  void add(const rt::ForestPiece &piece, const rt::ForestWorkTile &workTile) {
    const auto draw = [&](int64_t tiles, int32_t node) {
      shares_.add({piece.block, 0, tiles, node, 0, false, workTile.packedRows});
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
    words.axis = "tiles that a block reads, of " + std::to_string(rt::forestTileKeys) + " tokens";
    constexpr size_t most = 8;
    for (size_t node = 0; node < std::min(nodes_.size(), most); ++node)
      words.legend.emplace_back(
          rt::SharesPicture::colour(static_cast<int32_t>(node), 0),
          "node " + std::to_string(node) +
              (node + 1 == most && nodes_.size() > most
                   ? ", ... to " + std::to_string(nodes_.size() - 1) + ", each in its colour"
                   : ""));
    return shares_.text(words);
  }

private:
  const std::vector<rt::ForestNode> &nodes_;
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
