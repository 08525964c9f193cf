//===- FuzzTest.cpp - Random calls of the C API ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any function, on any handles that fit its types, in any order: objects of different devices and kernels,
// null pointers, meaningless numbers, objects destroyed before the objects made of them, two threads. A call
// succeeds, or it fails with a message, returns nothing and is no internal error of attn. The sanitizers,
// under which these tests also run, find everything else. Kernels go to a fake driver.
//
//===----------------------------------------------------------------------===//
#include "Fuzz.h"
#include "FuzzCache.h"

#include <thread>

using namespace attn::rt::test;

namespace {

/// Makes calls of one thread, and counts their results.
class AnyCaller : public CacheCaller {
public:
  using CacheCaller::CacheCaller;

  void call(size_t count) {
    for (size_t i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      const auto &[name, function] = calls()[below(rng, calls().size())];
      now = name;
      (this->*function)();
    }
  }

private:
  using Call = std::pair<const char *, void (AnyCaller::*)()>;
  static const std::vector<Call> &calls();
  void destroy() { world.destroyOne(rng); }
};

const std::vector<AnyCaller::Call> &AnyCaller::calls() {
  static const std::vector<Call> all = {
      {"open device", &AnyCaller::openDevice},
      {"ask device", &AnyCaller::askDevice},
      {"make memory", &AnyCaller::makeMemory},
      {"use memory", &AnyCaller::useMemory},
      {"read artifact", &AnyCaller::readArtifact},
      {"use artifact", &AnyCaller::useArtifact},
      {"load kernel", &AnyCaller::loadKernel},
      {"ask kernel", &AnyCaller::askKernel},
      {"ask store", &AnyCaller::askStore},
      {"quantize", &AnyCaller::quantize},
      {"make batch", &AnyCaller::makeBatch},
      {"ask batch", &AnyCaller::askBatch},
      {"make builder", &AnyCaller::makeBuilder},
      {"use builder", &AnyCaller::useBuilder},
      {"make plan", &AnyCaller::makePlan},
      {"update plan", &AnyCaller::updatePlan},
      {"run plan", &AnyCaller::runPlan},
      {"ask plan", &AnyCaller::askPlan},
      {"change plan", &AnyCaller::changePlan},
      {"make cache", &AnyCaller::makeCache},
      {"grow cache", &AnyCaller::growCache},
      {"shrink cache", &AnyCaller::shrinkCache},
      {"speculate", &AnyCaller::speculate},
      {"apply to cache", &AnyCaller::applyToCache},
      {"ask cache", &AnyCaller::askCache},
      {"use movement", &AnyCaller::useMovement},
      {"make cache kernels", &AnyCaller::makeCacheKernels},
      {"use cache kernels", &AnyCaller::useCacheKernels},
      {"make step tables", &AnyCaller::makeStepTables},
      {"use step tables", &AnyCaller::useStepTables},
      {"make other kernels", &AnyCaller::makeOtherKernels},
      {"destroy", &AnyCaller::destroy},
  };
  return all;
}

/// Makes `count` calls on each of `threads` threads.
void fuzz(uint64_t seed, size_t threads, size_t count, std::map<std::string, int> &succeeded) {
  World world;
  std::vector<AnyCaller> callers;
  for (size_t i = 0; i < threads; ++i)
    callers.emplace_back(world, seed * 1000 + i);
  std::vector<std::thread> running;
  for (size_t i = 1; i < threads; ++i)
    running.emplace_back([&, i] { callers[i].call(count); });
  callers[0].call(count);
  for (std::thread &thread : running)
    thread.join();
  for (const AnyCaller &caller : callers)
    for (const auto &[name, times] : caller.succeeded)
      succeeded[name] += times;
}

/// Under sanitizers a call takes ten times as long.
size_t seeds() {
  const char *full = getenv("ATTN_FULL");
  return static_cast<size_t>(rounds(full && *full ? 400 : 20));
}

TEST(CapiFuzz, OneThread) {
  std::map<std::string, int> succeeded;
  for (size_t seed = 0; seed < seeds() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    fuzz(seed, 1, 3000, succeeded);
  }
  for (const auto &[name, times] : succeeded)
    // The kernels here have no head classes, and there are no other operations on caches.
    EXPECT_TRUE(times > 0 || name == "ask kernel" || name == "make other kernels") << name;
}

TEST(CapiThreadsFuzz, TwoThreads) {
  std::map<std::string, int> succeeded;
  for (size_t seed = 0; seed < seeds() && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    fuzz(seed, 2, 1500, succeeded);
  }
}

} // namespace
