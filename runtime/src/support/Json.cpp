//===- Json.cpp - JSON from outside, read with care -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "support/Json.h"

#include <cmath>

namespace attn::rt {

namespace {

constexpr size_t depthLimit = 64;

// Builds the DOM itself, since nlohmann's own builder silently keeps the last of two equal keys.
class Builder : public nlohmann::json_sax<Json> {
public:
  Json root;
  std::string problem;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t &) override { return add(value); }
  bool string(string_t &value) override { return add(std::move(value)); }
  bool binary(binary_t &) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t &name) override {
    if (stack_.back()->contains(name)) {
      problem = "duplicate key \"" + name.substr(0, 64) + "\"";
      return false;
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string &, const nlohmann::detail::exception &error) override {
    // The message begins "[json.exception.parse_error.101] parse error at …": the tag means nothing to a
    // user.
    problem = error.what();
    if (size_t end = problem.find("] "); end != std::string::npos)
      problem.erase(0, end + 2);
    return false;
  }

private:
  std::vector<Json *> stack_;
  std::string key_;

  Json *place(Json value) {
    if (stack_.empty())
      return &(root = std::move(value));
    Json &parent = *stack_.back();
    if (parent.is_array())
      return &parent.get_ref<Json::array_t &>().emplace_back(std::move(value));
    return &parent.get_ref<Json::object_t &>().emplace(std::move(key_), std::move(value)).first->second;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (stack_.size() == depthLimit) {
      problem = "nested deeper than " + std::to_string(depthLimit) + " levels";
      return false;
    }
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }
};

} // namespace

Result<Json> parseJson(std::string_view text, std::string_view what) {
  Builder builder;
  if (Json::sax_parse(text.begin(), text.end(), &builder))
    return std::move(builder.root);
  return inputError(std::string(what) + ": " +
                    (builder.problem.empty() ? "not valid JSON" : builder.problem));
}

std::string dumpJson(const Json &value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string quoteJson(const Json &value) {
  if (value.is_object())
    return "an object";
  if (value.is_array())
    return "an array of " + std::to_string(value.size());
  std::string text = dumpJson(value);
  if (text.size() > 64)
    text = text.substr(0, 60) + "…";
  return text;
}

void Cursor::expected(std::string_view what) const {
  fail("expected " + std::string(what) + ", got " + quoteJson(*value_));
}

void Cursor::fail(std::string message) const {
  if (!failed())
    *error_ = inputError(path_ + ": " + std::move(message));
}

Cursor Cursor::operator[](std::string_view key) const {
  static const Json null;
  Cursor member(null, path_ + "." + std::string(key), *error_);
  if (!value_->is_object())
    expected("an object");
  else if (auto found = value_->find(key); found == value_->end())
    member.fail("missing");
  else
    member.value_ = &*found;
  return member;
}

std::vector<Cursor> Cursor::elements() const {
  std::vector<Cursor> result;
  if (!value_->is_array()) {
    expected("an array");
    return result;
  }
  for (size_t i = 0; i < value_->size(); ++i)
    result.emplace_back((*value_)[i], path_ + "[" + std::to_string(i) + "]", *error_);
  return result;
}

int64_t Cursor::integer(int64_t low, int64_t high) const {
  const auto range = [&] {
    if (high == std::numeric_limits<int64_t>::max())
      return low == std::numeric_limits<int64_t>::min() ? std::string("an integer")
                                                        : "an integer of at least " + std::to_string(low);
    return "an integer between " + std::to_string(low) + " and " + std::to_string(high);
  };
  const bool tooBig = value_->is_number_unsigned() &&
                      value_->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (value_->is_number_integer() && !tooBig) {
    int64_t result = value_->get<int64_t>();
    if (result >= low && result <= high)
      return result;
  }
  expected(range());
  return std::max<int64_t>(low, 1) <= high ? std::max<int64_t>(low, 1) : low;
}

double Cursor::number() const {
  if (value_->is_number())
    if (double result = value_->get<double>(); std::isfinite(result))
      return result;
  expected("a number");
  return 1;
}

bool Cursor::boolean() const {
  if (value_->is_boolean())
    return value_->get<bool>();
  expected("true or false");
  return false;
}

std::string Cursor::string() const {
  if (value_->is_string())
    return value_->get<std::string>();
  expected("a string");
  return {};
}

size_t Cursor::oneOf(std::span<const std::string_view> words) const {
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) {
    if (value_->is_string() && value_->get_ref<const std::string &>() == words[i])
      return i;
    list += (i ? ", \"" : "\"") + std::string(words[i]) + "\"";
  }
  expected("one of " + list);
  return 0;
}

} // namespace attn::rt
