//===- Svg.cpp - Who does what: blocks x time, coloured by node -----------===//
//
// Every rectangle is a run of key tiles that one block reads from one node, its
// height a block, its width time. Runs too narrow to see are drawn as one.
//
//===----------------------------------------------------------------------===//
#include "Report.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace attn::plan {

namespace {

constexpr double width = 960, left = 44, top = 40;
constexpr double narrowest = 0.8; ///< pixels
constexpr int mostBlocks = 264;

/// Neighbouring numbers get distant hues.
std::string colour(int32_t node) {
  char text[48];
  snprintf(text, sizeof(text), "hsl(%d,%d%%,%d%%)", static_cast<int>(node * int64_t{137} % 360),
           55 + node % 3 * 12, 48 + node % 4 * 7);
  return text;
}

class Picture {
public:
  Picture(const rt::Workload &workload, size_t step, const rt::ForestOptions &options, int64_t maxTiles)
      : nodes_(workload.steps[step].nodes), drawn_(std::min(options.blocks, mostBlocks)),
        row_(std::clamp(800.0 / drawn_, 3.0, 18.0)),
        perTile_((width - left - 8) / static_cast<double>(std::max<int64_t>(maxTiles, 1))),
        loads_(static_cast<size_t>(options.blocks), 0) {}

  void add(const rt::ForestPiece &piece, const rt::ForestUnit &unit) {
    int64_t &load = loads_[static_cast<size_t>(piece.block)];
    const int64_t begin = load;
    load += piece.tiles;
    if (piece.block >= drawn_)
      return;
    // One copy after the other, each along its nodes, unless they are too narrow for that.
    if (static_cast<double>(unit.tiles) * perTile_ < narrowest || unit.segments == 1)
      return draw(piece.block, begin, piece.tiles, unit.node, unit);
    path_.clear();
    int64_t tiles = unit.tiles;
    for (int32_t node = unit.node; tiles > 0; node = nodes_[static_cast<size_t>(node)].parent) {
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
          draw(piece.block, begin + done, here, node, unit);
        done += here;
      }
  }

  std::string text(const std::string &title) {
    for (auto &[block, run] : open_)
      flush(block, run);
    const double height = top + drawn_ * row_ + 34;
    char head[512];
    snprintf(head, sizeof(head),
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n"
             "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
             width, height, width, height);
    std::string out = head;
    out += "<text x=\"8\" y=\"20\" font-size=\"14\">" + title + "</text>\n";
    for (int block = 0; block < drawn_; block += std::max(1, static_cast<int>(14 / row_)))
      out += "<text x=\"" + number(left - 6) + "\" y=\"" + number(top + (block + 1) * row_) +
             "\" text-anchor=\"end\" font-size=\"9\">" + std::to_string(block) + "</text>\n";
    out += body_;
    const std::string bottom = number(top + drawn_ * row_ + 20);
    out += "<text x=\"" + number(left) + "\" y=\"" + bottom + "\">time: key tiles of " +
           std::to_string(rt::forestTileKeys) + " tokens; rows: blocks; colours: nodes" +
           (drawn_ < static_cast<int>(loads_.size())
                ? "; the first " + std::to_string(drawn_) + " of " + std::to_string(loads_.size()) + " blocks"
                : "") +
           "</text>\n</svg>\n";
    return out;
  }

private:
  struct Run {
    int64_t begin = 0, tiles = 0;
    int32_t node = -1, rows = 0;
  };
  const std::vector<rt::ForestNode> &nodes_;
  int drawn_;
  double row_, perTile_;
  std::vector<int64_t> loads_;
  std::vector<std::pair<int32_t, int64_t>> path_;
  std::map<int, Run> open_;
  std::string body_;

  static std::string number(double value) {
    char text[32];
    snprintf(text, sizeof(text), "%.2f", value);
    return text;
  }

  void draw(int block, int64_t begin, int64_t tiles, int32_t node, const rt::ForestUnit &unit) {
    Run &run = open_[block];
    const bool narrow = static_cast<double>(std::min(run.tiles, tiles)) * perTile_ < narrowest;
    const bool adjacent = run.begin + run.tiles == begin;
    if (run.tiles > 0 && adjacent && (run.node == node || narrow)) {
      if (tiles > run.tiles)
        run.node = node;
      run.tiles += tiles;
      return;
    }
    flush(block, run);
    run = {begin, tiles, node, unit.packedRows};
  }

  void flush(int block, const Run &run) {
    if (run.tiles == 0)
      return;
    body_ += "<rect x=\"" + number(left + static_cast<double>(run.begin) * perTile_) + "\" y=\"" +
             number(top + block * row_) + "\" width=\"" + number(static_cast<double>(run.tiles) * perTile_) +
             "\" height=\"" + number(row_ * 0.9) + "\" fill=\"" + colour(run.node) +
             "\" stroke=\"#fff\" stroke-width=\"0.2\"><title>block " + std::to_string(block) + ", node " +
             std::to_string(run.node) + " (" + std::to_string(nodes_[static_cast<size_t>(run.node)].tokens) +
             " tokens): " + std::to_string(run.tiles) + " tiles of " + std::to_string(run.rows) +
             " packed rows</title></rect>\n";
  }
};

} // namespace

std::string svgText(const rt::Workload &workload, size_t step, const rt::ForestOptions &options) {
  rt::ForestPlanner planner(workload, options);
  const rt::Result<rt::ForestStats> stats = planner.plan(workload.steps[step].nodes);
  Picture picture(workload, step, options, stats ? stats->maxTiles : 0);
  if (stats)
    planner.forEachPiece([&](const rt::ForestPiece &piece) {
      picture.add(piece, planner.units()[static_cast<size_t>(piece.unit)]);
    });
  char title[160];
  snprintf(title, sizeof(title), "%s, step %zu of %zu, one layer: %.1f tiles a block, the most %lld (%.3f)",
           std::string(rt::strategyNames[static_cast<size_t>(options.strategy)]).c_str(), step,
           workload.steps.size(), stats ? stats->meanTiles() : 0.0,
           static_cast<long long>(stats ? stats->maxTiles : 0), stats ? stats->balance() : 1.0);
  return picture.text(title);
}

} // namespace attn::plan
