//===- LoadArtifactTest.cpp - Which of a file's kernels a device takes ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/LoadArtifact.h"
#include "ArtifactFile.h"
#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/support/Chips.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

std::vector<Artifact> of(std::initializer_list<std::pair<std::string, std::string>> named) {
  std::vector<Artifact> artifacts;
  for (const auto &[entry, target] : named)
    artifacts.push_back(sampleArtifact(entry, target));
  return artifacts;
}

std::string chosen(const Device &device, const std::vector<Artifact> &artifacts,
                   const std::string &entry = {}, const std::string &target = {}) {
  const auto result = chooseArtifact(device, artifacts, "k.attn", entry, target);
  return result ? (*result)->manifest.entry + " " + (*result)->manifest.target : result.error().message;
}

TEST(LoadArtifact, TheHostTakesWhatHasItsCode) {
  const auto host = makeHostDevice();
  auto artifacts = of({{"decode", "sm_80"}, {"decode", "sm_90a"}});
  EXPECT_EQ(chosen(*host, artifacts),
            "artifact 'k.attn' has no code for the host device: compile it with the "
            "form host (attn-opt --host-code)");
  artifacts[1].hostCode = {1};
  EXPECT_EQ(chosen(*host, artifacts), "decode sm_90a");
  const auto loaded = loadArtifact(*host, artifacts, "k.attn");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message, "artifact 'k.attn': host code: not made by this compiler");
}

TEST(LoadArtifact, AFunctionIsChosenByItsName) {
  const auto host = makeHostDevice();
  auto artifacts = of({{"decode", "sm_80"}, {"append", "sm_80"}, {"decode", "sm_90a"}});
  for (Artifact &artifact : artifacts)
    artifact.hostCode = {1};
  EXPECT_EQ(chosen(*host, artifacts), "artifact 'k.attn' has more than one function; choose one by its name: "
                                      "'decode', 'append'");
  EXPECT_EQ(chosen(*host, artifacts, "append"), "append sm_80");
  EXPECT_EQ(chosen(*host, artifacts, "decode", "sm_90a"), "decode sm_90a");
  EXPECT_EQ(chosen(*host, artifacts, "move"),
            "artifact 'k.attn' has no function 'move'; it has 'decode', 'append'");
  EXPECT_EQ(chosen(*host, artifacts, "decode", "sm_89"),
            "artifact 'k.attn': 'decode' is not compiled for sm_89, but for sm_80, sm_90a");
  artifacts[2].manifest.problem += " ";
  EXPECT_EQ(chosen(*host, artifacts, "decode"),
            "artifact 'k.attn': 'decode': there are several of that name, which are described differently");
}

TEST(LoadArtifact, AGpuTakesItsOwnTargetAndElseOneThatItRuns) {
  const auto gpu = openCudaDevice({0, ATTN_FAKE_CUDA});
  ASSERT_TRUE(gpu) << gpu.error().message;
  const int capability = (*gpu)->properties().computeCapability;
  ASSERT_GE(capability, 80);
  const std::string own(targetOfGpu(capability));
  EXPECT_EQ(chosen(**gpu, of({{"decode", "sm_80"}, {"decode", own + ""}})), "decode " + own);
  EXPECT_EQ(chosen(**gpu, of({{"decode", "sm_120a"}, {"decode", "sm_80"}})), "decode sm_80");
  const std::string refused = chosen(**gpu, of({{"decode", "sm_120a"}, {"decode", "sm_100a"}}));
  EXPECT_EQ(refused, "artifact 'k.attn': 'decode' is compiled for sm_120a, sm_100a, which '" +
                         (*gpu)->properties().name + "' does not run: compile it for " + own);
  if (capability >= 90) { // PTX runs on newer generations, and the newest is best; cubins do not
    auto older = of({{"decode", "sm_80"}, {"decode", "sm_89"}, {"decode", "sm_80"}});
    EXPECT_EQ(chosen(**gpu, older), "decode sm_89");
    for (Artifact &artifact : older)
      artifact.ptx.clear();
    EXPECT_NE(chosen(**gpu, older).find("is compiled for sm_80, sm_89, which"), std::string::npos);
  }
  EXPECT_EQ(chosen(**gpu, {}), "artifact 'k.attn' has no functions");
  auto without = of({{"decode", own}});
  without[0].ptx.clear();
  without[0].cubins.clear();
  EXPECT_EQ(chosen(**gpu, without),
            "artifact 'k.attn': 'decode' has no code for a GPU: compile it with the form PTX or cubin");
}

} // namespace
