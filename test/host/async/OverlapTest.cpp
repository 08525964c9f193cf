//===- OverlapTest.cpp - Launches that begin before others have ended -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include <gtest/gtest.h>

using namespace attn;
using namespace attn::rt::host;

namespace {

constexpr uint32_t blocks = 2, threads = 64;

/// Launches over three arrays; they write the first.
struct Overlap : testing::Test {
  std::unique_ptr<test::Program> program = test::Program::fromFile("overlap.mlir");
  test::Launcher launcher;
  InFlight inFlight;
  uint32_t *a = launcher.upload("a", std::vector<uint32_t>(blocks *threads)),
           *b = launcher.output<uint32_t>("b", blocks *threads),
           *c = launcher.output<uint32_t>("c", blocks *threads);

  Report launch(const char *kernel, uint32_t *from, uint32_t *to) {
    void *args[] = {&from, &to};
    return rt::host::launch(program->kernel(kernel), {blocks}, {threads}, 1024, args, launcher.memory,
                            launcher.options, &inFlight);
  }
  void expectClean(const Report &report) { EXPECT_TRUE(report.clean()) << report.describe(); }
  void expectRace(const Report &report, const char *op, const char *message) {
    EXPECT_GT(report.total(FindingKind::Race), 0u);
    ASSERT_FALSE(report.findings.empty());
    EXPECT_NE(report.findings[0].op.find(op), std::string::npos) << report.describe();
    EXPECT_NE(report.findings[0].message.find(message), std::string::npos) << report.describe();
  }
};

TEST_F(Overlap, waitsBeforeItReads) {
  for (bool shuffle : {false, true}) {
    launcher.options.shuffle = shuffle;
    expectClean(launch("waits", a, b));
    expectClean(launch("waits", b, c));
    inFlight.settle();
  }
}

TEST_F(Overlap, readsTooEarly) {
  for (bool shuffle : {false, true}) {
    launcher.options.shuffle = shuffle;
    inFlight.settle();
    expectClean(launch("reads_early", a, b));
    expectRace(launch("reads_early", b, c), "llvm.load", "reads what a launch in front of this one writes");
  }
}

TEST_F(Overlap, lettingDependentsStartIsNoWait) {
  expectClean(launch("waits", a, b));
  expectRace(launch("lets", b, c), "llvm.load", "no griddepcontrol.wait before");
}

TEST_F(Overlap, nothingIsInFlightBehindALaunchThatDoesNotOverlap) {
  expectClean(launch("waits", a, b));
  inFlight.settle();
  expectClean(launch("lets", b, c));
}

TEST_F(Overlap, whatNobodyWritesMayBeReadEarly) {
  expectClean(launch("waits", a, b));
  expectClean(launch("reads_early", a, c));
}

TEST_F(Overlap, writesTooEarly) {
  expectClean(launch("waits", a, b));
  expectRace(launch("lets", a, b), "llvm.store", "writes what a launch in front of this one writes");
}

TEST_F(Overlap, copiesTooEarly) {
  expectClean(launch("waits", a, b));
  expectRace(launch("copies_early", b, c), "nvvm.cp.async",
             "copies what a launch in front of this one writes");
}

TEST_F(Overlap, oneThreadWaitsForABarrierful) {
  expectClean(launch("waits", a, b));
  expectClean(launch("one_waits", b, c));
}

TEST_F(Overlap, oneThreadWaitsForItselfOnly) {
  expectClean(launch("waits", a, b));
  Report report = launch("one_waits_alone", b, c);
  expectRace(report, "llvm.load", "reads what a launch in front of this one writes");
  EXPECT_EQ(report.total(FindingKind::Race), blocks * (threads - 1));
}

// A launch that waited ends after those in front of it. The next launch may have overtaken one that did not
// wait.
TEST_F(Overlap, waitingForOneThatWaitedIsWaitingForAll) {
  uint32_t *d = launcher.output<uint32_t>("d", blocks * threads);
  expectClean(launch("waits", a, b));
  expectClean(launch("waits", b, c));
  expectClean(launch("lets", b, d));
  inFlight.settle();
  expectClean(launch("waits", a, b));
  expectClean(launch("never_waits", a, c));
  expectRace(launch("lets", b, d), "llvm.load", "reads what a launch in front of this one writes");
}

} // namespace
