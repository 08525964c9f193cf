//===- Compile.cc - The C API's compiler ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Problem.h"

#include "attn/Artifact/MakeArtifact.h"
#include "attn/Pipelines/Emit.h"
#include "attn_rt/capi/Objects.h"

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

} // namespace

AttnStatus attnCompile(const AttnSource *source, uint32_t forms, AttnCompiled **compiled) {
  return attnCompileAsked(source, nullptr, forms, compiled);
}

AttnStatus attnCompileAsked(const AttnSource *source, const AttnAsks *asks, uint32_t forms,
                            AttnCompiled **compiled) {
  return guarded([&]() -> rt::Status {
    if (rt::Status status = required("compiled", compiled); !status)
      return status;
    if (rt::Status status = checkSource(source); !status)
      return status;
    if (rt::Status status = checkAsks(asks); !status)
      return status;
    if (forms & ~allForms || (forms & hostForms) == hostForms)
      return rt::inputError(
          "forms: expected some of host (1) or checked host (2), PTX (4) and cubin (8), got " +
          std::to_string(forms));
    auto result = std::make_unique<AttnCompiled>();
    Problem problem(*source, asks);
    mlir::FailureOr<mlir::attn::CompiledKernel> kernel = mlir::failure();
    {
      Clock clock(result->seconds[0]);
      if (rt::Status status = problem.parse(); !status)
        return status;
      kernel = mlir::attn::compileProblem(*problem.module, problem.entry, problem.options);
      if (failed(kernel))
        return problem.error();
    }
    mlir::attn::ArtifactReport report;
    const mlir::attn::ArtifactForms wanted{(forms & hostForms) != 0, (forms & AttnFormHostChecked) != 0,
                                           (forms & AttnFormPtx) != 0, (forms & AttnFormCubin) != 0};
    auto artifact = mlir::attn::makeArtifact(*kernel, problem.options.target, wanted, report);
    if (failed(artifact))
      return problem.error();
    if (!report.refusal.empty())
      return rt::Error{rt::ErrorKind::Device, std::move(report.refusal)};
    if (wanted.host)
      result->seconds[forms & hostForms] = report.hostSeconds;
    result->seconds[AttnFormPtx] = report.ptxSeconds;
    result->seconds[AttnFormCubin] = report.cubinSeconds;
    result->ptxasLog = std::move(report.ptxasLog);
    result->artifact.text = rt::writeArtifacts({&*artifact, 1});
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
  return attnEmitAsked(source, nullptr, level, text);
}

AttnStatus attnEmitAsked(const AttnSource *source, const AttnAsks *asks, const char *level,
                         AttnBytes **text) {
  return guarded([&]() -> rt::Status {
    if (rt::Status status = required("level, text", level, text); !status)
      return status;
    if (rt::Status status = checkSource(source); !status)
      return status;
    if (rt::Status status = checkAsks(asks); !status)
      return status;
    const auto wanted = mlir::attn::parseLevel(level);
    if (!wanted)
      return rt::inputError("level: expected one of " + mlir::attn::listLevels() + ", got '" + level + "'");
    Problem problem(*source, asks);
    if (rt::Status status = problem.parse(); !status)
      return status;
    auto emitted = mlir::attn::emitLevel(*problem.module, *wanted, problem.entry, problem.options);
    if (failed(emitted))
      return problem.error();
    *text = new AttnBytes{std::move(*emitted)};
    return {};
  });
}
