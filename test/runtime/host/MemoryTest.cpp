//===- MemoryTest.cpp - Launches for which there is no memory --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every allocation of a launch is refused, one after another, on whichever thread and
// fiber it happens: the launch returns an error, and the next launch is right.
//
//===----------------------------------------------------------------------===//
#include "NativeKernel.h"
#include "attn_rt/support/Threads.h"

#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <new>
#include <sys/resource.h>

using namespace attn;
using namespace attn::rt::host;

namespace {

constexpr int64_t never = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> allocations{0}, firstRefused{never}, lastRefused{never};

bool refused() {
  const int64_t number = allocations.fetch_add(1, std::memory_order_relaxed);
  return firstRefused <= number && number <= lastRefused;
}

} // namespace

// NOLINTBEGIN(misc-new-delete-overloads)
void *operator new(size_t bytes) {
  if (!refused())
    if (void *memory = std::malloc(bytes ? bytes : 1))
      return memory;
  throw std::bad_alloc();
}
void *operator new(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  if (!refused())
    if (void *memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit))
      return memory;
  throw std::bad_alloc();
}
void *operator new(size_t bytes, const std::nothrow_t &) noexcept { return std::malloc(bytes); }
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { std::free(memory); }
// NOLINTEND(misc-new-delete-overloads)

namespace {

constexpr uint32_t threads = 64, blocks = 6, sharedBytes = 4096;
enum Op : uint32_t { Load, Store, Meet, Copy, Add, Stray };

/// Makes every kind of allocation: copies in flight, sums to be added in order, findings, logs, requests.
void busy(LaneAbi *lane, void **args) {
  static auto *const load = test::operation<void *(LaneAbi *, uint32_t, void *)>("attn_host_load");
  static auto *const store = test::operation<void *(LaneAbi *, uint32_t, void *)>("attn_host_store");
  static auto *const add = test::operation<void(LaneAbi *, uint32_t, float *, float)>("attn_host_add_f32");
  static auto *const barrier =
      test::operation<void(LaneAbi *, uint32_t, uint32_t, uint32_t)>("attn_host_barrier");
  static auto *const copy =
      test::operation<void(LaneAbi *, uint32_t, void *, const void *, uint32_t, uint32_t)>(
          "attn_host_cp_async");
  static auto *const commit = test::operation<void(LaneAbi *)>("attn_host_cp_commit");
  static auto *const wait = test::operation<void(LaneAbi *, uint32_t)>("attn_host_cp_wait");
  float *in = *static_cast<float **>(args[0]), *out = *static_cast<float **>(args[1]);
  const uint32_t thread = lane->special[TidX], place = lane->special[CtaidX] * threads + thread;
  uint8_t *shared = lane->shared + dynamicSharedOffset(0, 16);
  for (uint32_t part = 0; part < 3; ++part) {
    copy(lane, Copy, shared + 16 * thread + 1024 * part, in + 4 * thread, 16, 16);
    commit(lane);
  }
  wait(lane, 0);
  barrier(lane, Meet, 0, 0);
  const float value = *static_cast<float *>(load(lane, Load, shared + 16 * (thread ^ 1)));
  *static_cast<float *>(store(lane, Store, out + place)) = value;
  add(lane, Add, out + blocks * threads, 1);
  (void)load(lane, Stray, in + 100000 + place);
}

struct Problem {
  HostKernel kernel = test::nativeKernel("busy", busy);
  MemoryMap memory;
  float *in, *out;

  Problem() {
    std::vector<HostOpInfo> ops(6);
    const std::pair<Access, Space> of[] = {
        {Access::Load, Space::Shared},      {Access::Store, Space::Global},  {Access::Sync, Space::Generic},
        {Access::AsyncCopy, Space::Shared}, {Access::Atomic, Space::Global}, {Access::Load, Space::Global}};
    for (size_t i = 0; i < ops.size(); ++i) {
      ops[i].text = "operation " + std::to_string(i) + ", with a text that is too long for no allocation";
      std::tie(ops[i].access, ops[i].space) = of[i];
      ops[i].bytes = i == Copy ? 16 : 4;
    }
    kernel.ops = std::move(ops);
    kernel.checked = true;
    in = static_cast<float *>(*memory.alloc(4 * 4 * threads, "in"));
    out = static_cast<float *>(*memory.alloc(4 * (blocks * threads + 1), "out"));
    for (uint32_t i = 0; i < 4 * threads; ++i)
      in[i] = float(i);
    memory.markWritten(in, 4 * 4 * threads);
  }
  Report launch(uint32_t blockThreads = threads) {
    out[blocks * threads] = 0;
    memory.markWritten(out + blocks * threads, 4);
    void *args[] = {&in, &out};
    LaunchOptions options;
    options.threads = 3;
    return rt::host::launch(kernel, {blocks}, {blockThreads}, sharedBytes, args, memory, options);
  }
};

/// Launches with allocations [first, last] refused, counted from the launch on. Returns the report; empty if
/// not even that is possible.
std::optional<Report> launchWithout(Problem &problem, int64_t first, int64_t last) {
  std::optional<Report> report;
  allocations = 0, lastRefused = last, firstRefused = first;
  try {
    Report made = problem.launch();
    firstRefused = never;
    report = std::move(made);
  } catch (const std::bad_alloc &) {
    firstRefused = never;
  }
  return report;
}

void expectRight(Problem &problem) {
  const Report report = problem.launch();
  EXPECT_EQ(report.error, "");
  EXPECT_EQ(report.total(FindingKind::OutOfBounds), blocks * threads);
  EXPECT_EQ(problem.out[blocks * threads], float(blocks * threads));
  for (uint32_t i = 0; i < blocks * threads; ++i)
    ASSERT_EQ(problem.out[i], float(4 * (i % threads ^ 1)));
}

TEST(Memory, everyAllocationOfALaunchMayFail) {
  Problem problem;
  expectRight(problem);
  allocations = 0;
  expectRight(problem);
  const int64_t total = allocations;
  ASSERT_GT(total, 100);
  unsigned named = 0;
  for (int64_t first = 0; first < total; first += first < 60 ? 1 : 1 + total / 150) {
    for (int64_t last : {first, never}) {
      const std::optional<Report> report = launchWithout(problem, first, last);
      if (!report || report->error.empty()) // there was no memory for an error; or this launch needed less
        continue;
      ++named;
      EXPECT_TRUE(report->outOfMemory);
      EXPECT_EQ(report->error.substr(0, 16), "out of memory in") << report->error;
      EXPECT_NE(report->error.find("64 threads, 4096 bytes of shared memory"), std::string::npos)
          << report->error;
    }
    if (first % 20 == 0)
      expectRight(problem);
  }
  EXPECT_GT(named, 30u);
  expectRight(problem);
}

/// Limits further address space to `bytes`, and allows no threads: their stacks need more.
void limitMemory(size_t bytes) {
  size_t pages = 0;
  if (FILE *file = fopen("/proc/self/statm", "r")) {
    if (fscanf(file, "%zu", &pages) != 1)
      abort();
    fclose(file);
  }
  const rlimit limit{pages * 4096 + bytes, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit))
    abort();
}

/// AddressSanitizer needs memory of its own for each thread, and ends the program without it.
constexpr bool endsWithoutMemory =
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
    true ||
#endif
#endif
    false;

TEST(Memory, stacksThatFindNoRoomAreAnError) {
  if (endsWithoutMemory)
    GTEST_SKIP() << "AddressSanitizer finds no room for its own stacks first";
  EXPECT_EXIT(
      {
        Problem problem;
        limitMemory(6 << 20);
        const Report report = problem.launch(1024);
        fputs(report.error.c_str(), stderr);
        exit(report.outOfMemory ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "out of memory: 13533[0-9]* bytes for the stacks of its threads, in block . of 6 \\(1024 threads");
}

TEST(Memory, whereThereAreNoMoreThreadsFewerDoIt) {
  if (endsWithoutMemory)
    GTEST_SKIP() << "AddressSanitizer finds no room for its own stacks first";
  EXPECT_EXIT(
      {
        limitMemory(1 << 20); // besides stacks left by threads of other tests
        std::atomic<unsigned> done = 0;
        rt::onThreads(64, [&] { ++done; });
        fprintf(stderr, "%u did", done.load());
        exit(done >= 1 && done < 64 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "did");
}

TEST(Memory, whatAThreadThrowsArrives) {
  std::atomic<unsigned> ended = 0;
  try {
    rt::onThreads(4, [&] {
      ++ended;
      throw std::runtime_error("of a thread");
    });
    FAIL();
  } catch (const std::runtime_error &error) {
    EXPECT_STREQ(error.what(), "of a thread");
  }
  EXPECT_EQ(ended, 4u);
}

} // namespace
