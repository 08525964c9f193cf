//===- CodeObject.h - Native code that can be kept --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compiler half of the host device makes a CodeObject of a module: a relocatable
// ELF object, and beside it what the executor must know of each kernel. It can be
// written into an artifact and loaded later by a process without a compiler:
//
//     compiler: CodeObject -> bytes      any process: bytes -> CodeObject -> LoadedCode
//
// Loading is what a linker does with one object, and takes well under a millisecond:
// sections are laid out, relocations applied, calls bound to the functions of Abi.h.
// Bytes that are damaged are refused, but who can write them can have any code
// executed: artifacts carry a hash for the one and belong to their user for the other.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_HOST_CODEOBJECT_H
#define ATTN_RT_HOST_CODEOBJECT_H

#include "attn_rt/host/Kernel.h"
#include "attn_rt/support/Status.h"

#include <span>

namespace attn::rt::host {

/// Of the functions that code may call, of LaneAbi, and of the bytes of a CodeObject: raised with any change.
inline constexpr uint32_t codeVersion = 4;

/// CPU models that code is made for, from the oldest: a short list, so that kernels round alike everywhere.
inline constexpr std::string_view cpuModels[] = {"x86-64-v2", "x86-64-v3"};
/// The newest of them that this machine is.
std::string_view thisCpu();

struct CodeObject {
  std::string cpu;                 ///< one of cpuModels
  bool checked = false;            ///< loads and stores are instrumented
  std::vector<HostKernel> kernels; ///< without entries
  std::vector<uint8_t> elf;
};

/// Texts of operations that unchecked code never reports are left out.
std::vector<uint8_t> writeCodeObject(const CodeObject &object);
/// Refuses what is malformed or of another version, and says so; `name` begins the message.
Result<CodeObject> readCodeObject(std::span<const uint8_t> bytes, const std::string &name);

/// Code in this process's memory, which it frees.
class LoadedCode {
public:
  /// Refuses code for a CPU that this machine is not, and objects that are malformed, call what nobody has,
  /// or lack one of the kernels.
  static Result<std::unique_ptr<LoadedCode>> load(const CodeObject &object, const std::string &name);
  ~LoadedCode();
  LoadedCode(const LoadedCode &) = delete;
  LoadedCode &operator=(const LoadedCode &) = delete;
  std::span<const HostKernel> kernels() const { return kernels_; }

private:
  LoadedCode() = default;
  std::vector<HostKernel> kernels_;
  void *memory_ = nullptr;
  size_t bytes_ = 0;
};

} // namespace attn::rt::host

#endif
