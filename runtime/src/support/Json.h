//===- Json.h - JSON from outside, read with care ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// nlohmann's DOM with strict parsing: duplicate keys, deep nesting and syntax errors
// become a Status with line and column, and no exception is thrown. Cursor then walks
// a document by path. It remembers the first violation and skips everything after it,
// so that a reader can be straight-line code with one check at its end.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SUPPORT_JSON_H
#define ATTN_RT_SUPPORT_JSON_H

#include "attn_rt/support/Status.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

namespace attn::rt {

using Json = nlohmann::json;

/// Parses JSON. `what` begins the message ("manifest", "header of 'x.safetensors'").
Result<Json> parseJson(std::string_view text, std::string_view what);

/// Writes compact text; invalid UTF-8 is replaced and never throws.
std::string dumpJson(const Json &value, int indent = -1);

/// A short quotation of a value for messages.
std::string quoteJson(const Json &value);

class Cursor {
public:
  Cursor(const Json &value, std::string path, std::optional<Error> &error)
      : value_(&value), path_(std::move(path)), error_(&error) {}

  bool failed() const { return error_->has_value(); }
  const Json &value() const { return *value_; }
  const std::string &path() const { return path_; }
  /// Records `expected …, got <value>` at this path, unless something failed before.
  void expected(std::string_view what) const;
  void fail(std::string message) const;

  /// Returns a member that must exist.
  Cursor operator[](std::string_view key) const;
  bool has(std::string_view key) const { return value_->is_object() && value_->contains(key); }
  bool isNull() const { return value_->is_null(); }
  /// The elements of an array; empty, with an error, for another value.
  std::vector<Cursor> elements() const;

  int64_t integer(int64_t low = std::numeric_limits<int64_t>::min(),
                  int64_t high = std::numeric_limits<int64_t>::max()) const;
  double number() const;
  bool boolean() const;
  std::string string() const;
  /// The index of a word in a fixed list; 0 after an error.
  size_t oneOf(std::span<const std::string_view> words) const;

private:
  const Json *value_;
  std::string path_;
  std::optional<Error> *error_;
};

} // namespace attn::rt

#endif
