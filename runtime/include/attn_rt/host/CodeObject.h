//===- CodeObject.h - Native code that can be kept --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compiler half of the host device makes a CodeObject of a module: a relocatable
// ELF object, and beside it what the executor must know of each kernel. It can be
// written into an artifact and loaded later by a process without a compiler:
//
//     compiler: CodeObject -> bytes      any process: bytes -> CodeObject -> LoadedCode
//
// Loading does what a linker does with one object, and takes well under a millisecond:
// it lays out sections, applies relocations and binds calls to the functions of Abi.h.
// Damaged bytes are refused, but whoever can write them can have any code executed:
// artifacts carry a hash against damage, and belong to their user.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_HOST_CODEOBJECT_H
#define ATTN_RT_HOST_CODEOBJECT_H

#include "attn_rt/host/Kernel.h"
#include "attn_rt/support/Status.h"

#include <span>

namespace attn::rt::host {

/// The version of the functions that code may call, of LaneAbi and of the bytes of a CodeObject. Any change
/// raises it.
inline constexpr uint32_t codeVersion = 5;

/// CPU models that code is made for, oldest first: a short list, so that kernels round alike everywhere.
inline constexpr std::string_view cpuModels[] = {"x86-64-v2", "x86-64-v3"};
/// The newest of cpuModels that this machine supports.
std::string_view thisCpu();

struct CodeObject {
  std::string cpu;                 ///< one of cpuModels
  bool checked = false;            ///< loads and stores are instrumented
  std::vector<HostKernel> kernels; ///< without entries
  std::vector<uint8_t> elf;
};

/// Writes a code object. For unchecked code, the texts of operations that it never reports are left out.
std::vector<uint8_t> writeCodeObject(const CodeObject &object);
/// Reads a code object. Refuses malformed bytes and other versions; `name` begins the message.
Result<CodeObject> readCodeObject(std::span<const uint8_t> bytes, const std::string &name);

/// Code loaded into this process's memory, which it frees.
class LoadedCode {
public:
  /// Loads code. Refuses code for a CPU that this machine does not support, and objects that are malformed,
  /// call unknown functions, or lack one of their kernels.
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
