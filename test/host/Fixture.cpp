#include "Fixture.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

namespace attn::test {

std::unique_ptr<Program> Program::fromText(const std::string &text, bool check, std::string *error) {
  auto program = std::make_unique<Program>();
  mlir::DialectRegistry registry;
  registry.insert<mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect, mlir::gpu::GPUDialect, mlir::DLTIDialect,
                  mlir::tile::TileDialect>();
  program->context = std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
  program->module = mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(program->context.get()),
                                                            "kernel.mlir");
  if (!program->module)
    return nullptr;
  mlir::Operation *gpuModule = nullptr;
  program->module->walk([&](mlir::gpu::GPUModuleOp op) { gpuModule = op; });
  auto code = host::loadForHost(gpuModule, {check, ""});
  if (!code) {
    std::string message = llvm::toString(code.takeError());
    if (error)
      *error = message;
    else
      std::cerr << message << "\n";
    return nullptr;
  }
  program->code = std::move(*code);
  return program;
}

std::unique_ptr<Program> Program::fromFile(const std::string &name, bool check) {
  std::ifstream file(std::string(ATTN_HOST_TEST_DIR) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  auto program = file ? fromText(text.str(), check) : nullptr;
  if (!program) {
    std::cerr << "cannot compile " << name << "\n";
    std::abort();
  }
  return program;
}

const rt::host::HostKernel &Program::kernel(const std::string &name) const {
  for (const rt::host::HostKernel &kernel : code->kernels())
    if (kernel.name == name)
      return kernel;
  std::cerr << "no kernel " << name << "\n";
  std::abort();
}

} // namespace attn::test
