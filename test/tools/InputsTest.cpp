//===- InputsTest.cpp - Generated tensors and sizes -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "run/inputs/Inputs.h"
#include "run/inputs/Normal.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

using namespace attn;
using namespace attn::run;

namespace {

Arguments pagedProblem(int64_t page = 16) {
  Arguments arguments;
  arguments.query = {"q", rt::DType::BF16, {-1, 8, 64}, {"rows"}};
  arguments.kv = {{"kv", "batch", "kv_len", Store::Paged, page, 2, 64, 32}};
  return arguments;
}

Dims dimsOf(std::initializer_list<const char *> texts) {
  Dims dims;
  for (const char *text : texts) {
    rt::Status status = dims.add(text);
    EXPECT_TRUE(status) << status.error().message;
  }
  return dims;
}

rt::TensorMap generate(const Arguments &arguments, std::initializer_list<const char *> texts,
                       uint64_t seed = 1) {
  Dims dims = dimsOf(texts);
  auto tensors = generateInputs(arguments, dims, seed);
  if (!tensors) {
    ADD_FAILURE() << tensors.error().message;
    return {};
  }
  return *tensors;
}

std::string failure(const Arguments &arguments, std::initializer_list<const char *> texts) {
  Dims dims = dimsOf(texts);
  auto tensors = generateInputs(arguments, dims, 0);
  return tensors ? "no error" : tensors.error().message;
}

TEST(Inputs, PagesAreScatteredAndEverythingUnlistedIsNaN) {
  auto tensors = generate(pagedProblem(), {"batch=5", "kv_len=1..100", "q_len=2"});
  const auto table = tensors.at("kv.block_table").as<int32_t>();
  const auto lengths = tensors.at("kv.lengths").as<int32_t>();
  const rt::Tensor &keys = tensors.at("kv.k_pages");
  int64_t columns = tensors.at("kv.block_table").shape[1], token = 2 * 64;
  std::set<int32_t> listed;
  std::set<int64_t> written;
  bool sorted = true;
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t c = 0; c < columns; ++c) {
      int32_t page = table[i * columns + c];
      if (c * 16 >= lengths[i]) {
        EXPECT_EQ(page, 0x7fffffff) << "unused entries are out of range";
        continue;
      }
      ASSERT_LT(page, keys.shape[0]);
      EXPECT_TRUE(listed.insert(page).second) << "each page is listed once";
      sorted &= *listed.rbegin() == page;
      for (int64_t t = c * 16; t < std::min<int64_t>(lengths[i], c * 16 + 16); ++t)
        written.insert(page * 16 + t % 16);
    }
  EXPECT_FALSE(sorted) << "pages are shuffled";
  EXPECT_EQ(columns, (*std::max_element(lengths.begin(), lengths.end()) + 15) / 16) << "no column to spare";
  EXPECT_TRUE(listed.count(static_cast<int32_t>(keys.shape[0] - 1))) << "the pool ends with a listed page";
  EXPECT_GT(keys.shape[0], static_cast<int64_t>(listed.size())) << "the pool has pages nobody lists";
  for (int64_t slot = 0; slot < keys.shape[0] * 16; ++slot)
    for (int64_t f = 0; f < token; ++f)
      ASSERT_EQ(std::isnan(keys.get(slot * token + f)), !written.count(slot)) << slot;
}

TEST(Inputs, RaggedHeadsHaveLengthsAndPagesOfTheirOwn) {
  Arguments arguments = pagedProblem();
  arguments.kv[0].ragged = true;
  auto tensors = generate(arguments, {"batch=5", "kv_len=0..100"});
  const auto table = tensors.at("kv.block_table").as<int32_t>();
  const auto lengths = tensors.at("kv.lengths").as<int32_t>();
  const rt::Tensor &keys = tensors.at("kv.k_pages");
  ASSERT_EQ(tensors.at("kv.lengths").shape, (std::vector<int64_t>{5, 2}));
  const int64_t columns = tensors.at("kv.block_table").shape[2];
  std::set<int32_t> listed[2];
  std::set<int64_t> written; // slot and head
  int differ = 0;
  for (int64_t list = 0; list < 10; ++list) {
    const int64_t head = list % 2;
    differ += lengths[list] != lengths[list - head];
    EXPECT_GE(tensors.at("q_pos").as<int32_t>()[list / 2], lengths[list] - 1) << "rows end with the longest";
    for (int64_t c = 0; c < columns; ++c) {
      const int32_t page = table[list * columns + c];
      if (c * 16 >= lengths[list]) {
        EXPECT_EQ(page, 0x7fffffff);
        continue;
      }
      EXPECT_TRUE(listed[head].insert(page).second) << "each page is listed once for a head";
      for (int64_t t = c * 16; t < std::min<int64_t>(lengths[list], c * 16 + 16); ++t)
        written.insert((page * 16 + t % 16) * 2 + head);
    }
  }
  EXPECT_GT(differ, 2);
  EXPECT_NE(listed[0], listed[1]);
  for (int64_t line = 0; line < keys.shape[0] * 16 * 2; ++line)
    for (int64_t f = 0; f < 64; ++f)
      ASSERT_EQ(std::isnan(keys.get(line * 64 + f)), !written.count(line)) << line;
}

TEST(Inputs, RowsAreTheLastOfTheirSequence) {
  auto tensors = generate(pagedProblem(), {"batch=2", "kv_len=7", "q_len=3"});
  auto positions = tensors.at("q_pos").as<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(positions.begin(), positions.end()),
            (std::vector<int32_t>{4, 5, 6, 4, 5, 6}));
  EXPECT_FALSE(tensors.count("kv.rows"));
}

TEST(Inputs, SharedContextComesBeforePrivateTokens) {
  Arguments arguments = pagedProblem();
  arguments.kv.insert(arguments.kv.begin(), {"context", "groups", "context_len", Store::Dense, 0, 2, 64, 32});
  auto tensors = generate(arguments, {"batch=4", "groups=2", "context_len=10", "kv_len=5"});
  auto rows = tensors.at("context.rows").as<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(rows.begin(), rows.end()), (std::vector<int32_t>{0, 2, 2, 4}));
  for (int32_t pos0 : tensors.at("kv.pos0").as<int32_t>())
    EXPECT_EQ(pos0, 10);
  for (int32_t position : tensors.at("q_pos").as<int32_t>())
    EXPECT_EQ(position, 14);
}

TEST(Inputs, PackedTokensHaveGapsOfNaN) {
  Arguments arguments = pagedProblem();
  arguments.kv.front().store = Store::Packed;
  auto tensors = generate(arguments, {"batch=3", "kv_len=4"});
  auto start = tensors.at("kv.start").as<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(start.begin(), start.end()), (std::vector<int32_t>{0, 4, 9, 13}))
      << "and none behind the last";
  EXPECT_EQ(tensors.at("kv.v").shape[0], 13);
  EXPECT_TRUE(std::isnan(tensors.at("kv.v").get(8 * 2 * 32)));
  EXPECT_FALSE(std::isnan(tensors.at("kv.v").get(7 * 2 * 32)));
}

TEST(Inputs, SameSeedSameBytesAndOtherSeedOtherBytes) {
  auto a = generate(pagedProblem(), {"kv_len=3..50"}, 7), b = generate(pagedProblem(), {"kv_len=3..50"}, 7);
  auto c = generate(pagedProblem(), {"kv_len=3..50"}, 8);
  EXPECT_EQ(a.at("kv.k_pages").bytes, b.at("kv.k_pages").bytes);
  EXPECT_NE(a.at("q").bytes, c.at("q").bytes);
}

TEST(Inputs, BytesDoNotDependOnThreads) {
  // Large enough for several threads; the other way is one draw after the other.
  const int64_t lines = 4099, length = 1026;
  std::vector<int64_t> slots(lines);
  for (int64_t i = 0; i < lines; ++i)
    slots[static_cast<size_t>(i)] = (i * 2017) % lines;
  const NormalSource source(rt::DType::BF16);
  rt::Tensor together(rt::DType::BF16, {lines, length}), apart = together, whole = together;
  source.fill(together.bytes.data(), slots, length, rt::Random(7, "x"));
  rt::Random random(7, "x");
  for (int64_t slot : slots) {
    source.fill(apart.bytes.data() + slot * length * 2, length, random);
    for (int64_t i = 0; i < length; i += 4)
      random.next();
  }
  EXPECT_TRUE(together.bytes == apart.bytes);

  source.fill(whole.bytes.data(), whole.elements(), rt::Random(7, "x"));
  rt::Tensor front(rt::DType::BF16, {5}); // too short for a second thread
  source.fill(front.bytes.data(), 5, rt::Random(7, "x"));
  EXPECT_TRUE(std::equal(front.bytes.begin(), front.bytes.end(), whole.bytes.begin()));
  EXPECT_TRUE(std::equal(front.bytes.begin(), front.bytes.end(), together.bytes.begin()));
}

TEST(Inputs, LengthZeroIsFine) {
  auto tensors = generate(pagedProblem(1), {"batch=3", "kv_len=0", "q_len=1"});
  for (int32_t position : tensors.at("q_pos").as<int32_t>())
    EXPECT_EQ(position, -1);
}

TEST(Inputs, RefusesWhatCannotBe) {
  EXPECT_NE(failure(pagedProblem(), {"batch=0"}).find("expects 1 to"), std::string::npos);
  EXPECT_NE(failure(pagedProblem(), {"rows=4"}).find("follows from batch and q_len"), std::string::npos);
  EXPECT_NE(failure(pagedProblem(), {"kv_len=2000000000"}).find("too large for this machine"),
            std::string::npos);
  EXPECT_NE(failure(pagedProblem(), {"batch=1..3"}).find("expected a single number"), std::string::npos);
  Arguments arguments = pagedProblem();
  arguments.others = {{"bias", rt::DType::F32, {-1, 8}, {"width"}}};
  EXPECT_NE(failure(arguments, {}).find("give --dim width=N"), std::string::npos);
}

TEST(Dims, Texts) {
  Dims dims = dimsOf({"a=5", "b=2..4", "unused=1"});
  EXPECT_EQ(*dims.one("a", 0), 5);
  EXPECT_EQ(*dims.one("absent", 9), 9);
  for (int64_t size : dims.many("b", 100, 0, 3))
    EXPECT_TRUE(size >= 2 && size <= 4);
  EXPECT_EQ(dims.unused(), std::vector<std::string>{"unused"});
  for (const char *bad : {"", "x", "=3", "x=", "x=-1", "x=1.5", "x=9..3", "x=1..", "x=99999999999", "x=@",
                          "x=@f.csv", "x=@absent.csv:column", "a=1"})
    EXPECT_FALSE(dims.add(bad)) << bad;
}

} // namespace
