//===- ArtifactTest.cpp - Files of artifacts through the C API ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Files come from outside. Any file is refused with a message, or loads. Code of loaded
// files is not run here: whoever can make a file's hashes right can have any code executed.
// test --full has a million mutants, also under AddressSanitizer.
//
//===----------------------------------------------------------------------===//
#include "ArtifactFile.h"
#include "Fuzz.h"
#include "attn-c/Runtime.h"
#include "attn_rt/host/CodeObject.h"

#include <fstream>
#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

std::string plantedFile() {
  Artifact artifact = sampleArtifact();
  std::ifstream file(ATTN_PLANTED_KERNELS, std::ios::binary);
  host::CodeObject object;
  object.elf.assign(std::istreambuf_iterator<char>(file), {});
  EXPECT_FALSE(object.elf.empty()) << ATTN_PLANTED_KERNELS;
  object.cpu = host::cpuModels[0];
  const host::SharedList<host::WarpProgram> programs(
      {host::WarpProgram{{host::WarpStep(), host::WarpStep()}}});
  for (const KernelInfo &info : artifact.manifest.kernels) {
    host::HostKernel &kernel = object.kernels.emplace_back();
    kernel.name = info.name;
    kernel.programs = programs;
    kernel.parameterBytes.assign(info.params.size(), 8);
  }
  artifact.hostCode = host::writeCodeObject(object);
  return writeArtifacts({&artifact, 1});
}

struct Refusal {
  AttnStatusKind kind;
  std::string message;
};
Refusal take(AttnStatus status) {
  Refusal refusal{status.kind, status.message ? status.message : ""};
  attnStatusFree(status);
  return refusal;
}

TEST(CapiArtifact, IsReadTakenApartAndJoined) {
  const std::string bytes = plantedFile();
  AttnBytes *joined = nullptr, *alone = nullptr;
  const AttnArtifactPart parts[] = {{bytes.data(), bytes.size(), "first"},
                                    {bytes.data(), bytes.size(), nullptr}};
  ASSERT_EQ(take(attnArtifactJoin(parts, 2, &joined)).message, "");
  AttnArtifact *artifact = nullptr;
  ASSERT_EQ(take(attnArtifactRead(attnBytesData(joined), attnBytesSize(joined), "x", &artifact)).message, "");
  ASSERT_EQ(attnArtifactCount(artifact), 2u);
  const AttnArtifactInfo info = attnArtifactInfo(artifact, 0);
  EXPECT_STREQ(info.entry, "decode");
  EXPECT_STREQ(info.target, "sm_80");
  EXPECT_STREQ(info.producer, "attn test");
  EXPECT_STREQ(info.note, "first");
  EXPECT_TRUE(info.host && info.ptx && info.cubin);
  EXPECT_STREQ(attnArtifactInfo(artifact, 1).note, "");
  EXPECT_EQ(attnArtifactInfo(artifact, 2).entry, nullptr);
  ASSERT_EQ(take(attnArtifactTake(artifact, 1, &alone)).message, "");
  EXPECT_EQ(std::string(attnBytesData(alone), attnBytesSize(alone)), bytes);
  EXPECT_EQ(take(attnArtifactTake(artifact, 2, &alone)).message, "index: expected at most 1, got 2");
  EXPECT_EQ(take(attnArtifactJoin(parts, 0, &joined)).message, "parts: expected at least one, got none");
  attnBytesDestroy(alone);
  attnBytesDestroy(joined);
  attnArtifactDestroy(artifact);
}

/// Makes a mutant of a file: changed bytes, or changed sections with right hashes.
std::string mutant(const std::string &bytes, const FileParts &parts, Rng &rng) {
  if (below(rng, 8) == 0)
    return mutate(bytes, rng);
  FileParts changed = parts;
  for (size_t round = 1 + below(rng, 2); round > 0; --round) {
    const size_t at = below(rng, changed.size());
    std::string &content = changed[at].content;
    switch (below(rng, 8)) {
    case 0:
      changed[at].kind = static_cast<uint32_t>(below(rng, 6));
      break;
    case 1:
      changed[at].artifact = static_cast<uint32_t>(below(rng, 3));
      break;
    case 2:
      changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(below(rng, changed.size())), changed[at]);
      break;
    case 3:
      content = mutate(content, rng);
      break;
    default: // the host's code: headers, symbols and relocations of the object are numbers
      std::string &code = changed.back().content;
      for (size_t flips = 1 + below(rng, 4); flips > 0 && !code.empty(); --flips)
        code[below(rng, code.size())] = static_cast<char>(below(rng, 3) ? rng() : below(rng, 2) ? 0 : 0xff);
    }
  }
  return pack(changed);
}

TEST(CapiArtifact, MutantsAreRefusedOrLoad) {
  const char *full = getenv("ATTN_FULL");
  const int count = rounds(full && *full ? 1000000 : 4000);
  const std::string bytes = plantedFile();
  const FileParts parts = unpack(bytes);
  AttnDevice *device = nullptr;
  ASSERT_EQ(take(attnDeviceOpenHost(nullptr, &device)).message, "");
  Rng rng(22);
  int loaded = 0, read = 0;
  for (int i = 0; i < count; ++i) {
    const std::string odd = i ? mutant(bytes, parts, rng) : bytes;
    AttnArtifact *artifact = nullptr;
    AttnKernel *kernel = nullptr;
    const Refusal refusal =
        i % 8 ? take(attnKernelLoad(device, odd.data(), odd.size(), "odd", nullptr, &kernel))
              : take(attnArtifactRead(odd.data(), odd.size(), "odd", &artifact));
    EXPECT_NE(refusal.kind, AttnStatusInternal) << i << ": " << refusal.message;
    EXPECT_EQ(refusal.kind == AttnStatusOk, refusal.message.empty()) << i;
    EXPECT_EQ(refusal.kind == AttnStatusOk, artifact || kernel) << i;
    read += artifact != nullptr;
    loaded += kernel != nullptr;
    for (size_t slot = 0; attnKernelSlot(kernel, slot); ++slot)
      EXPECT_NE(*attnKernelSlot(kernel, slot), 0);
    attnKernelDestroy(kernel);
    attnArtifactDestroy(artifact);
  }
  EXPECT_GT(read, count / 32);
  EXPECT_GT(loaded, count / 10);
  attnDeviceDestroy(device);
}

} // namespace
