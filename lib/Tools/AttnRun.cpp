//===- AttnRun.cpp - The attn-run program ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles a problem, makes or reads tensors for it, runs it, compares it with the float64 reference and
// reports. This file has the order of the steps; run/ has the steps.
//
//===----------------------------------------------------------------------===//
#include "Run.h"

#include "attn/Host/Host.h"
#include "attn/Reference/Reference.h"
#include "attn/Tools/Tools.h"

#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/picture/Picture.h"
#include "attn_rt/support/Chips.h"
#include "attn_rt/support/File.h"
#include "attn_rt/support/Version.h"
#include "attn_rt/tensor/Safetensors.h"

#include "run/cache/CacheRun.h"
#include "run/inputs/GradientInputs.h"
#include "run/inputs/Problem.h"
#include "run/report/Gradients.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/Config/llvm-config.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

using namespace attn;
using namespace attn::run;
using mlir::failed;

namespace {

/// Exit statuses of every program.
constexpr int right = 0, wrong = 1, badInput = 2;

/// Returns the error of a step that has printed its diagnostics.
rt::Error alreadySaid() { return rt::inputError(""); }

double millisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

} // namespace

rt::Status Run::openDevice() {
  bool cuda = options.device == "cuda" || (options.device.empty() && rt::cudaIsAvailable());
  if (cuda) {
    auto opened = rt::openCudaDevice();
    if (!opened)
      return rt::inputError(opened.error().message + "; --device=host runs the same kernel on the CPU");
    device = std::move(*opened);
  } else {
    rt::host::LaunchOptions launch;
    launch.seed = options.seed;
    launch.shuffle = options.shuffle;
    auto made = rt::makeHostDevice(launch);
    host = made.get();
    device = std::move(made);
  }
  target = !options.target.empty() ? options.target
           : cuda                  ? std::string(rt::targetOfGpu(device->properties().computeCapability))
                                   : "sm_90a";
  return {};
}

rt::Status Run::compile() {
  if (auto bytes = rt::readFile(options.file); bytes && rt::isArtifactFile(*bytes))
    return load(*bytes);
  progress.stage("compiling");
  auto start = std::chrono::steady_clock::now();
  auto module = mlir::attn::parseProblemFile(options.file, sources, &context);
  if (!module)
    return alreadySaid();
  mlir::attn::CompileOptions compileOptions;
  compileOptions.target = target;
  compileOptions.schedule = options.schedule;
  compileOptions.ptx = !host;
  auto compiled = mlir::attn::compileProblem(*module, options.entry, compileOptions);
  if (failed(compiled))
    return alreadySaid();
  kernel = std::move(*compiled);
  auto parsed = rt::parseManifest(kernel.manifest);
  if (!parsed)
    return parsed.error();
  manifest = std::move(*parsed);
  compileMs = millisecondsSince(start);
  if (host) {
    progress.stage("making native code of the kernels");
    start = std::chrono::steady_clock::now();
    auto code = attn::host::loadForHost(*kernel.machine->getOps<mlir::gpu::GPUModuleOp>().begin());
    if (!code)
      return rt::inputError(llvm::toString(code.takeError()));
    hostCode = std::move(*code);
    isChecked = true;
    hostCodeMs = millisecondsSince(start);
  }
  return {};
}

rt::Result<rt::TensorMap> Run::generateFromWorkload(const Arguments &arguments) {
  auto text = rt::readFile(options.workload);
  if (!text)
    return text.error();
  auto workload = rt::readWorkload(*text, options.workload);
  if (!workload)
    return workload.error();
  return generateForest(arguments, *workload, options.workload, options.step.value_or(0), dims, options.seed);
}

rt::Status Run::makeTensors() {
  auto arguments = readArguments(*kernel.problem->getOps<mlir::func::FuncOp>().begin());
  if (failed(arguments))
    return alreadySaid();
  if (manifest.isBackward())
    addBackwardArguments(manifest, *arguments);
  auto made = [&]() -> rt::Result<rt::TensorMap> {
    if (options.inputs.empty()) {
      progress.stage("generating tensors");
      for (const std::string &dim : options.dims)
        if (rt::Status status = dims.add(dim); !status)
          return status.error();
      return options.workload.empty() ? generateInputs(*arguments, dims, options.seed)
                                      : generateFromWorkload(*arguments);
    }
    if (!options.dims.empty())
      return rt::inputError("--dim sizes generated tensors, and --inputs reads them: give one of the two");
    progress.stage("reading tensors");
    auto read = rt::readSafetensorsFile(options.inputs);
    if (read)
      if (rt::Status status = checkNames(*arguments, *read); !status)
        return status.error();
    return read;
  }();
  if (!made)
    return made.error();
  tensors = std::move(*made);
  if (manifest.isBackward() && options.inputs.empty()) {
    progress.stage("computing the forward's results");
    auto function = *kernel.problem->getOps<mlir::func::FuncOp>().begin();
    if (rt::Status status = finishForward(function, tensors); !status)
      return status;
  }
  return rt::addDefaults(manifest, tensors);
}

rt::ModuleSource Run::moduleSource() const {
  rt::ModuleSource source;
  source.name = manifest.entry;
  source.ptx = kernel.ptx;
  source.cubins = cubins;
  if (hostCode)
    source.hostKernels = hostCode->kernels();
  return source;
}

rt::Status Run::compareWithReference() {
  progress.stage("computing the float64 reference");
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  auto function = *kernel.problem->getOps<mlir::func::FuncOp>().begin();
  auto compareOne = [&](const std::string &prefix, auto evaluate) -> rt::Status {
    auto reference = evaluate(function, tensors, threads);
    if (!reference)
      return reference.error();
    bool lse = manifest.findResult(prefix + "lse");
    auto comparison = compare(outputs.at(prefix + "o"), lse ? &outputs.at(prefix + "lse") : nullptr,
                              reference->output, lse ? &reference->lse : nullptr);
    if (!comparison)
      return comparison.error();
    Tolerances tolerance = Tolerances::of(manifest);
    if (!(comparison->relErr <= tolerance.relErr))
      record->failure = prefix + "o is past its tolerance at " + comparison->worst;
    else if (lse && !(*comparison->maxErrLse <= tolerance.lse))
      record->failure = prefix + "lse is past its tolerance at " + comparison->worstLse;
    if (const auto &exact = reference->outputScales; exact && record->failure.empty())
      if (std::string worst = compareScales(outputs.at("output_scales"), *exact, tolerance.scales);
          !worst.empty())
        record->failure = "output_scales is past its tolerance at " + worst;
    for (const auto &[name, exact] : reference->significance)
      if (std::string worst = compareSignificance(outputs.at(name), exact);
          !worst.empty() && record->failure.empty())
        record->failure = name + " is past its tolerance at " + worst;
    // For two outputs, the worse one is reported.
    if (!record->comparison || !(comparison->relErr <= record->comparison->relErr))
      record->comparison = std::move(*comparison);
    return {};
  };
  if (rt::Status status = compareOne("", mlir::attn::evaluateReference);
      !status || !manifest.returnsFirst() || !record->failure.empty())
    return status;
  return compareOne("first_", mlir::attn::evaluateFirst);
}

rt::Status Run::checkGradients() {
  progress.stage("computing the float64 reference");
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  auto function = *kernel.problem->getOps<mlir::func::FuncOp>().begin();
  auto reference = mlir::attn::evaluateGradients(function, tensors, threads);
  if (!reference)
    return reference.error();
  auto found = compareGradients(manifest, outputs, *reference);
  if (found && !found->failure.empty()) { // the rounding of the given output may be the reason
    auto withErrors = withDeltaErrors(function, tensors);
    if (!withErrors)
      return withErrors.error();
    auto moved = mlir::attn::evaluateGradients(function, *withErrors, threads);
    if (!moved)
      return moved.error();
    found = compareGradients(manifest, outputs, *reference, &*moved);
  }
  if (!found)
    return found.error();
  if (record->failure.empty())
    record->failure = std::move(found->failure);
  record->comparison = std::move(found->worst);
  return {};
}

rt::Status Run::write() {
  if (!options.saveInputs.empty())
    if (rt::Status status = rt::writeSafetensorsFile(options.saveInputs, tensors); !status)
      return status;
  if (!options.outputs.empty())
    if (rt::Status status = rt::writeSafetensorsFile(options.outputs, outputs); !status)
      return status;
  if (!options.svg.empty()) {
    const rt::GpuModel &gpu = record->gpu ? *record->gpu : rt::defaultGpu();
    const std::string picture = rt::drawPlan(manifest, record->batch, record->plan, gpu);
    if (rt::Status status = rt::writeFile(options.svg, picture); !status)
      return status;
  }
  bool jsonOnOutput = options.json == "-";
  if (jsonOnOutput)
    std::fputs(reportJson(*record).c_str(), stdout);
  else if (!options.json.empty())
    if (rt::Status status = rt::writeFile(options.json, reportJson(*record)); !status)
      return status;
  std::fputs(summaryText(*record).c_str(), jsonOnOutput ? stderr : stdout);
  return {};
}

rt::Result<int> Run::run() {
  for (auto step : {&Run::openDevice, &Run::compile})
    if (rt::Status status = (this->*step)(); !status)
      return status.error();
  if (manifest.managesPages())
    return rt::inputError("'" + manifest.entry +
                          "' works on page tables, and its result depends on earlier operations: "
                          "attn.PagePool and the C API run it, attn-run does not");
  if (manifest.rowCopy()) {
    auto passed = runCacheFunction({options, *device, isChecked ? host : nullptr, manifest, moduleSource(),
                                    *kernel.problem->getOps<mlir::func::FuncOp>().begin(), progress,
                                    compileMs, hostCodeMs, loadMs});
    return passed ? rt::Result<int>(*passed ? right : wrong) : passed.error();
  }
  for (auto step : {&Run::makeTensors, &Run::execute})
    if (rt::Status status = (this->*step)(); !status)
      return status.error();
  if (options.check)
    if (rt::Status status = manifest.isBackward() ? checkGradients() : compareWithReference(); !status)
      return status.error();
  progress.stage("");
  if (record->host && !record->host->clean()) {
    std::fputs(record->host->describe().c_str(), stderr);
    record->failure = "the detectors of the host device found faults in the kernel";
  }
  if (rt::Status status = write(); !status)
    return status.error();
  return record->failure.empty() ? right : wrong;
}

int mlir::attn::attnRunMain(int argc, char **argv) {
  auto options = parseOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (options && options->help) {
    std::fputs(helpText().c_str(), stdout);
    return right;
  }
  if (options && options->version) {
    std::printf("attn-run %s (LLVM %s)\n", rt::version(), LLVM_VERSION_STRING);
    return right;
  }
  auto status = options ? Run(std::move(*options)).run() : rt::Result<int>(options.error());
  if (status)
    return *status;
  if (!status.error().message.empty())
    std::fprintf(stderr, "attn-run: error: %s\n", status.error().message.c_str());
  return status.error().kind == rt::ErrorKind::Check ? wrong : badInput;
}
