//===- LoadFile.cpp - attn-run of compiled files --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A manifest contains the problem that its code solves, so loaded code is checked like code compiled here:
// with the same tensors and the same reference.
//
//===----------------------------------------------------------------------===//
#include "Run.h"

#include "attn/Dialect/Attn/IR/Source.h"
#include "attn_rt/session/LoadArtifact.h"

#include "llvm/Support/MemoryBuffer.h"

#include <chrono>

using namespace attn;
using namespace attn::run;

rt::Status Run::load(const std::string &bytes) {
  progress.stage("loading");
  const auto start = std::chrono::steady_clock::now();
  if (options.schedule != "auto")
    return rt::inputError("--schedule chooses how to compile, and '" + options.file +
                          "' is compiled: leave it out");
  auto artifacts = rt::readArtifacts(bytes, options.file);
  if (!artifacts)
    return artifacts.error();
  auto chosen = rt::chooseArtifact(*device, *artifacts, options.file, options.entry, options.target);
  if (!chosen)
    return chosen.error();
  const rt::Artifact &artifact = **chosen;
  manifest = artifact.manifest;
  target = manifest.target;
  kernel.ptx = artifact.ptx;
  cubins = artifact.cubins;
  const std::string prefix = "artifact '" + options.file + "'";
  if (host) {
    auto object = rt::host::readCodeObject(artifact.hostCode, prefix);
    if (!object)
      return object.error();
    auto code = rt::host::LoadedCode::load(*object, prefix);
    if (!code)
      return code.error();
    hostCode = std::move(*code);
    isChecked = object->checked;
  }
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(manifest.problem, options.file),
                             llvm::SMLoc());
  if (!mlir::attn::findSourceFault(manifest.problem))
    kernel.problem = mlir::attn::parseSource(sources, &context);
  if (!kernel.problem || mlir::attn::attentionFunctions(*kernel.problem).size() != 1)
    return rt::inputError(prefix + ": manifest.problem: expected the text of one attention function");
  loadMs = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return {};
}
