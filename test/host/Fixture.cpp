//===- Fixture.cpp - Machine- or tile-level text to a launch --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Dialect/Tile/Transforms/Passes.h"
#include "attn/Pipelines/Pipelines.h"
#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

namespace attn::test {

std::unique_ptr<Program> Program::fromText(const std::string &text, bool check, std::string *error,
                                           void (*prepare)(mlir::gpu::GPUModuleOp)) {
  auto program = std::make_unique<Program>();
  mlir::DialectRegistry registry;
  registry.insert<mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect, mlir::gpu::GPUDialect, mlir::DLTIDialect,
                  mlir::tile::TileDialect>();
  program->context = std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
  program->module = mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(program->context.get()),
                                                            "kernel.mlir");
  if (!program->module)
    return nullptr;
  if (prepare)
    program->module->walk([&](mlir::gpu::GPUModuleOp kernels) { prepare(kernels); });
  return program->load(check, error) ? std::move(program) : nullptr;
}

bool Program::load(bool check, std::string *error) {
  mlir::Operation *gpuModule = nullptr;
  module->walk([&](mlir::gpu::GPUModuleOp op) { gpuModule = op; });
  auto loaded = host::loadForHost(gpuModule, {check, ""});
  if (loaded) {
    code = std::move(*loaded);
    return true;
  }
  std::string message = llvm::toString(loaded.takeError());
  if (error)
    *error = message;
  else
    std::cerr << message << "\n";
  return false;
}

/// Aborts without a program: tests cannot continue without it.
static std::unique_ptr<Program> orAbort(std::unique_ptr<Program> program, const std::string &name) {
  if (!program) {
    std::cerr << "cannot compile " << name << "\n";
    std::abort();
  }
  return program;
}

namespace {
/// A line of @right with marks: the kernels that it names lack it or, with `added`, they alone have it.
struct MarkedLine {
  std::string text;
  bool added = false;
  llvm::SmallVector<llvm::StringRef> kernels;

  explicit MarkedLine(llvm::StringRef line) {
    llvm::StringRef code = line.ltrim(), marks;
    added = code.consume_front("//+ ");
    if (added)
      std::tie(marks, code) = code.split(": ");
    else
      std::tie(code, marks) = line.split(" //- ");
    text = code.str() + "\n";
    marks.split(kernels, ", ", -1, /*KeepEmpty=*/false);
  }
  bool isOf(llvm::StringRef kernel) const { return llvm::is_contained(kernels, kernel) == added; }
};
} // namespace

/// Appends the kernels that the marks in @right describe: `LINE //- wrong1, wrong2` is left out of these two,
/// and `//+ wrong1: LINE` is in @wrong1 alone.
static std::string withMarkedKernels(const std::string &text) {
  const llvm::StringRef head = "  llvm.func @right(", tail = "\n  }\n";
  size_t begin = text.find(head), end = text.find(tail, begin);
  if (begin == std::string::npos || end == std::string::npos)
    return text;
  begin += head.size(), end += tail.size();
  llvm::SmallVector<llvm::StringRef> split;
  llvm::StringRef(text).slice(begin, end - 1).split(split, '\n');
  std::vector<MarkedLine> lines(split.begin(), split.end());
  std::set<llvm::StringRef> kernels;
  for (const MarkedLine &line : lines)
    kernels.insert(line.kernels.begin(), line.kernels.end());
  std::string made;
  for (llvm::StringRef kernel : kernels) {
    made += "  llvm.func @" + kernel.str() + "(";
    for (const MarkedLine &line : lines)
      made += line.isOf(kernel) ? line.text : "";
  }
  return text.substr(0, end) + made + text.substr(end);
}

std::unique_ptr<Program> Program::fromFile(const std::string &name, bool check) {
  std::ifstream file(std::string(ATTN_HOST_TEST_DIR) + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return orAbort(file ? fromText(withMarkedKernels(text.str()), check) : nullptr, name);
}

/// A program whose context has the dialects of the tile level.
static std::unique_ptr<Program> tileProgram() {
  auto program = std::make_unique<Program>();
  mlir::DialectRegistry registry;
  mlir::attn::registerDialects(registry);
  program->context = std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
  return program;
}

bool Program::lower(bool check) {
  mlir::PassManager manager(context.get());
  mlir::OpPassManager &kernels = manager.nest<mlir::gpu::GPUModuleOp>();
  kernels.addPass(mlir::tile::createInferLayoutsPass());
  kernels.addPass(mlir::tile::createAllocateSharedPass());
  mlir::attn::addStage(manager, mlir::attn::Stage::Machine, {});
  return module && mlir::succeeded(manager.run(*module)) && load(check, nullptr);
}

std::unique_ptr<Program> Program::fromTileFile(const std::string &name, bool check) {
  auto program = tileProgram();
  program->module = mlir::parseSourceFile<mlir::ModuleOp>(std::string(ATTN_HOST_TEST_DIR) + "/" + name,
                                                          program->context.get());
  bool lowered = program->lower(check);
  return orAbort(lowered ? std::move(program) : nullptr, name);
}

std::unique_ptr<Program> Program::fromTileText(const std::string &text, bool check) {
  auto program = tileProgram();
  program->module = mlir::parseSourceString<mlir::ModuleOp>(text, program->context.get());
  return program->lower(check) ? std::move(program) : nullptr;
}

const rt::host::HostKernel &Program::kernel(const std::string &name) const {
  for (const rt::host::HostKernel &kernel : code->kernels())
    if (kernel.name == name)
      return kernel;
  std::cerr << "no kernel " << name << "\n";
  std::abort();
}

} // namespace attn::test
