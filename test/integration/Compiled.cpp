//===- Compiled.cpp - Text compiled for a device --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Compiled.h"

#include "attn/Pipelines/Compile.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

namespace attn::rt::test {

Compiled::Compiled(const std::string &text, const std::string &gpuTarget)
    : context(
          [] {
            mlir::DialectRegistry registry;
            mlir::attn::registerDialects(registry);
            return registry;
          }(),
          mlir::MLIRContext::Threading::DISABLED) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  EXPECT_TRUE(module);
  mlir::attn::CompileOptions options;
  options.ptx = !gpuTarget.empty();
  if (options.ptx)
    options.target = gpuTarget;
  auto kernel = mlir::attn::compileProblem(*module, "", options);
  EXPECT_TRUE(mlir::succeeded(kernel));
  Result<Manifest> parsed = parseManifest(kernel->manifest);
  EXPECT_TRUE(parsed) << parsed.error().message;
  manifest = std::move(*parsed);
  ptx = kernel->ptx;
  if (options.ptx)
    return;
  auto compiled = attn::host::loadForHost(*kernel->machine->getOps<mlir::gpu::GPUModuleOp>().begin());
  EXPECT_TRUE(static_cast<bool>(compiled));
  code = std::move(*compiled);
}

ModuleSource Compiled::source() const {
  ModuleSource source;
  source.name = manifest.entry;
  source.ptx = ptx;
  if (code)
    source.hostKernels = code->kernels();
  return source;
}

} // namespace attn::rt::test
