//===- Svg.h - The few elements that pictures need --------------*- C++ -*-===//
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

/// Names of tensors and classes are a user's.
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

inline std::string moved(double x, double y, const std::string &what) {
  return "<g transform=\"translate(" + number(x) + "," + number(y) + ")\">\n" + what + "</g>\n";
}

} // namespace attn::rt::svg

#endif
