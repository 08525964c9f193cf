//===- ParserFuzzTest.cpp - Mutated text through parsers and verifiers ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every text gives a module or an error: never both, never neither. A module prints as text that reads as the
// same module.
//
//===----------------------------------------------------------------------===//
#include "Texts.h"

#include <gtest/gtest.h>
#include <iterator>
#include <random>

using namespace mlir;

namespace {

using Rng = std::mt19937_64;
using Tokens = std::vector<std::string>;

size_t below(Rng &rng, size_t bound) { return rng() % bound; }

std::vector<Tokens> seeds() {
  std::vector<Tokens> split;
  for (const std::string &text : texts::all()) {
    Tokens &tokens = split.emplace_back();
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
        ++end;
      end = std::max(end, i + 1);
      tokens.push_back(text.substr(i, end - i));
      i = end;
    }
  }
  return split;
}

std::string mutate(Tokens tokens, const Tokens &other, Rng &rng) {
  static const char *const words[] = {"0",     "-1",  "1",     "24", "257",  "99999999999999999999",
                                      "?",     "f64", "i8",    "i2", "1e40", "9223372036854775807",
                                      "paged", "[",   "dense", "<",  "\"",   "%q"};
  for (size_t rounds = 1 + below(rng, 3); rounds && !tokens.empty(); --rounds) {
    size_t at = below(rng, tokens.size());
    auto place = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(rng, 7)) {
    case 0:
      tokens.erase(place);
      break;
    case 1:
      tokens.insert(place, tokens[below(rng, tokens.size())]);
      break;
    case 2:
      std::swap(tokens[at], tokens[below(rng, tokens.size())]);
      break;
    case 3: // a whole number, which random positions rarely hit
      while (at < tokens.size() && !std::isdigit(static_cast<unsigned char>(tokens[at][0])))
        ++at;
      if (at < tokens.size())
        tokens[at] = words[below(rng, std::size(words))];
      break;
    case 4:
      tokens[at] = words[below(rng, std::size(words))];
      break;
    case 5:
      if (!other.empty())
        tokens[at] = other[below(rng, other.size())];
      break;
    default:
      tokens[at] += static_cast<char>(rng());
    }
  }
  std::string text;
  for (const std::string &token : tokens)
    text += token;
  return text;
}

TEST(ParserFuzz, AModuleOrAnError) {
  const char *full = getenv("ATTN_FULL"), *factor = getenv("ATTN_FUZZ");
  const int count = (full && *full ? 1000000 : 20000) * (factor ? atoi(factor) : 1);
  const std::vector<Tokens> all = seeds();
  ASSERT_GT(all.size(), 100u);
  std::unique_ptr<MLIRContext> context;
  Rng rng(15);
  int read = 0;
  for (int i = 0; i < count; ++i) {
    if (i % 500 == 0) // parsed texts stay in a context
      context = texts::makeContext();
    const std::string text = mutate(all[below(rng, all.size())], all[below(rng, all.size())], rng);
    int errors = 0;
    OwningOpRef<ModuleOp> module = texts::parse(*context, text, errors);
    ASSERT_NE(bool(module), errors > 0) << i << ":\n" << text;
    if (!module)
      continue;
    ++read;
    const std::string printed = texts::print(*module);
    OwningOpRef<ModuleOp> again = texts::parse(*context, printed, errors);
    ASSERT_TRUE(again) << i << ":\n" << text << "\nprints as\n" << printed;
    ASSERT_EQ(texts::print(*again), printed) << i << ":\n" << text;
  }
  EXPECT_GT(read, count / 30);
  EXPECT_LT(read, count * 9 / 10);
}

} // namespace
