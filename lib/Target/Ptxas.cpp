//===- Ptxas.cpp - NVIDIA's assembler, where there is one -----------------===//
#include "attn/Target/Ptxas.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

std::string mlir::attn::findPtxas() {
  if (std::optional<std::string> given = sys::Process::GetEnv("ATTN_PTXAS"))
    return *given;
  if (ErrorOr<std::string> found = sys::findProgramByName("ptxas"))
    return *found;
  if (ErrorOr<std::string> found = sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"}))
    return *found;
  return {};
}

Expected<mlir::attn::Cubin> mlir::attn::assemble(StringRef ptx, const Chip &chip) {
  std::string program = findPtxas();
  if (program.empty())
    return createStringError(
        "no ptxas: put it on the PATH or set ATTN_PTXAS (the CUDA toolkit has it, and so does "
        "the Python package nvidia-cuda-nvcc)");
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
  std::string arch = ("-arch=" + chip.name).str();
  // Kernels of a module, where it has several, side by side.
  StringRef arguments[] = {program, "-v", "-O3", "--split-compile=0", arch, source, "-o", object};
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  std::string failure;
  // No limit of time: that takes a timer, of which a process has one, and others assemble beside this.
  int status =
      sys::ExecuteAndWait(program, arguments, std::nullopt, redirects, /*SecondsToWait=*/0, 0, &failure);
  Cubin cubin;
  if (auto text = MemoryBuffer::getFile(log))
    cubin.log = (*text)->getBuffer().str();
  if (status != 0) {
    removeSource.releaseFile(); // kept, so that the command below can be repeated
    return createStringError(Twine("ptxas failed: ") + failure + cubin.log + "\nto repeat: " + program +
                             " -v -O3 " + arch + " " + source + " -o /dev/null");
  }
  auto bytes = MemoryBuffer::getFile(object, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!bytes)
    return createStringError(bytes.getError(), "cannot read what ptxas wrote");
  cubin.bytes.assign((*bytes)->getBufferStart(), (*bytes)->getBufferEnd());
  return cubin;
}
