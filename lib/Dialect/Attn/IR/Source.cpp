//===- Source.cpp - Text as people write it -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Source.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

using namespace llvm;

// Bytecode is binary; it starts with the letters ML and the byte EF.
static bool isBytecode(StringRef text) { return text.starts_with("ML\xefR"); }

/// Calls `see` with the place of every character outside of strings and comments.
static void forEachOfCode(StringRef text, function_ref<void(size_t)> see) {
  enum { Code, String, Comment } state = Code;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (state == Code)
      see(i);
    if (c == '\n')
      state = Code;
    else if (state == String && c == '\\' && i + 1 < text.size() && text[i + 1] != '\n')
      ++i;
    else if (c == '"' && state != Comment)
      state = state == String ? Code : String;
    else if (state == Code && text.substr(i).starts_with("//"))
      state = Comment;
  }
}

std::unique_ptr<MemoryBuffer> mlir::attn::acceptAmpersand(std::unique_ptr<MemoryBuffer> source) {
  StringRef text = source->getBuffer();
  if (!text.contains('&') || isBytecode(text))
    return source;
  auto copy = WritableMemoryBuffer::getNewUninitMemBuffer(text.size(), source->getBufferIdentifier());
  llvm::copy(text, copy->getBufferStart());
  forEachOfCode(text, [&](size_t i) {
    if (text[i] == '&')
      copy->getBufferStart()[i] = '*';
  });
  return copy;
}

std::optional<mlir::attn::SourceFault> mlir::attn::findSourceFault(StringRef text) {
  if (isBytecode(text))
    return std::nullopt;
  std::optional<SourceFault> fault;
  const auto at = [&](size_t offset, const std::string &message) {
    const StringRef before = text.take_front(offset);
    fault = {static_cast<unsigned>(before.count('\n')) + 1,
             static_cast<unsigned>(offset - (before.rfind('\n') + 1)) + 1, message};
  };
  unsigned depth = 0, digits = 0;
  forEachOfCode(text, [&](size_t i) {
    const char c = text[i];
    if (StringRef("([{<").contains(c))
      ++depth;
    else if (StringRef(")]}>").contains(c) && depth && !(c == '>' && i && text[i - 1] == '-'))
      --depth;
    digits = isDigit(c) ? digits + 1 : 0;
    if (fault)
      return;
    if (depth > mostBrackets)
      at(i, "expected at most " + std::to_string(mostBrackets) + " brackets within each other");
    if (digits > mostDigits)
      at(i, "expected numbers of at most " + std::to_string(mostDigits) + " digits");
  });
  return fault;
}

mlir::OwningOpRef<mlir::ModuleOp> mlir::attn::parseSource(SourceMgr &sources, MLIRContext *context) {
  bool hasErrors = false;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    hasErrors |= diagnostic.getSeverity() == DiagnosticSeverity::Error;
    return failure(); // whoever shows errors shows it
  });
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, context);
  return hasErrors ? OwningOpRef<ModuleOp>() : std::move(module);
}
