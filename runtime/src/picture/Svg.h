//===- Svg.h - The few elements that pictures need --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_PICTURE_SVG_H
#define ATTN_RT_PICTURE_SVG_H

#include <cstdio>
#include <string>

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

inline std::string begin(double width, double height) {
  const std::string w = number(width), h = number(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h + "\" viewBox=\"0 0 " +
         w + " " + h +
         "\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
}

struct Font {
  int size = 11;
  const char *anchor = "start", *family = "sans-serif";
};

inline std::string text(double x, double y, const std::string &words, Font font = {}) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" font-size=\"" + std::to_string(font.size) +
         "\" text-anchor=\"" + font.anchor + "\" font-family=\"" + font.family +
         "\" xml:space=\"preserve\">" + escaped(words) + "</text>\n";
}

inline std::string box(double x, double y, double width, double height, const std::string &fill,
                       const char *stroke, const std::string &title) {
  return "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) + "\" height=\"" +
         number(height) + "\" fill=\"" + fill + "\" stroke=\"" + stroke + "\" stroke-width=\"0.3\"><title>" +
         escaped(title) + "</title></rect>\n";
}

/// A coloured box of a legend.
inline std::string swatch(double x, double y, const std::string &fill, const char *stroke) {
  return "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"10\" height=\"9\" fill=\"" + fill +
         "\" stroke=\"" + stroke + "\" stroke-width=\"0.6\"/>\n";
}

inline std::string line(double x0, double y0, double x1, double y1) {
  return "<path d=\"M" + number(x0) + " " + number(y0) + "L" + number(x1) + " " + number(y1) +
         "\" stroke=\"#444\" stroke-width=\"0.6\" fill=\"none\"/>\n";
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
  const double step = tick(last, downwards ? length / 36 : length / 90);
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
