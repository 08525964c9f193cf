//===- page_time.cpp - How long a CPU takes to manage pages -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   attn-page-time LISTS COLUMNS LEFT RIGHT PAGES THREADS [host]
//
// What attn.manage_pages does in a step, on a CPU, as `bench gpu pages` has it beside: the numbers of tokens
// of all lists, which the device knows, are copied out; threads share the lists, count what each gives back
// and lacks, add that up, put pages into the ring of free ones and take others from it; and the entries of
// the table that changed are copied in, with their places. A list gets a token at either end in each step,
// and goes round at 200 of them. Prints, as JSON, microseconds of a step with and without copies: medians.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/device/HostDevice.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

using namespace attn::rt;

/// Returns the error of a Status or a Result from the function.
#define TRY(call)                                                                                            \
  if (auto &&done = (call); !done)                                                                           \
  return done.error()

namespace {

constexpr int steps = 400, warmUp = 50, mostTokens = 200;

using Clock = std::chrono::steady_clock;
double microseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

/// An entry of the table that changed.
struct Change {
  int32_t place, page;
};

/// The books, and threads that share them. `step` returns when all have done theirs.
class Manager {
public:
  Manager(int lists, int columns, int left, int right, int pages, int threads)
      : lists(lists), columns(columns), ofPage{left, right}, pages(pages), tokens(ends(lists)),
        counts(ends(lists)), table(static_cast<size_t>(lists) * static_cast<size_t>(columns), -1),
        ring(static_cast<size_t>(pages)), available(pages), shares(static_cast<size_t>(threads)),
        together(threads + 1) {
    for (int page = 0; page < pages; ++page)
      ring[static_cast<size_t>(page)] = page;
    for (int number = 0; number < threads; ++number)
      workers.emplace_back([this, number] { work(number); });
  }
  ~Manager() {
    ends_ = true;
    together.arrive_and_wait();
    for (std::thread &worker : workers)
      worker.join();
  }

  std::vector<int32_t> &tokensOfLists() { return tokens; }
  /// Returns whether there were enough pages. `changesOf` each thread has the changes.
  bool step() {
    together.arrive_and_wait(); // they begin,
    together.arrive_and_wait(); // have counted,
    together.arrive_and_wait(); // given back
    together.arrive_and_wait(); // and taken
    if (isDone)
      free_ = first(free_ + taken_), available += released_ - taken_;
    return isDone;
  }
  std::vector<Change> &changes() {
    all.clear();
    for (const Share &share : shares)
      all.insert(all.end(), share.changes.begin(), share.changes.end());
    return all;
  }
  /// Every page is free, or in one place of the table.
  bool isWhole() const {
    std::vector<int> seen(static_cast<size_t>(pages));
    for (int i = 0; i < available; ++i)
      ++seen[static_cast<size_t>(ring[first(free_ + i)])];
    for (int32_t page : table)
      if (page >= 0)
        ++seen[static_cast<size_t>(page)];
    return std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; });
  }

private:
  struct alignas(64) Share {
    int64_t released = 0, taken = 0; ///< by this thread; then by those before it
    std::vector<Change> changes;
  };
  static size_t ends(int lists) { return 2 * static_cast<size_t>(lists); }
  size_t first(int64_t place) const { return static_cast<size_t>(place % pages); }

  void work(int number) {
    const auto threads = static_cast<int>(shares.size());
    const int begin = static_cast<int>(int64_t{lists} * number / threads);
    const int end = static_cast<int>(int64_t{lists} * (number + 1) / threads);
    Share &mine = shares[static_cast<size_t>(number)];
    for (;;) {
      together.arrive_and_wait();
      if (ends_)
        return;
      mine.released = mine.taken = 0;
      mine.changes.clear();
      for (size_t i = ends(begin); i < ends(end); ++i) {
        const int more = pagesOf(i) - counts[i];
        (more < 0 ? mine.released : mine.taken) += std::abs(more);
      }
      together.arrive_and_wait();
      int64_t released = 0, taken = 0, allReleased = 0, allTaken = 0;
      for (int other = 0; other < threads; ++other) {
        const Share &share = shares[static_cast<size_t>(other)];
        released += other < number ? share.released : 0, taken += other < number ? share.taken : 0;
        allReleased += share.released, allTaken += share.taken;
      }
      const bool enough = allTaken <= available + allReleased;
      if (enough)
        exchange(begin, end, -1, free_ + available + released, mine);
      together.arrive_and_wait();
      if (enough)
        exchange(begin, end, 1, free_ + taken, mine);
      if (number == 0)
        isDone = enough, released_ = allReleased, taken_ = allTaken;
      together.arrive_and_wait();
    }
  }

  int pagesOf(size_t i) const {
    const int page = ofPage[i % 2];
    return (tokens[i] + page - 1) / page;
  }

  /// Exchanges pages of lists that have too many (`sign` -1) or too few (`sign` 1).
  void exchange(int begin, int end, int sign, int64_t at, Share &mine) {
    for (size_t i = ends(begin); i < ends(end); ++i) {
      const int now = pagesOf(i), more = sign * (now - counts[i]);
      if (more <= 0)
        continue;
      for (int nth = 0; nth < more; ++nth) {
        const int of = std::min(counts[i], now) + nth, column = i % 2 ? columns - 1 - of : of;
        const auto place = static_cast<int32_t>(static_cast<int64_t>(i / 2) * columns + column);
        int32_t &entry = table[static_cast<size_t>(place)];
        int32_t &slot = ring[first(at++)];
        if (sign > 0)
          entry = slot;
        else
          slot = entry, entry = -1;
        mine.changes.push_back({place, entry});
      }
      counts[i] = now;
    }
  }

  const int lists, columns;
  const int ofPage[2];
  const int pages;
  std::vector<int32_t> tokens, counts, table, ring;
  int64_t free_ = 0, available, released_ = 0, taken_ = 0; ///< of the ring: where free pages begin
  bool isDone = true, ends_ = false;
  std::vector<Share> shares;
  std::vector<Change> all;
  std::barrier<> together;
  std::vector<std::thread> workers;
};

double median(std::vector<double> &numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

Status measure(Device &device, int lists, int columns, int left, int right, int pages, int threads) {
  Manager manager(lists, columns, left, right, pages, threads);
  std::vector<int32_t> &tokens = manager.tokensOfLists(), next(tokens.size());
  const size_t size = tokens.size() * sizeof(int32_t);
  auto onDevice = Buffer::create(device, size, "tokens");
  TRY(onDevice);
  auto changed = Buffer::create(device, tokens.size() * sizeof(Change) * 8, "changes");
  TRY(changed);
  for (size_t i = 0; i < next.size(); ++i)
    next[i] = static_cast<int32_t>(1 + (i * 2654435761U >> 7) % 128);
  std::vector<double> whole, alone;
  size_t bytes = 0;
  for (int step = 0; step < steps + warmUp; ++step) {
    for (int32_t &of : next)
      of = (of + 1) % mostTokens;
    TRY(device.copyIn(onDevice->address(), next.data(), size));
    TRY(device.synchronize());
    const auto begin = Clock::now();
    TRY(device.copyOut(tokens.data(), onDevice->address(), size));
    const auto read = Clock::now();
    if (!manager.step())
      return inputError("expected more pages than " + std::to_string(pages));
    const std::vector<Change> &changes = manager.changes();
    const auto done = Clock::now();
    bytes = std::min(changes.size() * sizeof(Change), changed->bytes());
    if (bytes)
      TRY(device.copyIn(changed->address(), changes.data(), bytes));
    TRY(device.synchronize());
    if (step >= warmUp)
      whole.push_back(microseconds(begin, Clock::now())), alone.push_back(microseconds(read, done));
  }
  if (!manager.isWhole())
    return inputError("expected every page to be in one place");
  std::printf("{\"step_us\": %.1f, \"books_us\": %.1f, \"bytes_out\": %zu, \"bytes_in\": %zu}\n",
              median(whole), median(alone), size, bytes);
  return {};
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: attn-page-time LISTS COLUMNS LEFT RIGHT PAGES THREADS [host]\n");
    return 2;
  }
  const bool onHost = !std::strcmp(argv[argc - 1], "host");
  auto device = onHost ? Result<std::unique_ptr<Device>>(makeHostDevice()) : openCudaDevice();
  int given[6];
  for (int i = 0; i < 6; ++i)
    given[i] = std::max(std::atoi(argv[i + 1]), 1);
  const Status status = device ? measure(**device, given[0], given[1], given[2], given[3], given[4], given[5])
                               : Status(device.error());
  if (!status)
    std::fprintf(stderr, "attn-page-time: error: %s\n", status.error().message.c_str());
  return status ? 0 : 2;
}
