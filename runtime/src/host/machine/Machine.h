//===- Machine.h - Blocks, warps and lanes as fibers ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A GPU in one process, to see what a GPU hides
// =============================================
// The kernel that PTX is emitted from is also compiled for this CPU, with a call
// for every operation of more than one thread (Entry.h). Each CUDA thread is a fiber;
// each block runs on one core, with a shared-memory window of its own; blocks run
// on all cores. The results (bits, findings, counters) do not depend on the number
// of cores nor on the order of execution, unless the kernel itself depends on it,
// and then that is the finding.
//
// *Running.* Fibers are cooperative. A fiber runs until an operation needs others: then
// it waits in its warp's table of groups, and the last lane to arrive runs the operation
// for all and makes them ready (Rendezvous.cpp). Nothing polls; if no lane is ready and
// some are alive, the block is deadlocked, and the report says who waits for whom.
// Operands travel through the warp's exchange buffer, one vector over the lanes per
// operand, so an mma is vector code over all lanes. The compiler half joins mma and
// ldmatrix that only feed each other into programs (lib/Host/Batch.cpp), so that a lane
// waits once for a whole tile product.
//
// *Time that a GPU is free to choose.* A wrong kernel often works on the schedule
// at hand. So the free choices are drawn from a seed: which lane, warp and block runs
// next (`shuffle`), which lanes reach an mbarrier long after their warp, and when between
// its issue and the wait that covers it an asynchronous copy moves its bytes
// (AsyncCopy.cpp). A correct kernel gives the same bits under every choice.
//
// *Order.* A race is found whether or not the schedule made it matter, because the
// detectors do not track time but the right to rely on an access (Clocks.h): lanes
// synchronize by bar.warp.sync, warps by block barriers, blocks not at all; shuffles,
// votes and mma exchange registers and order no memory. Every shared access checks
// whether it may rely on the cell's last write, every write also on its last reads
// (SharedShadow.h). A copy's cells are pending from its issue until a wait *of the
// thread that issued it*. Then they are that thread's write, which others may rely on
// only after a barrier. So these faults are all the same finding: no wait, a wait for
// too few groups, a wait in another thread, a wait without a barrier, and a stage that
// is produced again too early. Global memory is checked within a block (GlobalShadow.h)
// and, at the end of the grid, between blocks (GridRaces.h).
//
// *Unwritten bytes.* Shared memory is new for each block, global memory at its
// allocation; both hold poison (all ones: NaN in every float format) and a map of
// the bytes that were written. A copy moves unwritten bytes without a finding; a
// load or ldmatrix of them is a finding. Bounds are exact; an access that would fault
// is reported and diverted, so that the launch continues. Dynamic shared memory starts
// at exactly its declared alignment.
//
// *Cost.* Accesses are counted as a warp's requests (Requests.h): each distinct
// byte once, sectors of 32 bytes, wavefronts over 32 banks.
//
// *Hopper.* mbarriers (Mbarrier.cpp) complete their phases by arrivals of lanes and
// of landed copies. The seed decides when copies arrive, at the latest when no lane can
// continue without them. The tensor cores of a warpgroup (Wgmma.cpp) work through a queue
// of issues: operands in registers are read at the issue, shared memory is read between
// the issue and the wait that retires its group, and until that wait the accumulators
// hold no value but a token that names their issue. Both are agents with clock entries of
// their own. setmaxnreg moves registers between warpgroups, and an increase waits until
// enough are free (Registers.cpp). A bulk copy to shared memory (BulkCopy.cpp) writes in
// the name of its mbarrier's phase: only threads that waited for that phase may access the
// bytes. In the other direction (BulkStore.cpp) it reads in the name of its lane, whose
// waits say when the memory is free, and when the result may be read. A launch may begin
// before the launch in front has ended (Overlap.cpp): until griddepcontrol.wait it may not
// access what the launch in front writes.
//
// *No protection.* Native code runs in this process. Checked code has accesses diverted
// that would fault, but nothing else: a kernel that was compiled wrong may end the process
// with a signal or never return. Run a doubtful kernel in a process of its own.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_MACHINE_MACHINE_H
#define ATTN_RT_SRC_HOST_MACHINE_MACHINE_H

#include "BulkBox.h"
#include "Warp.h"
#include "attn_rt/host/Launch.h"
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <thread>

namespace attn::rt::host {

struct Barrier {
  uint32_t expected = 0;            ///< threads; 0: every live thread of the block
  uint32_t arrived = 0;             ///< threads, by whole warps
  uint32_t warps = 0;               ///< mask of the warps that arrived
  uint32_t waiting[kMaxWarps] = {}; ///< lanes to wake
  uint32_t op = 0;
};

struct Mbarrier;
struct Tensor; ///< Wgmma.h: the tensor cores of a warpgroup

/// The registers of a warp, per thread, and the number that it waits for.
struct RegisterShare {
  uint32_t current = 0, wanted = 0, op = 0, changes = 0;
  uint32_t waiting = 0; ///< lanes
};

inline constexpr unsigned kSwitchesPerPoll = 1 << 14; ///< between polls

/// Thrown when a launch is ended early (LaunchOptions::interrupted).
struct Interrupted : std::exception {
  const char *what() const noexcept override { return "interrupted: it has no results"; }
};

/// Ends a launch early. The launching thread polls the caller, and all threads see the answer.
class Interrupt {
public:
  explicit Interrupt(bool (*ask)()) : ask(ask) {}
  /// Throws Interrupted once the answer is yes. Never called on the small stack of a lane: the caller's
  /// function may run any code.
  void poll();

private:
  using Clock = std::chrono::steady_clock;
  bool (*ask)();
  const std::thread::id launcher = std::this_thread::get_id();
  Clock::time_point asked = Clock::now(); ///< by the launcher
  std::atomic<bool> isRaised = false;
};

/// The state of a launch that its blocks share.
struct Grid {
  const HostKernel &kernel;
  Dim3 grid, block;
  uint32_t sharedBytes;
  void **args;
  MemoryMap &memory;
  const LaunchOptions &options;
  const InFlight *inFlight = nullptr;         ///< memory that launches in front may still write; null: none
  Interrupt *interrupt = nullptr;             ///< null: nothing ends the launch early
  mutable std::atomic<bool> isFailed = false; ///< a block threw: blocks that wait for it end, too
};

/// A deferred global reduction: float additions are applied in block order, so that bits do not depend on the
/// speed of cores. Those of kernels whose blocks wait for each other are not deferred.
struct DeferredAdd {
  float *address;
  float value;
};

/// Thrown when address space is exhausted, with its purpose.
struct NoRoom : std::bad_alloc {
  NoRoom(size_t bytes, const char *purpose) : bytes(bytes), purpose(purpose) {}
  const char *what() const noexcept override { return "no address space"; }
  size_t bytes;
  const char *purpose;
};

struct Block {
  const Grid *grid = nullptr;
  uint64_t linear = 0; ///< index of the block in the grid
  uint32_t ctaid[3] = {};
  unsigned warpCount = 0;
  uint32_t readyWarps = 0, throttledWarps = 0, lateWarps = 0;
  unsigned currentWarp = 0;
  unsigned switchesToPoll = kSwitchesPerPoll; ///< until run() polls for an early end
  Lane *chosen = nullptr;                     ///< the lane that continues after that
  uint32_t aliveLanes = 0;
  bool shuffle = false;
  Random schedule, effects;
  uint32_t lateness = 0; ///< one of (lateness + 1) waits for an mbarrier is late
  Barrier barriers[kBarriers];
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<DeferredAdd> adds;
  std::vector<std::unique_ptr<Mbarrier>> mbarriers; ///< live ones
  std::deque<Lane *> events;                        ///< arrivals of copies that may happen at any time
  std::vector<BulkCopy> bulkCopies;                 ///< not landed, or not seen by a wait
  std::vector<BulkStore> bulkStores;                ///< not written, or not waited for
  std::vector<std::unique_ptr<Tensor>> tensors;     ///< per warpgroup
  RegisterShare registers[kMaxWarps];
  uint32_t registersAllocated = 0, elections = 0;
  uint64_t flops = 0;
  uint8_t *shared = nullptr;
  uint8_t *stacks = nullptr;
  size_t stackCount = 0;
  Fiber mainFiber;            ///< of the thread in run()
  Checker *checker = nullptr; ///< null in fast mode
  std::vector<LocalFinding> findings;
  std::exception_ptr failure; ///< exception of a lane's call: run() throws it, and the block is not reused
  const std::unique_ptr<uint8_t[]> signalStack; ///< of the thread that runs this block (Signals.h)

  Block();
  ~Block();
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  /// Runs one block to its end (or to a deadlock, which is reported).
  void run(const Grid &g, uint64_t index);

  /// Leaves a lane for good, with everything on its stack, and continues run().
  [[noreturn]] void abandon(Lane &from);
  /// Yields the core to a ready lane; returns when this lane is ready and chosen again.
  void switchAway(Lane &from);
  void wake(Warp &warp, uint32_t lanes) {
    warp.ready |= lanes;
    if (lanes)
      readyWarps |= 1u << warp.index;
  }
  Lane *pick();
  /// Makes asynchronous arrivals happen until some lane can continue.
  bool fireEvents();
  /// Ends wgmma waits that were delayed as long as possible.
  bool finishDelayedWaits();
  /// Continues lanes of a warp that were held back in front of an mbarrier; false if there are none.
  bool releaseLate();
  /// Continues lanes that ran ahead of their warp; false if there are none.
  bool releaseThrottled();
  /// Records a finding, or counts it if its operation had the same finding before. Only a new finding needs a
  /// message, so pass a function that makes it.
  template <class Make>
  void reportWith(FindingKind kind, uint32_t op, uint32_t thread, uint32_t detail, Make make) {
    reportTo(findings, kind, op, thread, detail, make);
  }
  void report(FindingKind kind, uint32_t op, const Lane &lane, std::string message);
  void laneExit(Lane &lane);
  void completeBarriersAfterExit();
  void reportDeadlock();
  void beginAsync();
  /// Checks that nothing is left over when a block ends.
  void endAsync();
  void reportAsyncDeadlock();
};

/// Joins the other lanes of `mask` at an operation. The last one to arrive runs it and wakes the rest. `key`
/// identifies the operation.
void rendezvous(Lane &lane, Group::Run run, uint32_t key, uint32_t mask, uint32_t op, uint32_t a = 0,
                uint32_t b = 0);

/// Rendezvous keys: operations of different kinds never join.
enum class Meet : uint32_t {
  Barrier = 1,
  Arrive,
  WarpSync,
  Shuffle,
  Vote,
  Matrix,
  Program,
  Wgmma,
  WgmmaWait,
  Elect,
  Registers
};
inline uint32_t meetKey(Meet kind, uint32_t detail) { return static_cast<uint32_t>(kind) << 28 | detail; }

/// Enters a barrier for a whole warp; true if the barrier completed.
bool barrierArrive(Warp &warp, const Group &group, uint32_t id, uint32_t threads, bool waits);

} // namespace attn::rt::host

#endif
