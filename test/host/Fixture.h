//===- Fixture.h - Machine- or tile-level text to a launch ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_HOST_FIXTURE_H
#define ATTN_TEST_HOST_FIXTURE_H

#include "attn/Host/Host.h"
#include "attn_rt/host/Launch.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include <cstring>
#include <string>
#include <vector>

namespace attn::test {

/// A parsed and compiled file of kernels.
class Program {
public:
  static std::unique_ptr<Program> fromFile(const std::string &name, bool check = true);
  /// A program from tile-level text: the compiler makes layouts, shared memory and the machine level.
  static std::unique_ptr<Program> fromTileFile(const std::string &name, bool check = true);
  static std::unique_ptr<Program> fromTileText(const std::string &text, bool check = true);
  static std::unique_ptr<Program> fromText(const std::string &text, bool check = true,
                                           std::string *error = nullptr,
                                           void (*prepare)(mlir::gpu::GPUModuleOp) = nullptr);
  const rt::host::HostKernel &kernel(const std::string &name) const;

  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<rt::host::LoadedCode> code;

private:
  /// Lowers the program from the tile level on.
  bool lower(bool check);
  /// Loads the program. Returns false, with a message, if the module cannot be executed.
  bool load(bool check, std::string *error);
};

/// Memory and arguments of one launch.
class Launcher {
public:
  rt::host::MemoryMap memory;
  rt::host::LaunchOptions options;

  /// Allocates memory that counts as written.
  template <class T> T *upload(const char *label, const std::vector<T> &data) {
    T *p = output<T>(label, data.size());
    std::memcpy(p, data.data(), data.size() * sizeof(T));
    memory.markWritten(p, data.size() * sizeof(T));
    return p;
  }
  /// Allocates unwritten memory.
  template <class T> T *output(const char *label, size_t n) {
    return static_cast<T *>(*memory.alloc(n * sizeof(T), label));
  }
  template <class... Args>
  rt::host::Report run(const rt::host::HostKernel &kernel, rt::host::Dim3 grid, rt::host::Dim3 block,
                       uint32_t sharedBytes, Args... args) {
    void *pointers[] = {static_cast<void *>(&args)..., nullptr};
    return launch(kernel, grid, block, sharedBytes, pointers, memory, options);
  }
};

} // namespace attn::test

#endif
