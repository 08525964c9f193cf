//===- attn-mutants.cpp - Are wrong kernels found? -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   attn-mutants FILE [--target=T] [--schedule=S] [--every=N] [--op=NAME] [--only=KERNEL:POSITION]... RUN...
//
// Compiles a problem, of a forward or a backward pass. For each kernel that one of the runs launches, it
// makes every mutant of Mutations.h. Each mutant is run on the host device, checked and compared with the
// float64 reference, under a few seeds until a fault is found. --every=N takes every Nth of all mutants, or
// of those of operations named by --op. A RUN is the value of attn-run's --dim, --blocks, --strategy and
// --workload, in one argument: "batch=2 kv_len=100..300 blocks=4", "workload=F.json strategy=by-node".
//
// Nothing protects a process from wrong native code, so each mutant has a process of its own, and a time
// limit. Prints a line of JSON for each mutant as it ends.
//
//===----------------------------------------------------------------------===//
#include "Mutations.h"

#include "attn/Host/Host.h"
#include "attn/Pipelines/Compile.h"
#include "attn/Reference/Reference.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/session/Session.h"
#include "attn_rt/support/File.h"
#include "run/inputs/GradientInputs.h"
#include "run/inputs/Problem.h"
#include "run/report/Gradients.h"
#include "run/report/Report.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/SourceMgr.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace attn;
using namespace attn::test;
using mlir::LLVM::LLVMFuncOp;

namespace {

constexpr unsigned jobs = 2;
constexpr double secondsPerMutant = 60;

/// Modes of running. The first is that of attn-run without options.
struct Way {
  uint64_t seed;
  bool shuffle;
};
constexpr Way ways[] = {{0, false}, {1, true}, {2, true}, {3, true}};

[[noreturn]] void fail(const std::string &message) {
  std::fprintf(stderr, "attn-mutants: error: %s\n", message.c_str());
  exit(2);
}

template <typename T> T must(rt::Result<T> result) {
  if (!result)
    fail(result.error().message);
  return std::move(*result);
}
void must(const rt::Status &status) {
  if (!status)
    fail(status.error().message);
}

rt::Strategy strategyNamed(const std::string &name) {
  std::optional<rt::Strategy> strategy = rt::parseStrategy(name);
  if (!strategy)
    fail("there is no strategy '" + name + "'");
  return *strategy;
}

/// A problem with tensors, and the expected results.
struct Workload {
  std::string text;
  rt::TensorMap tensors;
  rt::PlanOptions options;
  mlir::attn::ReferenceResult reference;
  rt::TensorMap gradients; ///< instead of the reference's results, for a backward pass
};

/// Records which of a list of kernels were launched: each is entered through a function of its own.
constexpr size_t maxKernels = 8;
bool entered[maxKernels];
void (*entries[maxKernels])(rt::host::LaneAbi *, void **);
template <size_t i> void enter(rt::host::LaneAbi *lane, void **args) {
  entered[i] = true;
  entries[i](lane, args);
}
template <size_t... i>
void noteEntries(std::vector<rt::host::HostKernel> &kernels, std::index_sequence<i...>) {
  void (*const functions[])(rt::host::LaneAbi *, void **) = {enter<i>...};
  for (size_t k = 0; k < kernels.size(); ++k) {
    entries[k] = kernels[k].entry;
    kernels[k].entry = functions[k];
  }
}

class Program {
public:
  Program(const std::string &file, const std::string &target, const std::string &schedule);
  void addWorkload(const std::string &text);
  /// Returns the fault of these kernels; empty if there is none.
  std::string run(std::span<const rt::host::HostKernel> kernels);
  /// Returns the fault of a mutant.
  std::string run(LLVMFuncOp kernel, const Mutant &mutant);
  /// Returns the kernels that the workloads launch, after finding no fault in any.
  std::vector<LLVMFuncOp> launchedKernels();
  bool isBackward() const { return manifest.isBackward(); }

private:
  std::string runOnce(const Workload &workload, Way way, std::span<const rt::host::HostKernel> kernels);

  mlir::DialectRegistry registry;
  std::unique_ptr<mlir::MLIRContext> context;
  llvm::SourceMgr sources;
  mlir::attn::CompiledKernel compiled;
  rt::Manifest manifest;
  std::unique_ptr<rt::host::LoadedCode> code;
  std::vector<Workload> workloads;
};

Program::Program(const std::string &file, const std::string &target, const std::string &schedule) {
  mlir::attn::registerDialects(registry);
  context = std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::attn::parseProblemFile(file, sources, context.get());
  if (!module)
    exit(2);
  auto kernel = mlir::attn::compileProblem(*module, "", {target, schedule, /*ptx=*/false});
  if (mlir::failed(kernel))
    exit(2);
  compiled = std::move(*kernel);
  manifest = must(rt::parseManifest(compiled.manifest));
  auto loaded = attn::host::loadForHost(*compiled.machine->getOps<mlir::gpu::GPUModuleOp>().begin());
  if (!loaded)
    fail(llvm::toString(loaded.takeError()));
  code = std::move(*loaded);
}

void Program::addWorkload(const std::string &text) {
  Workload workload{text, {}, {}, {}, {}};
  run::Dims dims;
  std::string forest;
  llvm::SmallVector<llvm::StringRef> words;
  llvm::StringRef(text).split(words, ' ', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef word : words)
    if (word.consume_front("blocks="))
      workload.options.blocks = std::stoi(word.str());
    else if (word.consume_front("strategy="))
      workload.options.strategy = strategyNamed(word.str());
    else if (word.consume_front("workload="))
      forest = word.str();
    else
      must(dims.add(word.str()));
  auto problem = *compiled.problem->getOps<mlir::func::FuncOp>().begin();
  auto arguments = run::readArguments(problem);
  if (mlir::failed(arguments))
    exit(2);
  if (manifest.isBackward())
    run::addBackwardArguments(manifest, *arguments);
  if (forest.empty()) {
    workload.tensors = must(run::generateInputs(*arguments, dims, /*seed=*/0));
  } else {
    const rt::Workload tree = must(rt::readWorkload(must(rt::readFile(forest)), forest));
    workload.tensors = must(run::generateForest(*arguments, tree, forest, /*step=*/0, dims, /*seed=*/0));
  }
  if (manifest.isBackward())
    must(run::finishForward(problem, workload.tensors));
  must(rt::addDefaults(manifest, workload.tensors));
  workload.options.gpu = &rt::defaultGpu();
  if (manifest.isBackward())
    workload.gradients = must(mlir::attn::evaluateGradients(problem, workload.tensors));
  else
    workload.reference = must(mlir::attn::evaluateReference(problem, workload.tensors));
  workloads.push_back(std::move(workload));
}

std::string Program::runOnce(const Workload &workload, Way way,
                             std::span<const rt::host::HostKernel> kernels) {
  rt::host::LaunchOptions options;
  options.seed = way.seed;
  options.shuffle = way.shuffle;
  options.threads = 1;
  auto device = rt::makeHostDevice(options);
  rt::ModuleSource source;
  source.name = manifest.entry;
  source.hostKernels = kernels;
  rt::Batch batch = must(rt::batchFromTensors(manifest, workload.tensors));
  rt::Session session = must(rt::Session::create(*device, manifest, source));
  rt::Plan plan = must(rt::makePlan(manifest, batch, workload.options));
  must(session.bind(workload.tensors, batch));
  must(session.reserve(rt::planCapacity(manifest, rt::PlanLimits::of(manifest, batch), workload.options)));
  must(session.run(plan));
  rt::TensorMap outputs = must(session.outputs());
  if (!device->report().clean())
    return std::string(rt::host::toString(device->report().findings.front().kind)) + ": " +
           device->report().findings.front().message;
  if (manifest.isBackward()) {
    const std::string wrong = must(run::compareGradients(manifest, outputs, workload.gradients)).failure;
    return wrong.empty() ? wrong : "wrong result: " + wrong;
  }
  auto comparison = must(run::compare(
      outputs.at("o"), manifest.findResult("lse") ? &outputs.at("lse") : nullptr, workload.reference.output,
      manifest.findResult("lse") ? &workload.reference.lse : nullptr));
  run::Tolerances tolerance = run::Tolerances::of(manifest);
  if (!(comparison.relErr <= tolerance.relErr))
    return "wrong result: " + comparison.worst;
  if (comparison.maxErrLse && !(*comparison.maxErrLse <= tolerance.lse))
    return "wrong result: " + comparison.worstLse;
  if (const auto &scales = workload.reference.outputScales) {
    const std::string worst = run::compareScales(outputs.at("output_scales"), *scales, tolerance.scales);
    return worst.empty() ? worst : "wrong result: " + worst;
  }
  return {};
}

std::string Program::run(std::span<const rt::host::HostKernel> kernels) {
  for (Way way : ways)
    for (const Workload &workload : workloads)
      if (std::string wrong = runOnce(workload, way, kernels); !wrong.empty())
        return wrong;
  return {};
}

std::string Program::run(LLVMFuncOp kernel, const Mutant &mutant) {
  // The other kernels are compiled already: only the mutated kernel is compiled again.
  auto module = mlir::cast<mlir::gpu::GPUModuleOp>(kernel->getParentOp()->clone());
  for (LLVMFuncOp other : llvm::make_early_inc_range(module.getOps<LLVMFuncOp>()))
    if (!other.isExternal() && other.getName() != kernel.getName())
      other.erase();
  mutate(module.lookupSymbol<LLVMFuncOp>(kernel.getName()), mutant);
  auto loaded = attn::host::loadForHost(module);
  if (!loaded)
    return "refused: " + llvm::toString(loaded.takeError());
  std::vector<rt::host::HostKernel> kernels(code->kernels().begin(), code->kernels().end());
  for (rt::host::HostKernel &k : kernels)
    if (k.name == kernel.getName())
      k = (*loaded)->kernels().front();
  return run(kernels);
}

std::vector<LLVMFuncOp> Program::launchedKernels() {
  std::vector<rt::host::HostKernel> kernels(code->kernels().begin(), code->kernels().end());
  if (kernels.size() > maxKernels)
    fail("more than " + std::to_string(maxKernels) + " kernels");
  noteEntries(kernels, std::make_index_sequence<maxKernels>());
  if (std::string wrong = run(kernels); !wrong.empty())
    fail("the kernels are wrong before anything is changed: " + wrong);
  std::vector<LLVMFuncOp> launched;
  auto module = *compiled.machine->getOps<mlir::gpu::GPUModuleOp>().begin();
  for (size_t k = 0; k < kernels.size(); ++k)
    if (entered[k])
      launched.push_back(module.lookupSymbol<LLVMFuncOp>(kernels[k].name));
  return launched;
}

struct Job {
  LLVMFuncOp kernel;
  Mutant mutant;
  pid_t process = 0;
  int pipe = -1;
  std::string said = {};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

Job begin(Program &program, LLVMFuncOp kernel, const Mutant &mutant) {
  Job job{kernel, mutant};
  int ends[2];
  if (pipe(ends) != 0 || (job.process = fork()) < 0)
    fail("no process for a mutant");
  if (job.process == 0) {
    rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const std::string wrong = program.run(kernel, mutant);
    const std::string line = wrong.empty() ? "survived" : wrong;
    if (write(ends[1], line.data(), line.size()) < 0)
      _exit(3);
    _exit(0);
  }
  close(ends[1]);
  job.pipe = ends[0];
  return job;
}

/// Reads the available output; returns true when the mutant's process has ended.
bool advance(Job &job) {
  pollfd waiting{job.pipe, POLLIN, 0};
  if (poll(&waiting, 1, 20) > 0) {
    char text[4096];
    const ssize_t count = read(job.pipe, text, sizeof text);
    if (count > 0) {
      job.said.append(text, static_cast<size_t>(count));
      return false;
    }
    close(job.pipe);
    int status = 0;
    waitpid(job.process, &status, 0);
    if (WIFSIGNALED(status))
      job.said = std::string("crash: ") + strsignal(WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
      job.said = "refused: exit status " + std::to_string(WEXITSTATUS(status));
    return true;
  }
  if (job.seconds() < secondsPerMutant)
    return false;
  kill(job.process, SIGKILL);
  waitpid(job.process, nullptr, 0);
  close(job.pipe);
  job.said = "hang: no end after " + std::to_string(static_cast<int>(secondsPerMutant)) + " s";
  return true;
}

void print(Job &job) {
  llvm::json::Object line{{"kernel", job.kernel.getName().str()},
                          {"mutation", mutationNames[static_cast<size_t>(job.mutant.mutation)]},
                          {"op", job.mutant.op},
                          {"ordinal", job.mutant.ordinal},
                          {"position", static_cast<int64_t>(job.mutant.position)},
                          {"text", job.mutant.text},
                          {"outcome", job.said.substr(0, job.said.find(':'))},
                          {"detail", job.said},
                          {"seconds", job.seconds()}};
  llvm::outs() << llvm::json::Value(std::move(line)) << "\n";
  llvm::outs().flush();
}

} // namespace

int main(int argc, char **argv) {
  std::string file, target = "sm_90a", schedule = "auto", op;
  std::vector<std::string> only, runs;
  size_t every = 1;
  for (llvm::StringRef word : llvm::ArrayRef(argv + 1, argc - 1)) {
    if (word.consume_front("--target="))
      target = word.str();
    else if (word.consume_front("--schedule="))
      schedule = word.str();
    else if (word.consume_front("--every="))
      every = std::stoul(word.str());
    else if (word.consume_front("--op="))
      op = word.str();
    else if (word.consume_front("--only="))
      only.push_back(word.str());
    else if (file.empty())
      file = word.str();
    else
      runs.push_back(word.str());
  }
  if (runs.empty())
    fail("expected a file and at least one run");
  Program program(file, target, schedule);
  for (const std::string &run : runs)
    program.addWorkload(run);
  std::vector<std::pair<LLVMFuncOp, Mutant>> all;
  size_t number = 0;
  for (LLVMFuncOp kernel : program.launchedKernels())
    for (Mutant &mutant : listMutants(kernel, program.isBackward())) {
      if (!op.empty() && mutant.op != op)
        continue;
      const std::string name = kernel.getName().str() + ":" + std::to_string(mutant.position);
      if (number++ % every == 0 && (only.empty() || llvm::is_contained(only, name)))
        all.emplace_back(kernel, std::move(mutant));
    }
  std::vector<Job> running;
  for (size_t next = 0; next < all.size() || !running.empty();) {
    while (next < all.size() && running.size() < jobs) {
      running.push_back(begin(program, all[next].first, all[next].second));
      ++next;
    }
    for (size_t i = 0; i < running.size();) {
      if (!advance(running[i])) {
        ++i;
        continue;
      }
      print(running[i]);
      running.erase(running.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return 0;
}
