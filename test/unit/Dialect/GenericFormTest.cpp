//===- GenericFormTest.cpp - Operations with anything missing or wrong ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// In generic form an operation may lack any of its attributes and properties, or have one of another type,
// and the same of its operands, results and regions. Verifiers must say so, and neither they nor printers may
// trust what nobody has checked.
//
//===----------------------------------------------------------------------===//
#include "Texts.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/PrettyStackTrace.h"

#include <gtest/gtest.h>
#include <map>

using namespace mlir;

namespace {

/// Each attribute and parameter becomes each of these. Lists are longer and shorter than any operation's.
constexpr const char *kOthers[] = {"unit",
                                   "true",
                                   "-1 : i32",
                                   "9223372036854775807 : i64",
                                   "1.5 : f32",
                                   "0x7FC00000 : f32",
                                   "\"\"",
                                   "@f",
                                   "f16",
                                   "() -> ()",
                                   "[]",
                                   "[1 : i32]",
                                   "[[\"a\"]]",
                                   "{}",
                                   "{attn.name = 1 : i32}",
                                   "array<i32>",
                                   "array<i32: 1>",
                                   "array<i32: -1, 2, 0, 0, 0, 0, 0, 0, 0>",
                                   "array<i64: 1, 0, 0, 0>",
                                   "array<i8: 1>",
                                   "array<f32: 1.0>",
                                   "array<index: 1, 0, 0, 0>",
                                   "dense<0> : tensor<2xi32>",
                                   "#attn.visibility<causal>",
                                   "#tile.layout<acc>",
                                   "-1",
                                   "?",
                                   "none"};

/// `name = value` in braces or angle brackets of a text.
struct Entry {
  std::string where; ///< the operation or the type, and the name
  size_t begin, value, end;
};

bool isOfName(char c) { return llvm::isAlnum(c) || c == '_' || c == '.' || c == '$'; }

/// Finds the end of the value that begins at `at`.
size_t endOfValue(const std::string &text, size_t at) {
  int depth = 0;
  for (bool isString = false; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' && text[at - 1] != '\\')
      isString = !isString;
    if (isString)
      continue;
    const bool closes = StringRef(")]}").contains(c) || (c == '>' && text[at - 1] != '-');
    if (depth == 0 && (closes || c == ',' || c == '\n'))
      return at;
    depth += StringRef("([{<").contains(c) ? 1 : closes ? -1 : 0;
  }
  return at;
}

std::vector<Entry> entriesOf(const std::string &text) {
  std::vector<Entry> entries;
  std::string operation;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      const size_t end = text.find('"', i + 1);
      if (end != std::string::npos && text[end + 1] == '(')
        operation = text.substr(i + 1, end - i - 1);
      continue;
    }
    if (text.compare(i, 3, " = ") != 0 || i == 0)
      continue;
    size_t begin = i;
    while (begin > 0 && isOfName(text[begin - 1]))
      --begin;
    if (begin == i || begin == 0 || !StringRef("{< ").contains(text[begin - 1]))
      continue; // a result or an alias
    if (text[begin - 1] == ' ' && (begin < 2 || text[begin - 2] != ','))
      continue;
    entries.push_back(
        {operation + " " + text.substr(begin, i - begin), begin, i + 3, endOfValue(text, i + 3)});
  }
  return entries;
}

/// Reads the text, and prints what it is: in generic form where it is refused, for that is what diagnostics
/// print.
bool survives(const std::string &text) {
  llvm::PrettyStackTraceString crash(text.c_str());
  const std::unique_ptr<MLIRContext> context = texts::makeContext();
  int errors = 0;
  OwningOpRef<ModuleOp> module = texts::parse(*context, text, errors);
  EXPECT_NE(bool(module), errors > 0) << text;
  if (!module)
    return false;
  const std::string printed = texts::print(*module);
  EXPECT_TRUE(texts::parse(*context, printed, errors)) << text << "\nprints as\n" << printed;
  return true;
}

/// All texts that are valid, in generic form.
const std::vector<std::string> &genericTexts() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> generic;
    for (const std::string &text : texts::all()) {
      const std::unique_ptr<MLIRContext> context = texts::makeContext();
      int errors = 0;
      if (OwningOpRef<ModuleOp> module = texts::parse(*context, text, errors)) {
        llvm::raw_string_ostream stream(generic.emplace_back());
        module->print(stream, OpPrintingFlags().printGenericOpForm());
      }
    }
    return generic;
  }();
  return all;
}

/// How many samples of one kind are changed.
int samples() {
  const char *full = getenv("ATTN_FULL");
  return full && *full ? 20 : 1;
}

TEST(GenericForm, EveryAttributeMissingOrAnother) {
  ASSERT_GT(genericTexts().size(), 50u);
  std::map<std::string, int> seen;
  int tried = 0, refused = 0;
  for (const std::string &text : genericTexts()) {
    for (const Entry &entry : entriesOf(text)) {
      if (++seen[entry.where] > samples())
        continue;
      const bool isFirst = text[entry.begin - 1] != ' ';
      const bool isFollowed = text[entry.end] == ',';
      std::string without = text;
      without.erase(isFirst ? entry.begin : entry.begin - 2,
                    isFirst ? entry.end - entry.begin + (isFollowed ? 2 : 0) : entry.end - entry.begin + 2);
      refused += !survives(without);
      for (const char *other : kOthers) {
        if (StringRef(entry.where).ends_with("sym_name") && StringRef(other) == "\"\"")
          continue; // MLIR accepts symbols without a name, and prints what it does not read
        std::string changed = text;
        changed.replace(entry.value, entry.end - entry.value, other);
        refused += !survives(changed);
      }
      tried += 1 + std::size(kOthers);
    }
  }
  EXPECT_GT(seen.size(), 150u);
  EXPECT_GT(refused, tried / 2);
  EXPECT_LT(refused, tried);
}

} // namespace
