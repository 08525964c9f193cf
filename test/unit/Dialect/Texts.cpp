//===- Texts.cpp - The texts of this repository, read and printed ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Texts.h"

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/IR/Source.h"
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace mlir;

static std::string contentOf(const std::filesystem::path &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> texts::all() {
  std::vector<std::string> texts;
  for (const char *folder : {"examples", "test/Dialect/Attn", "test/Dialect/Tile/IR"})
    for (const auto &entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(ATTN_SOURCE) / folder)) {
      if (entry.path().extension() != ".mlir")
        continue;
      std::string text = contentOf(entry.path());
      for (size_t end; (end = text.find("// -----")) != std::string::npos; text.erase(0, end + 8))
        texts.push_back(text.substr(0, end));
      texts.push_back(text);
    }
  std::sort(texts.begin(), texts.end());
  return texts;
}

std::unique_ptr<MLIRContext> texts::makeContext() {
  DialectRegistry registry;
  registry.insert<mlir::attn::AttnDialect, tile::TileDialect, arith::ArithDialect, func::FuncDialect,
                  gpu::GPUDialect, math::MathDialect, scf::SCFDialect>();
  return std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
}

OwningOpRef<ModuleOp> texts::parse(MLIRContext &context, const std::string &text, int &errors) {
  if (mlir::attn::findSourceFault(text)) {
    ++errors;
    return {};
  }
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    errors += diagnostic.getSeverity() == DiagnosticSeverity::Error && !diagnostic.str().empty();
    return success();
  });
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text), llvm::SMLoc());
  return mlir::attn::parseSource(sources, &context);
}

std::string texts::print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream(text) << module;
  return text;
}
