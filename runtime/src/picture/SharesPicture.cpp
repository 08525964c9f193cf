//===- SharesPicture.cpp - What every block does, drawn -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/picture/Picture.h"
#include "picture/Svg.h"

#include <algorithm>

namespace attn::rt {

static_assert(SharesPicture::mostSeries == svg::mostSeries);

namespace {

constexpr double left = 56, lineHeight = 15;
constexpr double axisHeight = 40; ///< for the numbers below a panel and the axis's name below them
constexpr double narrowest = 0.8; ///< pixels
constexpr int mostBlocks = 264;

/// No line longer than the picture is wide; what is cut off stands below, where its first word's value is.
std::vector<std::string> wrapped(const std::vector<std::string> &lines) {
  constexpr size_t most = 155, margin = 10;
  std::vector<std::string> out;
  for (std::string line : lines) {
    while (line.size() > most) {
      const size_t space = line.rfind(' ', most),
                   end = space == std::string::npos || space <= margin ? most : space;
      out.push_back(line.substr(0, end));
      line = std::string(margin, ' ') + line.substr(end == space ? end + 1 : end);
    }
    out.push_back(line);
  }
  return out;
}

} // namespace

SharesPicture::SharesPicture(int blocks, int64_t longest, std::function<std::string(const Run &)> describe)
    : blocks_(blocks), drawn_(std::min(blocks, mostBlocks)), row_(std::clamp(800.0 / drawn_, 3.0, 18.0)),
      perUnit_(panelWidth / static_cast<double>(std::max<int64_t>(longest, 1))),
      describe_(std::move(describe)), loads_(static_cast<size_t>(blocks), 0),
      open_(static_cast<size_t>(drawn_)) {}

bool SharesPicture::tooNarrow(int64_t length) const {
  return static_cast<double>(length) * perUnit_ < narrowest;
}

void SharesPicture::add(Run run) {
  int64_t &load = loads_[static_cast<size_t>(run.block)];
  run.begin = load;
  load += run.length;
  if (!isDrawn(run.block))
    return;
  Run &last = open_[static_cast<size_t>(run.block)];
  const bool same = last.node == run.node && last.faint == run.faint && last.partial == run.partial &&
                    last.detail == run.detail;
  if (last.length > 0 && (same || tooNarrow(std::min(last.length, run.length)))) {
    const int64_t begin = last.begin, length = last.length + run.length;
    if (run.length > last.length)
      last = run;
    last.begin = begin;
    last.length = length;
    return;
  }
  flush(last);
  last = run;
}

void SharesPicture::flush(const Run &run) {
  if (run.length == 0)
    return;
  body_ += svg::box(left + static_cast<double>(run.begin) * perUnit_, run.block * row_,
                    static_cast<double>(run.length) * perUnit_, row_ * 0.9, {run.series, run.faint},
                    run.partial, describe_(run), run.mark < 0 ? "" : std::to_string(run.mark));
}

std::string SharesPicture::text(const Words &words, const std::string &panel, double panelHeight) {
  for (const Run &run : open_)
    flush(run);
  const std::vector<std::string> lines = wrapped(words.lines);
  const double head = 10 + lineHeight * static_cast<double>(lines.size()) + 28;
  const double top = head + (panelHeight > 0 ? panelHeight + axisHeight : 0), bottom = top + drawn_ * row_;
  double entryX = left, entryY = bottom + axisHeight;
  std::string legend;
  const auto entry = [&](const std::function<std::string(double, double)> &swatch, const std::string &what) {
    const double width = 32 + svg::widthOf(what, 10);
    if (entryX > left && entryX + width > left + panelWidth)
      entryX = left, entryY += lineHeight;
    legend += swatch(entryX, entryY - 8) + svg::text(entryX + 14, entryY, what, {10});
    entryX += width;
  };
  const auto filled = [](svg::Fill fill) {
    return [fill](double x, double y) { return svg::swatch(x, y, fill); };
  };
  for (size_t series = 0; series < words.series.size(); ++series)
    entry(filled({static_cast<int>(series)}), words.series[series]);
  if (!words.start.empty())
    entry(filled({}), words.start);
  if (!words.faint.empty())
    entry(filled({0, true}), "fainter: " + words.faint);
  if (words.partials)
    entry(svg::framedSwatch, "framed: a part of results, to be merged");
  std::string out = svg::begin(left + panelWidth + 20, entryY + 2 * lineHeight);
  for (size_t i = 0; i < lines.size(); ++i)
    out += svg::text(8, 20 + lineHeight * static_cast<double>(i), lines[i], {i == 0 ? 13 : 10});
  if (panelHeight > 0)
    out += svg::moved(left, head, panel);
  std::string shares = body_;
  for (int block = 0; block < drawn_; block += std::max(1, static_cast<int>(14 / row_)))
    shares += svg::text(left - 6, block * row_ + row_ * 0.45 + 3, std::to_string(block), {9, "end"});
  shares += svg::text(left - 6, -9, "block", {9, "end"});
  shares +=
      svg::axis(left, drawn_ * row_ + 2, panelWidth, panelWidth / perUnit_ / words.unit, words.axis, false);
  out += svg::moved(0, top, shares) + legend;
  const std::string some = drawn_ < blocks_ ? "; the first " + std::to_string(drawn_) + " of " +
                                                  std::to_string(blocks_) + " blocks"
                                            : "";
  return out + svg::text(left, entryY + lineHeight, words.caption + some) + "</svg>\n";
}

} // namespace attn::rt
