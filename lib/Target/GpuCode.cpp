//===- GpuCode.cpp - Code of kernels for a GPU ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An attention has three kernels that share nothing but the name of their shared memory. The kernel for many
// rows takes more time than all others: in LLVM, and four times as long again in ptxas. So every kernel is a
// module of its own, longest first, and a free thread takes the next one:
//
//   caller    translate A  translate B  translate C  LLVM B  ptxas B  ptxas C
//   helper                 LLVM A ........  LLVM C  ptxas A ................
//
// Translation reads MLIR, whose context belongs to the caller; after it a kernel has an LLVMContext of its
// own. There are as many threads as cores and no more: a third thread on two cores would take its share from
// the kernel that all wait for.
//
//===----------------------------------------------------------------------===//
#include "attn/Target/GpuCode.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Target/PTX.h"
#include "attn_rt/support/Threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

namespace {

/// The state of one kernel.
struct Job {
  LLVM::LLVMFuncOp kernel;
  size_t operations = 0;
  size_t rank = 0; ///< rank among the jobs, 0 for the longest
  KernelIR ir;
  GpuCode::Kernel code;
  std::string fault, refusal; ///< of LLVM, of ptxas
  std::chrono::steady_clock::time_point printed;

  explicit Job(LLVM::LLVMFuncOp kernel) : kernel(kernel) {
    code.name = kernel.getName().str();
    kernel.walk([&](Operation *) { ++operations; });
  }
  void print(const Chip &chip);
  /// Runs ptxas. `tooLate`: whether ptxas timed out with any kernel; then no other kernel waits for it.
  void assemble(const Chip &chip, std::atomic<bool> &tooLate);
};

} // namespace

void Job::print(const Chip &chip) {
  llvm::Expected<std::string> ptx = printPTX(std::move(ir), chip);
  printed = std::chrono::steady_clock::now();
  if (ptx)
    code.ptx = std::move(*ptx);
  else
    fault = llvm::toString(ptx.takeError());
}

void Job::assemble(const Chip &chip, std::atomic<bool> &tooLate) {
  if (!fault.empty() || tooLate)
    return;
  if (llvm::Expected<Cubin> cubin = mlir::attn::assemble(code.ptx, chip)) {
    code.cubin = std::move(*cubin);
  } else {
    llvm::Error error = cubin.takeError();
    if (error.isA<PtxasTooLate>())
      tooLate = true;
    refusal = llvm::toString(std::move(error));
  }
}

namespace {
/// Gives jobs to threads, the longest available job first. Nothing throws while it holds the lock.
class Queue {
public:
  explicit Queue(size_t most) { jobs.reserve(most); }
  void add(Job *job) {
    std::lock_guard lock(mutex);
    jobs.insert(llvm::upper_bound(jobs, job, [](Job *a, Job *b) { return b->rank < a->rank; }), job);
    changed.notify_one();
  }
  /// Ends the waits of all threads for further jobs.
  void close() {
    std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  }
  /// Returns the next job, or null if there is none and the queue is closed.
  Job *take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !jobs.empty() || closed; });
    return jobs.empty() ? nullptr : jobs.pop_back_val();
  }

private:
  std::mutex mutex;
  std::condition_variable changed;
  SmallVector<Job *> jobs; ///< the longest last
  bool closed = false;
};
} // namespace

std::string GpuCode::ptx() const {
  SmallVector<StringRef> modules;
  for (const Kernel &kernel : kernels)
    modules.push_back(kernel.ptx);
  return joinPTX(modules);
}

std::string GpuCode::log() const {
  std::string all;
  for (const Kernel &kernel : kernels)
    all += kernel.cubin.log;
  return all;
}

/// Returns the chip with the PTX version that the module needs, common to all its kernels.
static Chip chipFor(gpu::GPUModuleOp module, Chip chip) {
  constexpr unsigned withMovmatrix = 78;
  WalkResult found = module.walk([](tile::MoveMatrixOp) { return WalkResult::interrupt(); });
  if (found.wasInterrupted())
    chip.ptxVersion = std::max(chip.ptxVersion, withMovmatrix);
  return chip;
}

FailureOr<GpuCode> mlir::attn::emitGpuCode(gpu::GPUModuleOp module, const Chip &target, bool assembles) {
  const auto start = std::chrono::steady_clock::now();
  const Chip chip = chipFor(module, target);
  std::vector<Job> jobs;
  for (auto kernel : module.getOps<LLVM::LLVMFuncOp>())
    jobs.emplace_back(kernel);
  SmallVector<Job *> order;
  for (Job &job : jobs)
    order.push_back(&job);
  llvm::sort(order, [](Job *a, Job *b) { return std::pair(b->operations, a) < std::pair(a->operations, b); });
  for (size_t rank = 0; rank < order.size(); ++rank)
    order[rank]->rank = rank;

  const size_t helpers =
      std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), order.size()) - 1;
  Queue translated(order.size()), printed(order.size());
  printed.close(); // a thread that still prints assembles that kernel itself
  std::atomic<bool> tooLate = false;
  auto work = [&] {
    while (Job *job = translated.take()) {
      job->print(chip);
      if (assembles)
        printed.add(job);
    }
    while (Job *job = printed.take())
      job->assemble(chip, tooLate);
  };
  rt::Threads threads;
  size_t started = 0;
  bool isTranslated = true;
  // An exception here (memory may run out) waits until no thread reads the jobs any more.
  threads.here([&] {
    for (Job *job : order) {
      FailureOr<KernelIR> ir = translateKernel(job->kernel, chip);
      if (isTranslated = succeeded(ir); !isTranslated)
        return;
      job->ir = std::move(*ir);
      translated.add(job);
      if (started < helpers && threads.start(work))
        ++started;
    }
  });
  translated.close();
  threads.here(work);
  threads.wait();
  if (!isTranslated)
    return failure();

  GpuCode code;
  for (Job &job : jobs) {
    if (!job.fault.empty())
      return job.kernel.emitError(job.fault);
    if (!StringRef(code.refusal).contains(job.refusal)) // without ptxas, all refusals are equal
      code.refusal += (code.refusal.empty() ? "" : "\n") + job.refusal;
    code.ptxSeconds = std::max(code.ptxSeconds, std::chrono::duration<double>(job.printed - start).count());
    code.kernels.push_back(std::move(job.code));
  }
  return code;
}
