//===- Compile.cc - The C API's compiler ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Problem.h"

#include "attn/Host/Host.h"
#include "attn/Pipelines/Emit.h"
#include "attn/Support/Chip.h"
#include "attn/Target/GpuCode.h"
#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/capi/Objects.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

#include <chrono>
#include <map>

using namespace attn;
using namespace attn::capi;
using rt::capi::guarded;
using rt::capi::required;

struct AttnCompiled {
  AttnBytes artifact;
  std::string manifest, ptxasLog;
  std::vector<std::string> remarks;
  std::map<uint32_t, double> seconds; ///< by form; 0: to the machine level
};

namespace {

constexpr uint32_t hostForms = AttnFormHost | AttnFormHostChecked;
constexpr uint32_t allForms = hostForms | AttnFormPtx | AttnFormCubin;

class Clock {
public:
  explicit Clock(double &seconds) : seconds_(seconds) {}
  ~Clock() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

private:
  double &seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

rt::Status makeForms(mlir::attn::CompiledKernel &kernel, const mlir::attn::Chip &chip, uint32_t forms,
                     Problem &problem, rt::Artifact &artifact, AttnCompiled &result) {
  auto machine = *kernel.machine->getOps<mlir::gpu::GPUModuleOp>().begin();
  if (const uint32_t form = forms & hostForms) {
    Clock clock(result.seconds[form]);
    auto object = attn::host::compileForHost(machine, {form == AttnFormHostChecked, ""});
    if (!object)
      return rt::inputError(llvm::toString(object.takeError()));
    artifact.hostCode = rt::host::writeCodeObject(*object);
  }
  if (!(forms & (AttnFormPtx | AttnFormCubin)))
    return {};
  double seconds = 0;
  mlir::FailureOr<mlir::attn::GpuCode> code = mlir::failure();
  {
    Clock clock(seconds);
    code = mlir::attn::emitGpuCode(machine, chip, forms & AttnFormCubin);
  }
  if (failed(code))
    return problem.error();
  result.seconds[AttnFormPtx] = code->ptxSeconds;
  if (forms & AttnFormPtx)
    artifact.ptx = code->ptx();
  if (forms & AttnFormCubin) {
    if (!code->refusal.empty())
      return rt::Error{rt::ErrorKind::Device, std::move(code->refusal)};
    result.seconds[AttnFormCubin] = seconds - code->ptxSeconds;
    result.ptxasLog = code->log();
    for (mlir::attn::GpuCode::Kernel &kernel : code->kernels)
      artifact.cubins.push_back(std::move(kernel.cubin.bytes));
  }
  return {};
}

} // namespace

AttnStatus attnCompile(const AttnSource *source, uint32_t forms, AttnCompiled **compiled) {
  return guarded([&]() -> rt::Status {
    if (rt::Status status = required("compiled", compiled); !status)
      return status;
    if (rt::Status status = checkSource(source); !status)
      return status;
    if (forms & ~allForms || (forms & hostForms) == hostForms)
      return rt::inputError(
          "forms: expected some of host (1) or checked host (2), PTX (4) and cubin (8), got " +
          std::to_string(forms));
    auto result = std::make_unique<AttnCompiled>();
    Problem problem(*source);
    rt::Artifact artifact;
    mlir::FailureOr<mlir::attn::CompiledKernel> kernel = mlir::failure();
    {
      Clock clock(result->seconds[0]);
      if (rt::Status status = problem.parse(); !status)
        return status;
      kernel = mlir::attn::compileProblem(*problem.module, problem.entry, problem.options);
      if (failed(kernel))
        return problem.error();
      auto manifest = rt::parseManifest(kernel->manifest);
      if (!manifest)
        return manifest.error();
      artifact.manifest = std::move(*manifest);
    }
    const mlir::attn::Chip &chip = *mlir::attn::findChip(problem.options.target);
    if (rt::Status status = makeForms(*kernel, chip, forms, problem, artifact, *result); !status)
      return status;
    result->artifact.text = rt::writeArtifact(artifact);
    result->manifest = std::move(kernel->manifest);
    result->remarks = std::move(problem.remarks);
    *compiled = result.release();
    return {};
  });
}

void attnCompiledDestroy(AttnCompiled *compiled) { delete compiled; }
const AttnBytes *attnCompiledArtifact(const AttnCompiled *compiled) {
  return compiled ? &compiled->artifact : nullptr;
}
const char *attnCompiledManifest(const AttnCompiled *compiled) {
  return compiled ? compiled->manifest.c_str() : nullptr;
}
const char *attnCompiledRemark(const AttnCompiled *compiled, size_t index) {
  return compiled && index < compiled->remarks.size() ? compiled->remarks[index].c_str() : nullptr;
}
const char *attnCompiledPtxasLog(const AttnCompiled *compiled) {
  return compiled ? compiled->ptxasLog.c_str() : nullptr;
}
double attnCompiledSeconds(const AttnCompiled *compiled, uint32_t form) {
  if (!compiled)
    return 0;
  auto found = compiled->seconds.find(form);
  return found == compiled->seconds.end() ? 0 : found->second;
}

AttnStatus attnEmit(const AttnSource *source, const char *level, AttnBytes **text) {
  return guarded([&]() -> rt::Status {
    if (rt::Status status = required("level, text", level, text); !status)
      return status;
    if (rt::Status status = checkSource(source); !status)
      return status;
    const auto wanted = mlir::attn::parseLevel(level);
    if (!wanted)
      return rt::inputError("level: expected one of " + mlir::attn::listLevels() + ", got '" + level + "'");
    Problem problem(*source);
    if (rt::Status status = problem.parse(); !status)
      return status;
    auto emitted = mlir::attn::emitLevel(*problem.module, *wanted, problem.entry, problem.options);
    if (failed(emitted))
      return problem.error();
    *text = new AttnBytes{std::move(*emitted)};
    return {};
  });
}
