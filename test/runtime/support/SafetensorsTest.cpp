//===- SafetensorsTest.cpp - Tests: Tensors in files ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Safetensors.h"
#include "Fuzz.h"

#include <cstdio>
#include <gtest/gtest.h>

using namespace attn::rt;

namespace {

std::string file(const std::string &header, size_t dataBytes, std::optional<uint64_t> length = std::nullopt) {
  uint64_t size = length.value_or(header.size());
  return std::string(reinterpret_cast<const char *>(&size), 8) + header + std::string(dataBytes, '\1');
}

std::string errorOf(const std::string &bytes) {
  Result<TensorMap> result = readSafetensors(bytes, "x");
  return result ? "no error" : result.error().message;
}

TensorMap sample() {
  TensorMap tensors;
  tensors["q"] = Tensor::ofDoubles(DType::BF16, {1, 3}, std::vector<double>{1, -2, 0.5});
  tensors["lengths"] = Tensor::ofI32({2}, std::vector<int32_t>{7, 0});
  tensors["empty"] = Tensor(DType::F32, {0, 4});
  tensors["big"] = Tensor::ofDoubles(DType::F64, {2}, std::vector<double>{1e300, -1});
  return tensors;
}

TEST(Safetensors, RoundTrip) {
  TensorMap tensors = sample();
  const std::string bytes = writeSafetensors(tensors);
  Result<TensorMap> back = readSafetensors(bytes, "x");
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->size(), tensors.size());
  for (auto &[name, tensor] : tensors) {
    EXPECT_EQ(back->at(name).dtype, tensor.dtype);
    EXPECT_EQ(back->at(name).shape, tensor.shape);
    EXPECT_EQ(back->at(name).bytes, tensor.bytes);
  }
  EXPECT_EQ(writeSafetensors(*back), bytes);
}

TEST(Safetensors, RoundTripThroughAFile) {
  const std::string path = ::testing::TempDir() + "/attn-rt.safetensors";
  ASSERT_TRUE(writeSafetensorsFile(path, sample()));
  Result<TensorMap> back = readSafetensorsFile(path);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->size(), 4u);
  std::remove(path.c_str());
  EXPECT_NE(readSafetensorsFile(path).error().message.find("cannot open '" + path), std::string::npos);
  EXPECT_NE(readSafetensorsFile(::testing::TempDir()).error().message.find("it is a directory"),
            std::string::npos);
  Status refused = writeSafetensorsFile("/nonexistent/dir/x", sample());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("cannot write '/nonexistent/dir/x'"), std::string::npos);
}

TEST(Safetensors, MetadataIsSkipped) {
  EXPECT_EQ(errorOf(file(R"({"__metadata__":{"a":"b"}})", 0)), "no error");
}

TEST(Safetensors, Errors) {
  struct Case {
    std::string bytes, message;
  } cases[] = {
      {"abc", "expected at least 8 bytes, got 3"},
      {file("{}", 0, 1ull << 62), "expected a header of at most 100000000 bytes, got 4611686018427387904"},
      {file("{}", 0, 50), "the header is said to have 50 bytes, but only 2 follow"},
      {file("{", 0), "header: parse error at line 1"},
      {file("[1]", 0), "header: expected an object, got an array of 1"},
      {file(R"({"a":1})", 0), "tensor 'a': expected an object, got 1"},
      {file(R"({"a":{"dtype":"F8_E8M0","shape":[1],"data_offsets":[0,1]}})", 1),
       "tensor 'a'.dtype: expected one of \"F16\", \"BF16\""},
      {file(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "tensor 'a'.data_offsets: missing"},
      {file(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1),
       "tensor 'a'.shape[0]: expected an integer of at least 0, got -1"},
      {file(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1), "got 1.5"},
      {file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1), "expected two offsets"},
      {file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3),
       "expected begin <= end <= 3 (the bytes after the header), got [0, 4)"},
      {file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", 3), "got [2, 1)"},
      {file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 3),
       "data_offsets[1]: expected an integer of at least 0, got 18446744073709551615"},
      {file(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       "the product of [4294967296, 4294967296] overflows"},
      {file(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0), "overflows"},
      {file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
       "shape [2] of f32 takes 8 bytes, but the offsets span 4"},
      {file(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "tensors 'a' and 'b' overlap at byte 1"},
      {file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", 3),
       "bytes [0, 2) before tensor 'a' belong to no"},
      {file("{}", 3), "3 bytes after the last tensor belong to no tensor"},
      {file(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           1),
       "duplicate key \"a\""},
      {file(R"({"a\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "contains a NUL character"},
      {file(std::string(100, '['), 0), "nested deeper than 64 levels"},
  };
  for (const Case &c : cases)
    EXPECT_NE(errorOf(c.bytes).find(c.message), std::string::npos)
        << errorOf(c.bytes) << "\n  expected " << c.message;
}

TEST(Safetensors, MutatedInput) {
  test::Rng rng(2);
  const std::string seed = writeSafetensors(sample());
  int read = 0;
  for (int i = 0; i < test::rounds(20000); ++i) {
    std::string bytes = test::mutate(seed, rng);
    // Repairs the length half of the time; otherwise nearly every mutant dies at the first check.
    if (i % 2 && bytes.size() > 8) {
      uint64_t length = std::min<uint64_t>(bytes.size() - 8,
                                           bytes.rfind('}') == std::string::npos ? 0 : bytes.rfind('}') - 7);
      bytes.replace(0, 8, reinterpret_cast<const char *>(&length), 8);
    }
    const Result<TensorMap> result = readSafetensors(bytes, "x");
    if (!test::answered(result))
      continue;
    ++read;
    const std::string written = writeSafetensors(*result);
    const Result<TensorMap> again = readSafetensors(written, "again");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(writeSafetensors(*again), written);
  }
  EXPECT_GT(read, 100);
}

} // namespace
