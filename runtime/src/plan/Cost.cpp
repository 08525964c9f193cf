//===- Cost.cpp - How long tiles, tasks and plans take ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every resource is busy for a time of its own, and they work in parallel:
//
//     launch + start + max(bytes, L2, tensor cores, softmax) [+ merge]
//
// except for one tile: the first tile's bytes come before anything is computed, and the
// last tile is computed after all bytes have arrived. Blocks of few tiles, such as those
// that read the nodes of a tree, notice it.
//
// Memory moves K and V once, however many tiles of rows read them: repeated reads come
// from the L2, which has a bandwidth of its own. Decoding a shared prompt row by row is
// limited by it. Tensor cores and softmax count for the block with the most work. Rates
// are in Gpu.cpp; constants that do not scale are here. CostTest.cpp lists the shapes at
// which the model was compared with an H200.
//
// Not modelled: the time that a score region adds to the softmax, and the tail of a
// wave of unequal blocks if bytes are the limit.
//
//===----------------------------------------------------------------------===//
#include "plan/Balance.h"

#include <algorithm>
#include <cmath>

namespace attn::rt {

namespace {

// Measured on an H200, 2026-11-20: the time between two events around a launch beyond the kernel's, and of a
// kernel beyond its bytes. Its blocks start, read their tasks, fill their rings, and end one after another.
constexpr double launchSeconds = 3.6e-6, startSeconds = 5.5e-6;
// Measured likewise: the time that a merge of few rows adds when it is launched after the attention, and when
// it may start beside it (a cut decode of 4,096 tokens took 13 us in all).
constexpr double mergeBehindSeconds = 5.0e-6, mergeBesideSeconds = 0.5e-6;
// The time of starting a task, before its first tile arrives: two dependent loads of the plan, one of a page
// index and one of K. They take some 500 to 600 ns each on Hopper, mostly hidden behind the task before
// (derived, 2026-11). If blocks wait for memory, each load waits behind the tiles of all other blocks, and no
// load of the next task starts before the last task's rows are finished. With 5 us instead of 1 an H200
// decoded 64 sequences of 64 to 8,192 tokens in 243 us instead of 256, 16 of 8K in 125 instead of 128, and 32
// heads of which 24 stream, after 32K, in 40 instead of 44 (2026-11-23). So steps of decoding take the second
// constant; nodes of a tree that more rows read are predicted well by the first.
constexpr double taskSeconds = 1.0e-6, taskSecondsOfBusyMemory = 5.0e-6;
// A merge whose rows do not fit the multiprocessors at once takes this much for each further time that they
// are filled (8,192 rows, three times five blocks of four on each of 132, took 13 us in all). Measured on an
// H200, 2026-11-20.
constexpr double mergeWaveSeconds = 4.2e-6;
// The time from the request of a tile to its arrival while the memory is busy. A block has its shared
// memory's worth of bytes in flight, so this limits the bandwidth of few blocks. Derived, 2026-11.
constexpr double latencySeconds = 0.8e-6;
// Latency if tasks are assigned whole: a block then reads beside few others. 32 tasks of 8,192 tokens on as
// many multiprocessors took an H100 66 us, which is 66 GB/s for each, with 100 KiB in flight. 64 tasks of
// 4,096 tokens, the same bytes, took 50 us, which is the memory's bandwidth (2026-11-25).
constexpr double drawingSeconds = 1.55e-6;
// No share is shorter than this many keys…
constexpr int64_t shareTokens = 256;
// … and the Q, tasks and segments that a cut makes blocks read again may add this fraction of the share's K
// and V. The limit does not hold if rows share what they read: their tiles are full, Q is half of a tile's
// bytes or more, and cutting a prompt that few tasks read is what keeps all blocks busy. All heads share
// latents, and their Q is as wide as a line: with the limit, 64K tokens of one sequence kept 30 of an H200's
// 132 blocks busy for 128 heads and 57 of 264 for 16, in 173 and 61 us (2026-11-29).
constexpr double rereadLimit = 0.015;

KernelRates ratesOf(const KernelInfo &kernel, const GpuModel &gpu) {
  KernelRates rates = kernel.schedule == KernelInfo::Schedule::Wgmma ? gpu.wgmma : gpu.mma;
  if (rates.flopsPerSecond <= 0)
    rates.flopsPerSecond = gpu.flopsPerSecond;
  if (rates.exponentialsPerSecond <= 0)
    rates.exponentialsPerSecond = rates.flopsPerSecond; // never the limit
  return rates;
}

/// Whether blocks need only bytes: elements are used as they are stored, and heads read rows of memory of
/// their own. For other kernels it was not measured how much less bandwidth blocks use.
bool readsAsStored(const Work &work, int rows, int blocks, double elementBytes) {
  const auto isStored = [&](const Format &format, int dim) {
    return format.isPlain() && static_cast<double>(format.rowBytes(dim)) >= dim * elementBytes;
  };
  const auto heads = work.workTiles.empty() ? 1 : work.workTiles.front().ordinals.count();
  return headsInLockstep(rows, work.stores, heads, blocks) == 1 &&
         std::all_of(work.stores.begin(), work.stores.end(), [&](const Store &store) {
           return isStored(store.keys.format, store.keys.dim) &&
                  isStored(store.values.format, store.values.dim);
         });
}

/// The number of rows that are merged at once.
double mergeWaveRows(const Manifest &m, const GpuModel &gpu) {
  const LaunchInfo *launch = m.findLaunch(PlanArray::MergeRows);
  if (!launch)
    return 0;
  const KernelInfo &kernel = m.kernels[static_cast<size_t>(launch->kernels.front())];
  return static_cast<double>(gpu.multiprocessors) * kernel.blocksPerSM * kernel.warps * kernel.rowsPerWarp /
         kernel.pieces;
}

double mergeSecondsOf(const Manifest &m) {
  const bool beside = std::any_of(m.launches.begin(), m.launches.end(),
                                  [](const LaunchInfo &launch) { return launch.overlapsPrevious; });
  return beside ? mergeBesideSeconds : mergeBehindSeconds;
}

} // namespace

CostModel::CostModel(const Manifest &m, const KernelInfo &kernel, const Work &work, int blocks,
                     const GpuModel &gpu)
    : mergeSeconds(mergeSecondsOf(m)),
      bytesPerSecond(gpu.memoryBytesPerSecond > 0 ? gpu.memoryBytesPerSecond : gpu.bytesPerSecond),
      l2BytesPerSecond(gpu.l2BytesPerSecond), multiprocessors(gpu.multiprocessors) {
  const auto elementBytes = static_cast<double>(dtypeSize(m.dtype)); // of queries
  const Store store = storeOf(m.argumentOf(m.operands.front()));
  const auto tokenBytes = static_cast<double>(store.tokenBytes());
  const double tileBytes = kernel.keys * tokenBytes;
  const double scores = static_cast<double>(kernel.rows) * kernel.keys;
  const double tileFlops = 2.0 * scores * (m.keyDim + m.valueDim);

  const auto tokensOnce = static_cast<double>(work.tokensOnce);
  storeBytes = tokensOnce * tokenBytes;
  const double once =
      work.tiles > 0 ? tokensOnce / (static_cast<double>(work.tiles) * kernel.keys) : 1; // of a tile's bytes
  const double aloneSeconds =
      kernel.sharedBytes > 0 ? tileBytes * latencySeconds / static_cast<double>(kernel.sharedBytes) : 0;
  const double l2Seconds = l2BytesPerSecond > 0 ? blocks * tileBytes / l2BytesPerSecond : 0;
  const double byteSeconds = std::max({blocks * once * tileBytes / bytesPerSecond, l2Seconds, aloneSeconds});

  const KernelRates rates = ratesOf(kernel, gpu);
  const int places = std::max(blocks, gpu.multiprocessors * kernel.blocksPerSM);
  const double computeSeconds =
      places * std::max(tileFlops / rates.flopsPerSecond, scores / rates.exponentialsPerSecond);

  if (gpu.l2Bytes > 0 && computeSeconds > byteSeconds && storeBytes > static_cast<double>(gpu.l2Bytes))
    cutSeconds = static_cast<double>(work.tiles) * tileBytes / bytesPerSecond;
  tileSeconds = computeSeconds;
  waveRows = mergeWaveRows(m, gpu);
  secondsPerCost = std::max(byteSeconds, computeSeconds) / tileCost;
  leastSecondsPerCost = std::max(aloneSeconds, computeSeconds) / tileCost;
  aloneSecondsPerCost = std::max(aloneSeconds * drawingSeconds / latencySeconds, computeSeconds) / tileCost;
  const bool waits = kernel.rows <= stepRows && byteSeconds > computeSeconds;
  if (waits && aloneSeconds > 0 && readsAsStored(work, kernel.rows, blocks, elementBytes))
    drawnSecondsPerCost = byteSeconds / blocks / tileCost;
  const double startingSeconds = waits ? taskSecondsOfBusyMemory : taskSeconds;
  fixed = std::clamp<int64_t>(std::llround(startingSeconds / secondsPerCost), 1, 8 * tileCost);
  // A part's rows are written once and read once.
  const double rowSeconds = 2.0 * (m.valueDim + 1) * 4 / bytesPerSecond;
  secondsPerPart = work.largestWorkTile * rowSeconds;
  costPerRow = rowSeconds * blocks / secondsPerCost;
  partial = partialOf(work.largestWorkTile);
  const double rereadBytes =
      work.largestWorkTile * m.keyDim * elementBytes + sizeof(PlanTask) + sizeof(PlanSegment);
  shareTiles = ceilDiv(shareTokens, kernel.keys);
  if (!work.shared && !store.isLatent())
    shareTiles =
        std::max(shareTiles, static_cast<int64_t>(std::ceil(rereadBytes / (rereadLimit * tileBytes))));
}

// Blocks that read at once wait for the memory and for latency. Neither alone is the limit where both are
// near: the third root of the sum of cubes is within 11 % of what four steps of decoding took, a tile of 32
// KiB in ns (drawingSeconds alone is 496; 2026-11-25 and 2026-11-29):
//
//                         memory   here   measured
//     H100, 32 blocks        346    547        496
//     H100, 64               692    768        780
//     H200, 64               488    620        649
//     H200, 128              975   1016        960
double CostModel::secondsPerCostOf(double running, double blocks) const {
  if (drawnSecondsPerCost <= 0)
    return secondsPerCost;
  const double drawn = running * drawnSecondsPerCost, alone = aloneSecondsPerCost / blocks;
  return std::cbrt(drawn * drawn * drawn + alone * alone * alone);
}

/// The time until all loads end, of so many blocks each. When some have ended, the others get more bandwidth.
double CostModel::runOut(std::vector<int64_t> &loads, double blocks) const {
  std::sort(loads.begin(), loads.end());
  double seconds = 0;
  int64_t done = 0;
  auto running = static_cast<double>(loads.size());
  for (int64_t load : loads) {
    if (load > done)
      seconds += static_cast<double>(load - done) * secondsPerCostOf(running, blocks);
    done = load;
    running -= 1;
  }
  return seconds;
}

// Blocks of one multiprocessor count as one. This overestimates the few that get a second task: 160 tasks of
// 4,096 tokens on 132 multiprocessors took an H100 122 us, where the model says 128; 116 would suffice if
// each task had the same bandwidth. For 192 tasks and more, and for 136, it is right within 3 % (2026-11-25).
double CostModel::dealtSeconds(std::span<const int64_t> loads, std::vector<int64_t> &places) const {
  if (drawnSecondsPerCost <= 0)
    return static_cast<double>(*std::max_element(loads.begin(), loads.end())) * secondsPerCost;
  const auto count = std::min(loads.size(), static_cast<size_t>(multiprocessors));
  places.assign(count, 0);
  for (size_t block = 0; block < loads.size(); ++block)
    places[block % count] += loads[block];
  const auto used = std::count_if(loads.begin(), loads.end(), [](int64_t load) { return load > 0; });
  return runOut(places, std::max(1.0, static_cast<double>(used) / static_cast<double>(count)));
}

double CostModel::leastDealtSeconds(int64_t total, int64_t largest, int blocks) const {
  if (drawnSecondsPerCost <= 0)
    return static_cast<double>(std::max(largest, equalShare(total, blocks))) * secondsPerCost;
  return std::max(static_cast<double>(total) * drawnSecondsPerCost,
                  static_cast<double>(largest) * aloneSecondsPerCost);
}

double CostModel::planSeconds(const PlanStats &stats, int64_t mergeRows) const {
  const double bytes = storeBytes + static_cast<double>(stats.qBytes + stats.metadataBytes +
                                                        stats.outputBytes + stats.partialBytes);
  const double walk = stats.maxCost * leastSecondsPerCost;
  const double again = l2BytesPerSecond > 0 ? static_cast<double>(stats.kvBytes) / l2BytesPerSecond : 0;
  const double memory = std::max(bytes / bytesPerSecond, again);
  // Bytes arrive tile by tile: the first tile before anything is computed, the last one before it is
  // computed.
  const double firstTile =
      memory / std::max(static_cast<double>(stats.tiles) / std::max(stats.usedBlocks, 1), 1.0);
  const double waves = waveRows > 0 ? static_cast<double>(mergeRows) / waveRows : 0;
  const double merge = mergeRows > 0 ? mergeSeconds + mergeWaveSeconds * std::max(waves - 1, 0.0) : 0;
  return launchSeconds + startSeconds + std::max(memory + tileSeconds, walk + firstTile) + merge;
}

} // namespace attn::rt
