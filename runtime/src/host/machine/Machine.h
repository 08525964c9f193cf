//===- Machine.h - Blocks, warps and lanes as fibers ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A GPU in one process, to see what a GPU hides
// =============================================
// The kernel that PTX is emitted from is also compiled for this CPU, with a call
// for whatever needs more than one thread (Entry.h). Each CUDA thread is a fiber;
// each block runs on one core, with a shared-memory window of its own; blocks run
// on all cores. What comes out (bits, findings, counters) does not depend on how
// many cores there are nor on the order in which anything ran, unless the kernel
// itself depends on it, and then that is the finding.
//
// *Running.* Fibers are cooperative. One runs until an operation needs others:
// then it waits in its warp's table of groups, and the last lane to arrive runs
// the operation for all and makes them ready (Rendezvous.cpp). Nothing polls; if
// nobody is ready and somebody is alive, the block is deadlocked, and who waits
// for whom is the report. Operands travel through the warp's exchange buffer, one
// vector over the lanes per operand, so an mma is vector code over all lanes. The
// compiler half joins mma and ldmatrix that only feed each other into programs
// (lib/Host/Batch.cpp), so that a lane waits once for a whole tile product.
//
// *Time that a GPU is free to choose.* A wrong kernel often works on the schedule
// at hand. So the free choices are made from a seed: which lane, warp and block
// runs next (`shuffle`), which lanes come to an mbarrier long after their warp, and when between its issue
// and the wait that covers it an asynchronous copy moves its bytes (AsyncCopy.cpp). A right kernel gives the
// same bits under every choice.
//
// *Order.* A race is found whether or not the schedule made it bite, because what
// is tracked is not time but the right to rely on something (Clocks.h): lanes
// synchronise by bar.warp.sync, warps by block barriers, blocks by nothing;
// shuffles, votes and mma exchange registers and order no memory. Every shared
// access asks whether it may rely on the cell's last write, every write also on
// its last reads (SharedShadow.h). A copy's cells are pending from its issue until
// a wait *of the thread that issued it*, then they are that thread's write, which
// others may rely on only after a barrier: forgetting the wait, waiting for too
// few groups, waiting in another thread, waiting without a barrier and refilling a
// stage too early are all the same finding. Global memory is asked about within a
// block (GlobalShadow.h) and, at the end of the grid, between blocks (GridRaces.h).
//
// *Bytes nobody wrote.* Shared memory is new for each block, global memory at its
// allocation; both hold poison (all ones: NaN in every float format) and a map of
// the bytes that were written. A copy moves unwritten bytes without complaint, a
// load or ldmatrix of them is a finding. Bounds are exact; an access that would
// fault is reported and diverted, so that the launch goes on.
// Dynamic shared memory starts at exactly its declared alignment.
//
// *Cost.* Accesses are counted as a warp's requests (Requests.h): each distinct
// byte once, sectors of 32 bytes, wavefronts over 32 banks.
//
// *Hopper.* mbarriers (Mbarrier.cpp) complete their phases from arrivals of lanes and
// of landed copies; the latter come whenever the seed says, at the latest when nobody
// can go on without. The tensor cores of a warpgroup (Wgmma.cpp) work through a queue
// of issues: what was passed in registers is taken at the issue, shared memory is read
// between the issue and the wait that retires its group, and until that wait the
// accumulators have no value but a number that says whose they are. Both are agents
// with clock entries of their own. Registers move between warpgroups by setmaxnreg,
// and an increase waits until enough are free (Registers.cpp). A bulk copy (BulkCopy.cpp)
// writes in the name of the phase of its mbarrier: only who waited for that phase may
// touch what it wrote. The other way round (BulkStore.cpp) it reads in the name of its lane,
// whose wait says when the memory is free, and when the result may be read. A launch may
// begin before the one in front has ended (Overlap.cpp): until griddepcontrol.wait nothing
// may be touched that this one writes.
//
// *What is not protected.* Native code runs in this process. Checked code has its accesses
// diverted where they would fault, but nothing else: a kernel that was compiled wrong may end
// the process with a signal or never return. Run what is in doubt in a process of its own.
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
  uint32_t warps = 0;               ///< which warps arrived
  uint32_t waiting[kMaxWarps] = {}; ///< lanes to wake
  uint32_t op = 0;
};

struct Mbarrier;
struct Tensor; ///< Wgmma.h: the tensor cores of a warpgroup

/// The registers of a warp, per thread, and what it waits to have.
struct RegisterShare {
  uint32_t current = 0, wanted = 0, op = 0, changes = 0;
  uint32_t waiting = 0; ///< lanes
};

inline constexpr unsigned kSwitchesPerPoll = 1 << 14; ///< between lanes of a block: less than a millisecond

/// Somebody asked for the end of a launch (LaunchOptions::interrupted).
struct Interrupted : std::exception {
  const char *what() const noexcept override { return "interrupted: its results are not there"; }
};

/// Ends a launch early. The thread that launched asks whether to, and all threads see the answer.
class Interrupt {
public:
  explicit Interrupt(bool (*ask)()) : ask(ask) {}
  /// Throws Interrupted once the answer is yes. Never called on the small stack of a lane: whoever is asked
  /// may run anything.
  void poll();

private:
  using Clock = std::chrono::steady_clock;
  bool (*ask)();
  const std::thread::id launcher = std::this_thread::get_id();
  Clock::time_point asked = Clock::now(); ///< the launcher's
  std::atomic<bool> isRaised = false;
};

/// What a launch shares between its blocks.
struct Grid {
  const HostKernel &kernel;
  Dim3 grid, block;
  uint32_t sharedBytes;
  void **args;
  MemoryMap &memory;
  const LaunchOptions &options;
  const InFlight *inFlight = nullptr; ///< what launches in front may still write; null: nothing
  Interrupt *interrupt = nullptr;     ///< null: nothing ends the launch early
};

/// A deferred global reduction: float additions are applied in block order, so that
/// bits do not depend on which core was faster.
struct DeferredAdd {
  float *address;
  float value;
};

/// Address space that could not be had, and what for.
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
  unsigned switchesToPoll = kSwitchesPerPoll; ///< until run() looks whether the launch is to end early
  Lane *chosen = nullptr;                     ///< the lane that goes on after that
  uint32_t aliveLanes = 0;
  bool shuffle = false;
  Random schedule, effects;
  uint32_t lateness = 0; ///< one in so many waits for an mbarrier is late, less one
  Barrier barriers[kBarriers];
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<DeferredAdd> adds;
  std::vector<std::unique_ptr<Mbarrier>> mbarriers; ///< live ones
  std::deque<Lane *> events;                        ///< arrivals of copies that may happen any time
  std::vector<BulkCopy> bulkCopies;                 ///< on their way, or not seen by a wait
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
  std::exception_ptr failure; ///< of what a lane called: run() throws it, and the block is good for nothing
  const std::unique_ptr<uint8_t[]> signalStack; ///< of the thread that runs this (Signals.h)

  Block();
  ~Block();
  Block(const Block &) = delete;
  Block &operator=(const Block &) = delete;

  /// Runs one block to its end (or to a deadlock, which is reported).
  void run(const Grid &g, uint64_t index);

  /// Leaves a lane for good, with everything that is on its stack, for run().
  [[noreturn]] void abandon(Lane &from);
  /// Gives the core to a ready lane; returns when this one is ready and chosen again.
  void switchAway(Lane &from);
  void wake(Warp &warp, uint32_t lanes) {
    warp.ready |= lanes;
    if (lanes)
      readyWarps |= 1u << warp.index;
  }
  Lane *pick();
  /// Nobody can go on: lets asynchronous arrivals happen until somebody can.
  bool fireEvents();
  /// Lets wgmma waits end that were drawn out as long as possible.
  bool finishDelayedWaits();
  /// Lets lanes of a warp that were held back in front of an mbarrier go on; false if there are none.
  bool releaseLate();
  /// Lets lanes that ran ahead of their warp go on; false if there are none.
  bool releaseThrottled();
  /// Records a finding, or counts it if its operation did the same before. The message
  /// is made only for a new one, so pass what makes it.
  template <class Make>
  void reportWith(FindingKind kind, uint32_t op, uint32_t thread, uint32_t detail, Make make) {
    reportTo(findings, kind, op, thread, detail, make);
  }
  void report(FindingKind kind, uint32_t op, const Lane &lane, std::string message);
  void laneExit(Lane &lane);
  void completeBarriersAfterExit();
  void reportDeadlock();
  void beginAsync();
  /// What must not be left when a block ends.
  void endAsync();
  void reportAsyncDeadlock();
};

/// Joins the other lanes of `mask` at an operation. The last one to arrive runs it and
/// wakes the rest. `key` says what counts as the same operation.
void rendezvous(Lane &lane, Group::Run run, uint32_t key, uint32_t mask, uint32_t op, uint32_t a = 0,
                uint32_t b = 0);

/// Rendezvous keys: operations of different kinds never meet.
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

/// Enters a barrier for a whole warp; true when the barrier completed.
bool barrierArrive(Warp &warp, const Group &group, uint32_t id, uint32_t threads, bool waits);

} // namespace attn::rt::host

#endif
