//===- FileTest.cpp - Compiled kernels in one file ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ArtifactFile.h"
#include "Fuzz.h"

#include <cstdio>
#include <functional>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

std::vector<Artifact> sampleArtifacts() {
  std::vector<Artifact> artifacts = {sampleArtifact(), sampleArtifact("append", "sm_90a")};
  artifacts[1].note = "of append";
  artifacts[1].cubins.clear();
  artifacts[1].hostCode.assign(7, 0xa5);
  return artifacts;
}

std::string errorOf(const std::string &bytes) {
  const auto read = readArtifacts(bytes, "a");
  return read ? "no error" : read.error().message;
}

TEST(ArtifactFile, RoundTrip) {
  const std::string bytes = writeArtifacts(sampleArtifacts());
  auto back = readArtifacts(bytes, "a");
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->size(), 2u);
  const Artifact &first = back->front(), &second = back->back();
  EXPECT_EQ(first.ptx, sampleArtifact().ptx);
  EXPECT_EQ(first.cubins, sampleArtifact().cubins);
  EXPECT_TRUE(first.hostCode.empty() && first.note.empty() && second.cubins.empty());
  EXPECT_EQ(second.hostCode, std::vector<uint8_t>(7, 0xa5));
  EXPECT_EQ(second.note, "of append");
  EXPECT_EQ(second.manifest.target, "sm_90a");
  EXPECT_EQ(writeArtifacts(*back), bytes);
  EXPECT_EQ(pack(unpack(bytes)), bytes); // the format is the one that Artifact.cpp's header describes
}

TEST(ArtifactFile, ThroughAFile) {
  const std::string path = ::testing::TempDir() + "/attn-rt.attn";
  ASSERT_TRUE(writeArtifactsFile(path, sampleArtifacts()));
  EXPECT_TRUE(readArtifactsFile(path));
  std::remove(path.c_str());
  EXPECT_FALSE(readArtifactsFile(path));
}

TEST(ArtifactFile, EveryChangedByteIsNoticed) {
  const std::string bytes = writeArtifacts(sampleArtifacts());
  for (size_t i = 0; i < bytes.size(); i += i < 400 ? 1 : 3) {
    std::string changed = bytes;
    changed[i] ^= 1;
    EXPECT_FALSE(readArtifacts(changed, "a")) << i;
  }
  for (size_t size = 0; size < bytes.size(); size += size < 400 ? 1 : 7)
    EXPECT_FALSE(readArtifacts(bytes.substr(0, size), "a")) << size;
}

TEST(ArtifactFile, ErrorsNameTheSection) {
  const std::string bytes = writeArtifacts(sampleArtifacts());
  const auto changed = [&](size_t at) {
    std::string copy = bytes;
    copy[at] ^= 1;
    return copy;
  };
  const auto altered = [&](const std::function<void(FileParts &)> &alter) {
    FileParts parts = unpack(bytes);
    alter(parts);
    return pack(parts);
  };
  const size_t sections = unpack(bytes).size(), manifest = unpack(bytes)[0].content.size();
  struct Case {
    std::string bytes, message;
  } cases[] = {
      {"", "artifact 'a': not an artifact: expected a file that begins with \"attnfile\""},
      {bytes.substr(1), "not an artifact"},
      {changed(8), "format: expected version 1, got 0: make it again"},
      {changed(14), "damaged or cut off: a table of"},
      {changed(20), "table of sections: damaged or altered"},
      {changed(32 + 32 * sections), "section 0 (manifest): damaged or altered: its bytes hash to"},
      {changed(32 + 32 * sections + manifest), "section 1 (PTX): damaged or altered"},
      {bytes.substr(0, bytes.size() - 1), "(host code): damaged or cut off: expected 7 bytes, got 6"},
      {bytes + "x", "damaged: expected no bytes after its sections, got 1 bytes"},
      {pack({}), "expected at least one kernel, got none"},
      {altered([](FileParts &p) { p[1].kind = 5; }), "section 1: expected a kind from 0 to 4, got 5"},
      {altered([](FileParts &p) { p.erase(p.begin()); }), "expected its manifest first, got its PTX"},
      {altered([](FileParts &p) { p[0].artifact = 3; }), "expected sections of artifact 0, got one of 3"},
      {altered([](FileParts &p) { p[0].content[0] = '['; }), "artifact 'a': manifest"},
      {altered([](FileParts &p) { std::swap(p[1], p[2]); }), "got its PTX after its cubin"},
      {altered([](FileParts &p) { p.insert(p.begin() + 1, p[1]); }), "got its PTX after its PTX"},
      {altered([](FileParts &p) { p.erase(p.begin() + 2); }),
       "cubins: expected none, or one for each of the 3"},
      {altered([](FileParts &p) { p.back().artifact = 2; }), "kernel 2: expected its manifest first"},
      {altered([](FileParts &p) { p[0].content.replace(p[0].content.find("sm_80"), 5, "sm_90"); }),
       "manifest.content_hash: expected"},
  };
  for (const Case &c : cases)
    EXPECT_NE(errorOf(c.bytes).find(c.message), std::string::npos)
        << errorOf(c.bytes) << "\n  expected " << c.message;
}

} // namespace
