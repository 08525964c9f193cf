//===- SharesPicture.cpp - What every block does, drawn -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/picture/Picture.h"
#include "picture/Svg.h"

#include <algorithm>
#include <cmath>

namespace attn::rt {

namespace {

constexpr double left = 56, lineHeight = 15;
constexpr double axisHeight = 40; ///< for the numbers below a panel and the axis's name below them
constexpr double narrowest = 0.8; ///< pixels
constexpr int mostBlocks = 264;

} // namespace

SharesPicture::SharesPicture(int blocks, int64_t longest, std::function<std::string(const Run &)> describe)
    : blocks_(blocks), drawn_(std::min(blocks, mostBlocks)), row_(std::clamp(800.0 / drawn_, 3.0, 18.0)),
      perUnit_(panelWidth / static_cast<double>(std::max<int64_t>(longest, 1))),
      describe_(std::move(describe)), loads_(static_cast<size_t>(blocks), 0),
      open_(static_cast<size_t>(drawn_)) {}

std::string SharesPicture::colour(int32_t node, int32_t headClass) {
  if (node < 0)
    return "#ccc";
  const double hue = static_cast<double>(node * int64_t{137} % 360) / 30;
  const double saturation = (55 + node % 3 * 12) / 100.0;
  const double lightness = std::min(48 + node % 4 * 7 + 18 * headClass, 90) / 100.0;
  const auto channel = [&](double n) {
    const double k = std::fmod(n + hue, 12);
    const double bend = std::clamp(std::min(k - 3, 9 - k), -1.0, 1.0);
    return static_cast<int>(
        std::lround(255 * (lightness - saturation * std::min(lightness, 1 - lightness) * bend)));
  };
  char text[8];
  snprintf(text, sizeof(text), "#%02x%02x%02x", channel(0), channel(8), channel(4));
  return text;
}

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
  const bool same = last.node == run.node && last.headClass == run.headClass && last.partial == run.partial &&
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
                    static_cast<double>(run.length) * perUnit_, row_ * 0.9, colour(run.node, run.headClass),
                    run.partial ? "#000" : "#fff", describe_(run));
}

std::string SharesPicture::text(const Words &words, const std::string &panel, double panelHeight) {
  for (const Run &run : open_)
    flush(run);
  const double head = 10 + lineHeight * static_cast<double>(words.lines.size()) + 22;
  const double top = head + (panelHeight > 0 ? panelHeight + axisHeight : 0), bottom = top + drawn_ * row_;
  double entryX = left, entryY = bottom + axisHeight;
  std::string legend;
  const auto entry = [&](const std::string &fill, const char *stroke, const std::string &what) {
    const double width = 22 + 6.2 * static_cast<double>(what.size());
    if (entryX > left && entryX + width > left + panelWidth)
      entryX = left, entryY += lineHeight;
    legend += svg::swatch(entryX, entryY - 8, fill, stroke) + svg::text(entryX + 14, entryY, what, {10});
    entryX += width;
  };
  for (const auto &[fill, what] : words.legend)
    entry(fill, "#fff", what);
  if (words.partials)
    entry("#fff", "#000", "outlined: a part of results, to be merged");
  std::string out = svg::begin(left + panelWidth + 20, entryY + 2 * lineHeight);
  for (size_t i = 0; i < words.lines.size(); ++i)
    out += svg::text(8, 20 + lineHeight * static_cast<double>(i), words.lines[i],
                     i == 0 ? svg::Font{14} : svg::Font{10, "start", "monospace"});
  if (panelHeight > 0)
    out += svg::moved(left, head, panel);
  std::string shares = body_;
  for (int block = 0; block < drawn_; block += std::max(1, static_cast<int>(14 / row_)))
    shares += svg::text(left - 6, (block + 1) * row_, std::to_string(block), {9, "end"});
  shares += svg::text(left - 6, -6, "block", {9, "end"});
  shares +=
      svg::axis(left, drawn_ * row_ + 2, panelWidth, panelWidth / perUnit_ / words.unit, words.axis, false);
  out += svg::moved(0, top, shares) + legend;
  const std::string some = drawn_ < blocks_ ? "; the first " + std::to_string(drawn_) + " of " +
                                                  std::to_string(blocks_) + " blocks"
                                            : "";
  return out + svg::text(left, entryY + lineHeight, words.caption + some) + "</svg>\n";
}

} // namespace attn::rt
