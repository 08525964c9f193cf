//===- MakeArtifact.cpp - Artifacts of compiled kernels -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Artifact/MakeArtifact.h"

#include "attn/Host/Host.h"
#include "attn/Support/Chip.h"
#include "attn/Target/GpuCode.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

#include <chrono>

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

static double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

FailureOr<rt::Artifact> mlir::attn::makeArtifact(const CompiledKernel &kernel, StringRef target,
                                                 const ArtifactForms &forms, ArtifactReport &report) {
  ModuleOp machine = *kernel.machine;
  auto manifest = rt::parseManifest(kernel.manifest);
  if (!manifest)
    return machine.emitError(manifest.error().message);
  rt::Artifact artifact;
  artifact.manifest = std::move(*manifest);
  auto kernels = *machine.getOps<gpu::GPUModuleOp>().begin();
  auto start = std::chrono::steady_clock::now();
  if (forms.host) {
    auto object = ::attn::host::compileForHost(kernels, {forms.hostChecked, ""});
    if (!object)
      return machine.emitError(llvm::toString(object.takeError()));
    artifact.hostCode = rt::host::writeCodeObject(*object);
    report.hostSeconds = secondsSince(start);
  }
  if (!forms.ptx && !forms.cubin)
    return artifact;
  start = std::chrono::steady_clock::now();
  FailureOr<GpuCode> code = emitGpuCode(kernels, *findChip(target), forms.cubin);
  if (failed(code))
    return failure();
  report.ptxSeconds = code->ptxSeconds;
  if (forms.ptx)
    artifact.ptx = code->ptx();
  report.refusal = std::move(code->refusal);
  if (!forms.cubin || !report.refusal.empty())
    return artifact;
  report.cubinSeconds = secondsSince(start) - code->ptxSeconds;
  report.ptxasLog = code->log();
  for (GpuCode::Kernel &one : code->kernels)
    artifact.cubins.push_back(std::move(one.cubin.bytes));
  return artifact;
}
