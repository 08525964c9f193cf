//===- Launch.cpp - Blocks on all cores, one result -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks run in any order on any number of threads; if some wait for others, they begin in order. Findings,
// counters and deferred additions are kept per block and merged in block order, so that nothing a launch
// returns depends on the order.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/host/Launch.h"
#include "Signals.h"
#include "attn_rt/support/Threads.h"
#include "host/detect/Checker.h"
#include "host/detect/GridRaces.h"
#include "host/detect/Report.h"
#include "host/machine/Machine.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>
#include <pthread.h>
#include <thread>

namespace attn::rt::host {

namespace {

/// Blocks kept between launches: mapping arenas and stacks costs more than a small grid.
class BlockPool {
public:
  std::unique_ptr<Block> take() {
    std::lock_guard lock(mutex);
    if (idle.empty()) {
      idle.reserve(++made); // so that returning a block cannot fail
      return std::make_unique<Block>();
    }
    auto block = std::move(idle.back());
    idle.pop_back();
    return block;
  }
  void give(std::unique_ptr<Block> block) {
    std::lock_guard lock(mutex);
    idle.push_back(std::move(block));
  }
  static BlockPool &get() {
    static BlockPool &pool = []() -> BlockPool & {
      // A child must not wait for a lock that a thread of its parent held.
      pthread_atfork(nullptr, nullptr, [] { new (&instance()) BlockPool; });
      return instance();
    }();
    return pool;
  }

private:
  static BlockPool &instance() {
    static auto *pool = new BlockPool; // threads may outlive static objects
    return *pool;
  }
  std::mutex mutex;
  std::vector<std::unique_ptr<Block>> idle;
  size_t made = 0;
};

/// Updates the memory in flight. A grid that waited has ended after those in front; otherwise they may run as
/// long as it does.
void passOn(InFlight &inFlight, const std::vector<std::vector<LoggedRange>> &logs, bool waited) {
  if (waited)
    inFlight.settle();
  std::vector<std::pair<uint64_t, uint64_t>> written;
  for (const auto &log : logs)
    for (const LoggedRange &range : log)
      if (range.kind >= LoggedRange::Write)
        written.emplace_back(range.start, range.end);
  inFlight.add(std::move(written));
}

/// Threads that run blocks of a grid. The launching thread keeps polling for an early end until all have
/// ended.
class Workers {
public:
  void begin() {
    std::lock_guard lock(mutex);
    ++running;
  }
  void end() {
    std::lock_guard lock(mutex);
    --running;
    ended.notify_all();
  }
  /// Waits, as a worker without work, until the other workers have ended.
  void wait(Interrupt &interrupt) {
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, std::chrono::milliseconds(50), [&] { return running == 1; })) {
      lock.unlock();
      interrupt.poll();
      lock.lock();
    }
  }

private:
  std::mutex mutex;
  std::condition_variable ended;
  unsigned running = 0;
};

struct BlockResult {
  std::vector<LocalFinding> findings;
  std::vector<DeferredAdd> adds;
};

std::string validate(const HostKernel &kernel, Dim3 grid, Dim3 block, uint32_t sharedBytes) {
  uint64_t threads = block.count();
  if (threads == 0 || threads > kLanes * kMaxWarps)
    return kernel.name + ": a block of " + std::to_string(threads) + " threads; 1 to 1024 are possible";
  if (grid.count() == 0)
    return kernel.name + ": an empty grid";
  uint64_t need = dynamicSharedOffset(kernel.staticShared, kernel.sharedAlignment) + uint64_t(sharedBytes);
  if (need > kArenaBytes)
    return kernel.name + ": " + std::to_string(sharedBytes) +
           " bytes of shared memory; the host device has " + std::to_string(kArenaBytes);
  return {};
}

/// Runs the grid. If a block throws, this function rethrows, and `failed` is the number of the block.
void runGrid(const Grid &grid, InFlight *inFlight, Report &report, std::optional<uint64_t> &failed) {
  const LaunchOptions &options = grid.options;
  const uint64_t blocks = grid.grid.count();
  std::vector<uint32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  if (options.shuffle && !grid.kernel.inOrder) {
    Random random(options.seed);
    for (uint64_t i = blocks; i > 1; --i)
      std::swap(order[i - 1], order[random.below(static_cast<uint32_t>(i))]);
  }
  std::vector<BlockResult> results(blocks);
  std::atomic<uint64_t> next{0};
  std::atomic<bool> waited{false};
  std::mutex mutex;
  const bool check = options.check && grid.kernel.checked;
  WriteSet writes;
  if (check)
    writes.build(grid);
  std::vector<std::vector<LoggedRange>> logs(check ? blocks : 0);
  Workers workers;
  const auto launcher = std::this_thread::get_id();
  auto work = [&] {
    std::optional<uint64_t> current;
    workers.begin();
    try {
      auto block = BlockPool::get().take();
      auto checker = check ? std::make_unique<Checker>(writes) : nullptr;
      block->checker = checker.get();
      std::optional<WatchedThread> watched(std::in_place, *block, block->signalStack.get());
      Counters counters;
      for (uint64_t i; (i = next.fetch_add(1)) < blocks;) {
        current = order[i];
        block->findings.clear();
        block->run(grid, *current);
        counters.flops += block->flops;
        if (check) {
          counters += checker->counters();
          logs[*current] = checker->takeLog();
        }
        results[*current].findings = std::move(block->findings);
        results[*current].adds = std::move(block->adds);
      }
      block->checker = nullptr;
      watched.reset();
      if (checker && checker->waitedForGrids())
        waited = true;
      std::unique_lock lock(mutex);
      report.counters += counters;
      BlockPool::get().give(std::move(block));
      lock.unlock();
      if (grid.interrupt && std::this_thread::get_id() == launcher)
        workers.wait(*grid.interrupt);
      workers.end();
    } catch (...) {
      workers.end();
      next = blocks; // the other threads need not continue
      grid.isFailed = true;
      std::lock_guard lock(mutex);
      if (!failed)
        failed = current;
      throw;
    }
  };
  unsigned threads = options.threads ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  onThreads(static_cast<unsigned>(std::min<uint64_t>(threads, blocks)), work);
  if (check) {
    std::vector<std::vector<LocalFinding>> found(blocks);
    findGridRaces(grid, logs, found);
    for (uint64_t b = 0; b < blocks; ++b)
      std::move(found[b].begin(), found[b].end(), std::back_inserter(results[b].findings));
  }
  if (inFlight)
    passOn(*inFlight, logs, waited || !check);
  for (uint64_t b = 0; b < blocks; ++b) {
    for (const DeferredAdd &add : results[b].adds)
      *add.address += add.value;
    addFindings(report, grid, b, results[b].findings);
  }
}

/// Describes a launch in which the runtime threw.
void describeFailure(Report &report, const Grid &grid, std::optional<uint64_t> failed) {
  const std::string blocks = std::to_string(grid.grid.count());
  const std::string where =
      (failed ? "block " + std::to_string(*failed) + " of " + blocks : "a grid of " + blocks + " blocks") +
      " (" + std::to_string(grid.block.count()) + " threads, " + std::to_string(grid.sharedBytes) +
      " bytes of shared memory)";
  try {
    throw;
  } catch (const NoRoom &error) {
    report.outOfMemory = true;
    report.error =
        "out of memory: " + std::to_string(error.bytes) + " bytes for " + error.purpose + ", in " + where;
  } catch (const std::bad_alloc &) {
    report.outOfMemory = true;
    report.error = "out of memory in " + where;
  } catch (const std::exception &error) {
    report.error = std::string(error.what()) + ", in " + where;
  }
}

} // namespace

void Interrupt::poll() {
  if (isRaised.load(std::memory_order_relaxed))
    throw Interrupted();
  if (std::this_thread::get_id() != launcher)
    return;
  const Clock::time_point now = Clock::now();
  if (now - asked < std::chrono::milliseconds(50))
    return;
  asked = now;
  if (!ask())
    return;
  isRaised = true;
  throw Interrupted();
}

Report launch(const HostKernel &kernel, Dim3 gridDim, Dim3 blockDim, uint32_t sharedBytes, void **args,
              MemoryMap &memory, const LaunchOptions &options, InFlight *inFlight) {
  Report report;
  report.error = validate(kernel, gridDim, blockDim, sharedBytes);
  if (!report.error.empty())
    return report;
  auto start = std::chrono::steady_clock::now();
  std::optional<Interrupt> interrupt;
  if (options.interrupted)
    interrupt.emplace(options.interrupted);
  const Grid grid{kernel,      gridDim,  blockDim,
                  sharedBytes, args,     memory,
                  options,     inFlight, interrupt ? &*interrupt : nullptr};
  const SignalNotes notes(options.nameSignals);
  std::optional<uint64_t> failed;
  try {
    runGrid(grid, inFlight, report, failed);
  } catch (...) {
    describeFailure(report, grid, failed);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

} // namespace attn::rt::host
