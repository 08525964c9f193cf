//===- Fuzz.h - Mutated input for the readers -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Byte flips, splices, truncations and the numbers that break length checks,
// from a fixed seed: a failure repeats. A reader returns a usable value or an
// error with a message; the sanitizers check the rest.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TEST_RUNTIME_FUZZ_H
#define ATTN_TEST_RUNTIME_FUZZ_H

#include "attn_rt/support/Status.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <string>

namespace attn::rt::test {

using Rng = std::mt19937_64;

inline size_t below(Rng &rng, size_t bound) { return bound ? rng() % bound : 0; }

/// ATTN_FUZZ=20 runs twenty times as many mutants.
inline int rounds(int count) {
  const char *factor = getenv("ATTN_FUZZ");
  return count * (factor ? atoi(factor) : 1);
}

/// Whether a reader returned a value. If not, its error must blame the input, in words.
template <typename T> bool answered(const Result<T> &result) {
  if (result)
    return true;
  EXPECT_EQ(result.error().kind, ErrorKind::Input);
  EXPECT_FALSE(result.error().message.empty());
  return false;
}

inline std::string mutate(std::string text, Rng &rng) {
  static const char *const words[] = {"-1",
                                      "0",
                                      "9223372036854775807",
                                      "18446744073709551615",
                                      "4294967296",
                                      "1e400",
                                      "null",
                                      "[]",
                                      "{}",
                                      "\"\"",
                                      "\\u0000",
                                      "[[[[",
                                      "true",
                                      "\"",
                                      ",",
                                      "\n",
                                      "\xff\xfe",
                                      ":"};
  for (size_t round = 1 + below(rng, 4); round > 0; --round) {
    const size_t at = below(rng, text.size() + 1);
    switch (below(rng, 6)) {
    case 0:
      if (at < text.size())
        text[at] = static_cast<char>(rng());
      break;
    case 1:
      text.resize(at);
      break;
    case 2:
      text.insert(at, words[below(rng, std::size(words))]);
      break;
    case 3:
      text.erase(at, 1 + below(rng, 16));
      break;
    case 4:
      text.insert(at, text.substr(below(rng, text.size() + 1), below(rng, 40)));
      break;
    default: {
      // Replaces a whole number, which random bytes rarely do.
      const size_t digit = text.find_first_of("0123456789", at);
      if (digit != std::string::npos) {
        const size_t end = text.find_first_not_of("0123456789", digit);
        text.replace(digit, (end == std::string::npos ? text.size() : end) - digit,
                     words[below(rng, std::size(words))]);
      }
    }
    }
  }
  return text;
}

} // namespace attn::rt::test

#endif
