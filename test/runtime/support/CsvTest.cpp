//===- CsvTest.cpp - Tests: One integer column of a CSV file --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/support/Csv.h"
#include "Fuzz.h"
#include "attn_rt/support/File.h"

#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>

using namespace attn::rt;

namespace {

std::vector<int64_t> column(std::string_view text, std::string_view name) {
  Result<std::vector<int64_t>> result = readCsvColumn(text, name, "t.csv");
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : std::vector<int64_t>();
}

std::string errorOf(std::string_view text) {
  Result<std::vector<int64_t>> result = readCsvColumn(text, "n", "t.csv");
  return result ? "no error" : result.error().message;
}

TEST(Csv, Columns) {
  const std::string_view trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                 "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n";
  EXPECT_EQ(column(trace, "ContextTokens"), (std::vector<int64_t>{4808, 3180}));
  EXPECT_EQ(column(trace, "GeneratedTokens"), (std::vector<int64_t>{10, 8}));
}

TEST(Csv, QuotesLineEndsAndBlanks) {
  EXPECT_EQ(column("\xef\xbb\xbf\"a,\"\"b\"\"\",n\r\n\"x\ny, z\", 7\r\n\r\n,\"-8\"\r\n", "n"),
            (std::vector<int64_t>{7, -8}));
  EXPECT_EQ(column("n\n1\n2", "n"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(column("\"a,\"\"b\"\"\",n\n3,4\n", "a,\"b\""), (std::vector<int64_t>{3}));
}

TEST(Csv, Errors) {
  struct Case {
    const char *text, *message;
  } cases[] = {
      {"", "got an empty file"},
      {"a,b\n1,2\n", "CSV file 't.csv': no column 'n'; its columns are 'a', 'b'"},
      {"n\n", "expected at least one line"},
      {"n\n1.5\n", "line 2: expected an integer in column 'n', got '1.5'"},
      {"n\nabc\n", "line 2: expected an integer in column 'n', got 'abc'"},
      {"n,m\n1,2\n3\n", "line 3: expected 2 cells, got 1"},
      {"n\n99999999999999999999\n", "line 2: '99999999999999999999' does not fit 64 bits"},
      {"n\n\"1\n", "line 2: a quoted cell is never closed"},
      {"n\n\"1\"2\n", "line 2: expected ',' or the end of the line after a quoted cell"},
  };
  for (const Case &c : cases)
    EXPECT_NE(errorOf(c.text).find(c.message), std::string::npos) << errorOf(c.text);
}

TEST(Csv, References) {
  const std::string path = ::testing::TempDir() + "/attn-rt.csv";
  ASSERT_TRUE(writeFile(path, "n\n5\n"));
  EXPECT_EQ(*readCsvReference("@" + path + ":n"), (std::vector<int64_t>{5}));
  EXPECT_NE(readCsvReference("@" + path).error().message.find("expected @FILE.csv:COLUMN"),
            std::string::npos);
  EXPECT_NE(readCsvReference("@/no/such.csv:n").error().message.find("cannot open '/no/such.csv'"),
            std::string::npos);
  std::remove(path.c_str());
}

TEST(Csv, MutatedInput) {
  test::Rng rng(3);
  int read = 0;
  for (int i = 0; i < test::rounds(20000); ++i) {
    const std::string text = test::mutate("a,n,\"b\"\r\n1,2,\"x\"\"y\"\n\n3,4,5\n", rng);
    const Result<std::vector<int64_t>> numbers = readCsvColumn(text, "n", "t.csv");
    if (!test::answered(numbers))
      continue;
    ++read;
    std::string plain = "n\n";
    for (int64_t number : *numbers)
      plain += std::to_string(number) + "\n";
    EXPECT_EQ(column(plain, "n"), *numbers) << text;
    EXPECT_LT(std::ssize(*numbers), std::count(text.begin(), text.end(), '\n') + 1) << text;
  }
  EXPECT_GT(read, 2000);
}

} // namespace
