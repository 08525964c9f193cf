//===- Svg.h - The few elements that pictures need --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_PICTURE_SVG_H
#define ATTN_RT_PICTURE_SVG_H

#include <cstdio>
#include <iterator>
#include <string>
#include <tuple>

namespace attn::rt::svg {

inline std::string number(double value) {
  char text[32];
  snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

/// Escapes text for SVG: users choose the names of tensors and classes.
inline std::string escaped(const std::string &text) {
  std::string out;
  for (char c : text)
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

// Colours are those of python/attn/describe/drawing.py: of series in order, of words, lines, the page, and of
// what belongs to no series. A viewer on a dark screen takes the second of a pair.
inline constexpr const char *colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#a6611a"};
inline constexpr int mostSeries = static_cast<int>(std::size(colours));
inline constexpr const char *ink[] = {"#1f2328", "#e6edf3"}, *lines[] = {"#6e7781", "#9198a1"},
                            *paper[] = {"#ffffff", "#0d1117"}, *empty[] = {"#f2f2f2", "#21262d"};
/// How opaque the colour of a part is.
inline constexpr const char *pale = "0.4";
/// Width of a character over the size of its font.
inline constexpr double character = 0.6;

inline std::string begin(double width, double height) {
  const std::string w = number(width), h = number(height);
  std::string style = "<style>@media (prefers-color-scheme: dark) {";
  for (const auto &[name, kind, colour] :
       {std::tuple(".attn-ink", "fill", ink), std::tuple(".attn-line", "stroke", lines),
        std::tuple(".attn-frame", "stroke", ink), std::tuple(".attn-seam", "stroke", paper),
        std::tuple(".attn-empty", "fill", empty), std::tuple(".attn-paper", "fill", paper)})
    style += std::string(name) + " {" + kind + ": " + colour[1] + "} ";
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h + "\" viewBox=\"0 0 " +
         w + " " + h + "\">\n" + style +
         "}</style>\n<rect class=\"attn-paper\" width=\"100%\" height=\"100%\" fill=\"" + paper[0] + "\"/>\n";
}

struct Font {
  int size = 11;
  const char *anchor = "start";
  const char *fill = nullptr; ///< ink where there is none
};

inline double widthOf(const std::string &words, int size) {
  return character * size * static_cast<double>(words.size());
}

inline std::string text(double x, double y, const std::string &words, Font font = {}) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" font-size=\"" + std::to_string(font.size) +
         "\" text-anchor=\"" + font.anchor + "\" font-family=\"monospace\" " +
         (font.fill ? "fill=\"" + std::string(font.fill)
                    : "class=\"attn-ink\" fill=\"" + std::string(ink[0])) +
         "\" xml:space=\"preserve\">" + escaped(words) + "</text>\n";
}

/// How something is filled: the colour of a series, also a faint one, or that of no series.
struct Fill {
  int series = -1;
  bool faint = false;
  std::string attributes() const {
    if (series < 0)
      return "class=\"attn-empty\" fill=\"" + std::string(empty[0]) + "\"";
    return "fill=\"" + std::string(colours[series % mostSeries]) + "\"" +
           (faint ? " fill-opacity=\"" + std::string(pale) + "\"" : "");
  }
  /// The colour of words inside; null where ink serves.
  const char *words() const { return series < 0 || faint || series % 2 == 1 ? nullptr : paper[0]; }
};

/// `framed`: with a line of ink around it, else of the page's colour.
inline std::string rectangle(double x, double y, double width, double height, Fill fill, bool framed) {
  std::string attributes = fill.attributes();
  const std::string stroke = framed ? "attn-frame" : "attn-seam";
  if (const size_t at = attributes.find("class=\""); at != std::string::npos)
    attributes.insert(at + 7, stroke + " ");
  else
    attributes = "class=\"" + stroke + "\" " + attributes;
  return "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) + "\" height=\"" +
         number(height) + "\" " + attributes + " stroke=\"" + (framed ? ink[0] : paper[0]) +
         "\" stroke-width=\"0.6\"";
}

/// A rectangle that shows `title` when it is pointed at and, where there is room, `mark` inside.
inline std::string box(double x, double y, double width, double height, Fill fill, bool framed,
                       const std::string &title, const std::string &mark) {
  constexpr int size = 9;
  std::string out =
      rectangle(x, y, width, height, fill, framed) + "><title>" + escaped(title) + "</title></rect>\n";
  if (!mark.empty() && height > size && width > widthOf(mark, size) + 4)
    out += text(x + width / 2, y + height / 2 + 3, mark, {size, "middle", fill.words()});
  return out;
}

/// The entry of a legend.
inline std::string swatch(double x, double y, Fill fill) {
  std::string attributes = fill.attributes();
  if (fill.series < 0)
    attributes.insert(attributes.find('"') + 1, "attn-line ");
  else
    attributes = "class=\"attn-line\" " + attributes;
  return "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"10\" height=\"9\" " + attributes +
         " stroke=\"" + lines[0] + "\" stroke-width=\"0.6\"/>\n";
}
/// The entry for what is framed.
inline std::string framedSwatch(double x, double y) {
  return "<rect class=\"attn-frame attn-paper\" x=\"" + number(x) + "\" y=\"" + number(y) +
         "\" width=\"10\" height=\"9\" fill=\"" + paper[0] + "\" stroke=\"" + ink[0] +
         "\" stroke-width=\"1.2\"/>\n";
}

inline std::string line(double x0, double y0, double x1, double y1) {
  return "<path class=\"attn-line\" d=\"M" + number(x0) + " " + number(y0) + "L" + number(x1) + " " +
         number(y1) + "\" stroke=\"" + lines[0] + "\" stroke-width=\"0.8\" fill=\"none\"/>\n";
}

/// A round distance for about `count` ticks from 0 to `last`: 1, 2 or 5 times a power of ten, never a
/// fraction.
inline double tick(double last, double count) {
  double step = 1;
  for (int i = 0; step * count < last; ++i)
    step *= i % 3 == 1 ? 2.5 : 2;
  return step;
}

/// An axis with numbers from 0 to `last`, from (x, y) on, of the given length: to the right, with numbers
/// below the line, or downwards, with numbers left of it. `what` names the quantity.
inline std::string axis(double x, double y, double length, double last, const std::string &what,
                        bool downwards) {
  std::string out = downwards ? line(x, y, x, y + length) : line(x, y, x + length, y);
  const double step = tick(last, downwards ? length / 24 : length / 90);
  char words[32];
  for (int i = 0; step * i <= last; ++i) {
    const double value = step * i, at = last > 0 ? value / last * length : 0;
    snprintf(words, sizeof(words), "%.0f", value);
    out += downwards ? line(x - 3, y + at, x, y + at) + text(x - 5, y + at + 3, words, {9, "end"})
                     : line(x + at, y, x + at, y + 3) + text(x + at, y + 12, words, {9, "middle"});
  }
  return out +
         (downwards ? text(x - 5, y - 8, what, {9, "end"}) : text(x + length, y + 23, what, {9, "end"}));
}

inline std::string moved(double x, double y, const std::string &what) {
  return "<g transform=\"translate(" + number(x) + "," + number(y) + ")\">\n" + what + "</g>\n";
}

} // namespace attn::rt::svg

#endif
