//===- Compiled.h - Text compiled for a device ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_INTEGRATION_COMPILED_H
#define ATTN_TEST_INTEGRATION_COMPILED_H

#include "attn/Host/Host.h"
#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/device/Device.h"

#include "mlir/IR/MLIRContext.h"

namespace attn::rt::test {

/// The one function of a text, compiled for the host device, or for a GPU of this target.
struct Compiled {
  mlir::MLIRContext context;
  Manifest manifest;
  std::string ptx;
  std::unique_ptr<attn::rt::host::LoadedCode> code;

  explicit Compiled(const std::string &text, const std::string &gpuTarget = "");
  ModuleSource source() const;
};

} // namespace attn::rt::test

#endif
