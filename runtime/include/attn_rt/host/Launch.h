//===- Launch.h - Running a kernel on the host device -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   MemoryMap memory;
//   float *x = (float *)*memory.alloc(4 * n, "x");
//   ... fill, memory.markWritten(x, 4 * n) ...
//   void *args[] = {&x, &n};
//   Report report = launch(kernel, {blocks}, {128}, sharedBytes, args, memory, options);
//   if (!report.clean()) fputs(report.describe().c_str(), stderr);
//
// runtime/src/host/machine/Machine.h explains how it works.
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
  /// Polled a few times a second by the thread that launches, on its own stack; true ends the launch early,
  /// without results. Null: not polled.
  bool (*interrupted)() = nullptr;
};

enum class FindingKind { Race, Uninitialized, OutOfBounds, Misaligned, Sync, Deadlock };
const char *toString(FindingKind kind);

/// A fault of the kernel: the first instance, and how often its operation repeated it.
struct Finding {
  FindingKind kind;
  std::string kernel;
  std::string op;       ///< text of the static operation
  std::string location; ///< of that operation, file:line:col
  std::array<uint32_t, 3> block{}, thread{};
  std::string address; ///< "k_pages + 1048576 (16 bytes, 0 past its end)", "shared + 64"
  std::string message; ///< the fault, and the other access that it involves
  uint64_t count = 1;
};

/// Traffic and work, exact and independent of scheduling.
struct Counters {
  uint64_t bytesRead = 0, bytesWritten = 0; ///< global; each request counts each distinct byte once
  uint64_t bytesPartials = 0;               ///< the part of both on allocations tagged as partials
  uint64_t bytesAtomic = 0;                 ///< global atomics, apart from the above
  uint64_t sectorBytesUsed = 0, sectorBytesSpanned = 0;
  uint64_t wavefronts = 0, wavefrontsNeeded = 0; ///< shared memory
  /// Operands of wgmma, counted by the rule of ldmatrix. How the hardware reads them is not documented, so
  /// they are kept out of the figure above; a swizzle without effect shows here all the same.
  uint64_t operandWavefronts = 0, operandWavefrontsNeeded = 0;
  uint64_t flops = 0;
  uint64_t requests = 0; ///< global memory requests of warps

  /// Bytes used over bytes of the sectors that requests touched; 1 without requests.
  double sectorEfficiency() const {
    return sectorBytesSpanned ? double(sectorBytesUsed) / sectorBytesSpanned : 1;
  }
  /// Extra wavefronts of shared memory per needed wavefront; 0: no bank conflicts.
  double bankConflicts() const {
    return wavefrontsNeeded ? double(wavefronts - wavefrontsNeeded) / wavefrontsNeeded : 0;
  }
  Counters &operator+=(const Counters &o);
  bool operator==(const Counters &) const = default;
};

struct Report {
  std::vector<Finding> findings;
  /// The numbers of all instances, indexed by FindingKind.
  std::array<uint64_t, 6> totals{};
  Counters counters;
  double seconds = 0;
  std::string error;        ///< the launch was impossible, or ended early: no results
  bool outOfMemory = false; ///< whether the error is a lack of memory

  uint64_t total(FindingKind k) const { return totals[size_t(k)]; }
  /// Whether there is neither a finding nor an error.
  bool clean() const;
  /// The error, or all findings, as text.
  std::string describe() const;
  /// Adds the findings, counters and seconds of another report; keeps the first error.
  void merge(const Report &other, unsigned maxFindings = 32);
};

/// Global memory written by launches that may still run when the next launch begins (programmatic dependent
/// launch). Launches do follow one another here; the detectors check whether the next launch would have had
/// to wait.
class InFlight {
public:
  /// Forgets all memory: the launches that wrote it have ended.
  void settle() { ranges.clear(); }
  bool empty() const { return ranges.empty(); }
  bool overlaps(uint64_t start, uint64_t end) const;
  /// Ranges as pairs of first byte and end, in any order.
  void add(std::vector<std::pair<uint64_t, uint64_t>> written);

private:
  std::vector<std::pair<uint64_t, uint64_t>> ranges; ///< sorted and disjoint
};

/// Runs the grid to its end, or to the end of the process: native code is not confined, and an access outside
/// its memory may end in a signal (runtime/src/host/execute/Signals.h). `args` holds a pointer to each
/// parameter's value. A failure of the runtime is the report's error; std::bad_alloc is thrown only if there
/// is no memory to report it. Memory in `inFlight` may be accessed only after griddepcontrol.wait; on return,
/// `inFlight` holds the memory that the next launch must wait for. Without checks it is left empty.
Report launch(const HostKernel &kernel, Dim3 grid, Dim3 block, uint32_t sharedBytes, void **args,
              MemoryMap &memory, const LaunchOptions &options = {}, InFlight *inFlight = nullptr);

} // namespace attn::rt::host

#endif
