//===- Csv.cpp - One integer column of a CSV file -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/support/Csv.h"
#include "attn_rt/support/File.h"

#include <charconv>

namespace attn::rt {

namespace {

class Reader {
public:
  explicit Reader(std::string_view text) : text_(text) {
    if (text_.starts_with("\xef\xbb\xbf"))
      text_.remove_prefix(3);
  }

  bool atEnd() const { return position_ >= text_.size(); }
  int line() const { return line_; }

  /// Reads the cells of the next record, empty for a blank line; returns an error text if it is malformed.
  std::optional<std::string> next(std::vector<std::string> &cells) {
    cells.clear();
    recordLine_ = line_;
    for (bool more = true; more;) {
      std::string cell;
      if (peek() == '"') {
        if (auto problem = quoted(cell))
          return problem;
      } else {
        while (!atEnd() && peek() != ',' && peek() != '\n' && peek() != '\r')
          cell += text_[position_++];
      }
      cells.push_back(std::move(cell));
      more = peek() == ',';
      if (more)
        ++position_;
    }
    if (peek() == '\r')
      ++position_;
    if (!atEnd() && peek() != '\n')
      return "line " + std::to_string(line_) + ": expected ',' or the end of the line after a quoted cell";
    ++position_;
    ++line_;
    if (cells.size() == 1 && cells[0].empty())
      cells.clear();
    return std::nullopt;
  }
  int recordLine() const { return recordLine_; }

private:
  std::string_view text_;
  size_t position_ = 0;
  int line_ = 1, recordLine_ = 1;

  char peek() const { return atEnd() ? '\0' : text_[position_]; }

  std::optional<std::string> quoted(std::string &cell) {
    const int opened = line_;
    for (++position_; !atEnd(); ++position_) {
      if (peek() == '"') {
        ++position_;
        if (peek() != '"')
          return std::nullopt;
      }
      if (peek() == '\n')
        ++line_;
      cell += peek();
    }
    return "line " + std::to_string(opened) + ": a quoted cell is never closed";
  }
};

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
}

std::string shorten(const std::string &text) { return text.size() > 40 ? text.substr(0, 40) + "…" : text; }

} // namespace

Result<std::vector<int64_t>> readCsvColumn(std::string_view text, std::string_view column,
                                           std::string_view name) {
  const std::string prefix = "CSV file '" + std::string(name) + "': ";
  Reader reader(text);
  std::vector<std::string> header, cells;
  while (header.empty() && !reader.atEnd())
    if (auto problem = reader.next(header))
      return inputError(prefix + *problem);
  if (header.empty())
    return inputError(prefix + "expected a first line with the names of the columns, got an empty file");
  size_t index = header.size();
  std::string list;
  for (size_t i = 0; i < header.size(); ++i) {
    list += (i ? ", '" : "'") + shorten(header[i]) + "'";
    if (index == header.size() && trim(header[i]) == trim(column))
      index = i;
  }
  if (index == header.size())
    return inputError(prefix + "no column '" + std::string(column) + "'; its columns are " + list);

  std::vector<int64_t> values;
  while (!reader.atEnd()) {
    if (auto problem = reader.next(cells))
      return inputError(prefix + *problem);
    if (cells.empty())
      continue;
    const std::string line = "line " + std::to_string(reader.recordLine()) + ": ";
    if (cells.size() != header.size())
      return inputError(prefix + line + "expected " + std::to_string(header.size()) + " cells, got " +
                        std::to_string(cells.size()));
    const std::string_view cell = trim(cells[index]);
    int64_t value = 0;
    auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (code == std::errc::result_out_of_range)
      return inputError(prefix + line + "'" + shorten(cells[index]) + "' does not fit 64 bits");
    if (code != std::errc() || end != cell.data() + cell.size())
      return inputError(prefix + line + "expected an integer in column '" + std::string(column) + "', got '" +
                        shorten(cells[index]) + "'");
    values.push_back(value);
  }
  if (values.empty())
    return inputError(prefix + "expected at least one line below the names of the columns");
  return values;
}

Result<std::vector<int64_t>> readCsvReference(std::string_view reference) {
  std::string_view rest = reference;
  if (rest.starts_with('@'))
    rest.remove_prefix(1);
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == rest.size())
    return inputError("expected @FILE.csv:COLUMN, got '" + std::string(reference) + "'");
  const std::string path(rest.substr(0, colon));
  Result<std::string> text = readFile(path);
  if (!text)
    return text.error();
  return readCsvColumn(*text, rest.substr(colon + 1), path);
}

} // namespace attn::rt
