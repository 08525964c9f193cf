//===- Ptxas.cpp - NVIDIA's assembler, if installed -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Target/Ptxas.h"
#include "ChildProcess.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <dlfcn.h>

using namespace llvm;

char mlir::attn::PtxasTooLate::ID = 0;

/// The folder where the Python package nvidia-cuda-nvcc 13 has its programs, when this library lies in a
/// Python package.
static std::string besidePackage() {
  Dl_info self;
  if (!dladdr(reinterpret_cast<const void *>(&besidePackage), &self) || !self.dli_fname)
    return {};
  SmallString<128> path(sys::path::parent_path(sys::path::parent_path(self.dli_fname)));
  sys::path::append(path, "nvidia", "cu13", "bin");
  return std::string(path);
}

std::string mlir::attn::findPtxas() {
  if (std::optional<std::string> given = sys::Process::GetEnv("ATTN_PTXAS"))
    return *given;
  if (ErrorOr<std::string> found = sys::findProgramByName("ptxas"))
    return *found;
  if (ErrorOr<std::string> found = sys::findProgramByName("ptxas", {besidePackage()}))
    return *found;
  if (ErrorOr<std::string> found = sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"}))
    return *found;
  return {};
}

/// Returns the output of `ptxas --version`, or its failure.
static std::string versionOf(StringRef program) {
  SmallString<128> log;
  if (sys::fs::createTemporaryFile("attn", "log", log))
    return "unknown";
  FileRemover removeLog(log);
  StringRef arguments[] = {program, "--version"};
  const mlir::attn::ChildEnd end = mlir::attn::runChild(program, arguments, log, /*seconds=*/10);
  auto text = MemoryBuffer::getFile(log);
  return end.succeeded() && text ? (*text)->getBuffer().trim().str() : "unknown";
}

std::string mlir::attn::identifyPtxas() {
  const std::string program = findPtxas();
  if (program.empty())
    return {};
  auto file = MemoryBuffer::getFile(program, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return "unreadable: " + program;
  const StringRef bytes = (*file)->getBuffer();
  const XXH128_hash_t hash = xxh3_128bits(arrayRefFromStringRef(bytes));
  std::string identity;
  raw_string_ostream(identity) << format_hex_no_prefix(hash.high64, 16)
                               << format_hex_no_prefix(hash.low64, 16);
  return bytes.starts_with("#!") ? identity + "\n" + versionOf(program) : identity;
}

/// Returns the time limit of ptxas in seconds, from ATTN_PTXAS_SECONDS; 0: no limit.
static Expected<double> patience() {
  // The largest kernels here take two seconds on a slow core.
  constexpr double usual = 120;
  std::optional<std::string> given = sys::Process::GetEnv("ATTN_PTXAS_SECONDS");
  if (!given || given->empty())
    return usual;
  double seconds = 0;
  if (!to_float(*given, seconds) || !(seconds >= 0))
    return createStringError("ATTN_PTXAS_SECONDS: expected seconds, or 0 for no limit, got '" +
                             Twine(*given) + "'");
  return seconds;
}

/// Describes a failure in words.
static std::string faultOf(const mlir::attn::ChildEnd &end, double seconds) {
  using mlir::attn::ChildEnd;
  switch (end.kind) {
  case ChildEnd::TooLate: {
    std::string text;
    raw_string_ostream(text) << "ptxas had not ended after " << format("%g", seconds)
                             << " s and was killed (ATTN_PTXAS_SECONDS sets the limit, 0 none)\n";
    return text;
  }
  case ChildEnd::Signalled:
    return "ptxas failed: signal " + std::to_string(end.number) + " ended it\n";
  case ChildEnd::Exited:
    return "ptxas failed: ";
  case ChildEnd::NotRun:
    return "ptxas failed: " + end.problem + "\n";
  }
  llvm_unreachable("unknown end");
}

Expected<mlir::attn::Cubin> mlir::attn::assemble(StringRef ptx, const Chip &chip) {
  std::string program = findPtxas();
  if (program.empty())
    return createStringError(
        "no ptxas: put it on the PATH or set ATTN_PTXAS (the CUDA toolkit has it, and so does "
        "the Python package nvidia-cuda-nvcc)");
  Expected<double> seconds = patience();
  if (!seconds)
    return seconds.takeError();
  SmallString<128> source, object, log;
  if (std::error_code error = sys::fs::createTemporaryFile("attn", "ptx", source))
    return createStringError(error, "cannot create a temporary file");
  FileRemover removeSource(source), removeObject, removeLog;
  if (std::error_code error = sys::fs::createTemporaryFile("attn", "cubin", object))
    return createStringError(error, "cannot create a temporary file");
  removeObject.setFile(object);
  if (std::error_code error = sys::fs::createTemporaryFile("attn", "log", log))
    return createStringError(error, "cannot create a temporary file");
  removeLog.setFile(log);
  {
    std::error_code error;
    raw_fd_ostream stream(source, error);
    stream << ptx;
    stream.close();
    if (stream.has_error())
      return createStringError(stream.error(), "cannot write " + Twine(source));
  }
  std::string arch = "-arch=" + std::string(chip.name);
  // Kernels of a module with several are compiled in parallel.
  StringRef arguments[] = {program, "-v", "-O3", "--split-compile=0", arch, source, "-o", object};
  ChildEnd end = runChild(program, arguments, log, *seconds);
  Cubin cubin;
  if (auto text = MemoryBuffer::getFile(log))
    cubin.log = (*text)->getBuffer().str();
  if (!end.succeeded()) {
    removeSource.releaseFile(); // kept, so that the command below can be repeated
    std::string text = faultOf(end, *seconds) + cubin.log + "\nto repeat: " + program + " -v -O3 " + arch +
                       " " + std::string(source) + " -o /dev/null";
    if (end.kind == ChildEnd::TooLate)
      return make_error<PtxasTooLate>(text, inconvertibleErrorCode());
    return createStringError(text);
  }
  auto bytes = MemoryBuffer::getFile(object, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!bytes)
    return createStringError(bytes.getError(), "cannot read the output of ptxas");
  cubin.bytes.assign((*bytes)->getBufferStart(), (*bytes)->getBufferEnd());
  return cubin;
}
