//===- Launch.h - Running a kernel on the host device -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   MemoryMap memory;
//   float *x = (float *)*memory.alloc(4 * n, "x");
//   ... fill, memory.markWritten(x, 4 * n) ...
//   void *args[] = {&x, &n};
//   Report report = launch(kernel, {blocks}, {128}, sharedBytes, args, memory, options);
//   if (!report.clean()) fputs(report.describe().c_str(), stderr);
//
// How it works is told in runtime/src/host/machine/Machine.h.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_HOST_LAUNCH_H
#define ATTN_RT_HOST_LAUNCH_H

#include "attn_rt/host/Kernel.h"
#include "attn_rt/host/Memory.h"
#include <array>

namespace attn::rt::host {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t(x) * y * z; }
};

/// When an asynchronous copy takes effect.
enum class AsyncEffects {
  Eager,   ///< at issue
  Delayed, ///< at the latest moment that the waits allow
  Random   ///< anywhere between, drawn from the seed for each copy
};

struct LaunchOptions {
  unsigned threads = 0; ///< worker threads; 0: one per core. Never changes a result
  uint64_t seed = 0;    ///< of scheduling order and asynchronous effects
  bool shuffle = false; ///< run lanes, warps and blocks in random order
  AsyncEffects asyncEffects = AsyncEffects::Random;
  bool nameSignals =
      true;          ///< say on standard error in which kernel a SIGSEGV or the like arose, and hand it on
  bool check = true; ///< detectors and counters; needs a kernel compiled with checks
  unsigned maxFindings = 32; ///< distinct findings kept; all are counted
  /// Asked a few times a second by the thread that launches, on its own stack; true: the launch ends early,
  /// and its results are not there. Null: nobody is asked.
  bool (*interrupted)() = nullptr;
};

enum class FindingKind { Race, Uninitialized, OutOfBounds, Misaligned, Sync, Deadlock };
const char *toString(FindingKind kind);

/// One fault of the kernel: the first instance, and how often its operation did it.
struct Finding {
  FindingKind kind;
  std::string kernel;
  std::string op;       ///< text of the static operation
  std::string location; ///< of that operation, file:line:col
  std::array<uint32_t, 3> block{}, thread{};
  std::string address; ///< "k_pages + 1048576 (16 bytes, 0 past its end)", "shared + 64"
  std::string message; ///< what is wrong, and with whom
  uint64_t count = 1;
};

/// Traffic and work, exact and independent of scheduling.
struct Counters {
  uint64_t bytesRead = 0, bytesWritten = 0; ///< global; each request counts each distinct byte once
  uint64_t bytesPartials = 0;               ///< the part of both on allocations tagged as partials
  uint64_t bytesAtomic = 0;                 ///< global atomics, apart from the above
  uint64_t sectorBytesUsed = 0, sectorBytesSpanned = 0;
  uint64_t wavefronts = 0, wavefrontsNeeded = 0; ///< shared memory
  /// Operands of wgmma by the rule of ldmatrix. How the hardware fetches them is not documented, so
  /// they are kept out of the figure above; a swizzle that does nothing shows here all the same.
  uint64_t operandWavefronts = 0, operandWavefrontsNeeded = 0;
  uint64_t flops = 0;
  uint64_t requests = 0; ///< global memory requests of warps

  double sectorEfficiency() const {
    return sectorBytesSpanned ? double(sectorBytesUsed) / sectorBytesSpanned : 1;
  }
  double bankConflicts() const {
    return wavefrontsNeeded ? double(wavefronts - wavefrontsNeeded) / wavefrontsNeeded : 0;
  }
  Counters &operator+=(const Counters &o);
  bool operator==(const Counters &) const = default;
};

struct Report {
  std::vector<Finding> findings;
  /// All instances, indexed by FindingKind.
  std::array<uint64_t, 6> totals{};
  Counters counters;
  double seconds = 0;
  std::string error;        ///< the launch was impossible, or ended early: results are not there
  bool outOfMemory = false; ///< that is the error

  uint64_t total(FindingKind k) const { return totals[size_t(k)]; }
  bool clean() const;
  std::string describe() const;
  void merge(const Report &other, unsigned maxFindings = 32);
};

/// Global memory that launches wrote which may not have ended when the next one begins (programmatic
/// dependent launch). Launches do follow one another here; whether the next one would have had to wait is
/// what is checked.
class InFlight {
public:
  void settle() { ranges.clear(); }
  bool empty() const { return ranges.empty(); }
  bool overlaps(uint64_t start, uint64_t end) const;
  /// Ranges as pairs of first byte and end, in any order.
  void add(std::vector<std::pair<uint64_t, uint64_t>> written);

private:
  std::vector<std::pair<uint64_t, uint64_t>> ranges; ///< sorted, apart from each other
};

/// Runs the grid to its end, or to that of the process: native code is not confined, and what it does to
/// addresses that are not its own may end in a signal (runtime/src/host/execute/Signals.h). `args` holds a
/// pointer to each parameter's value. What goes wrong in the runtime is an error of the report;
/// std::bad_alloc leaves only where there is no memory to say so. What `inFlight` holds may be accessed after
/// griddepcontrol.wait only; it is left with what the next launch must wait for. Without checks it is left
/// empty.
Report launch(const HostKernel &kernel, Dim3 grid, Dim3 block, uint32_t sharedBytes, void **args,
              MemoryMap &memory, const LaunchOptions &options = {}, InFlight *inFlight = nullptr);

} // namespace attn::rt::host

#endif
