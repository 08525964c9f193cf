//===- Source.cpp - Source text before parsing ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Source.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

using namespace llvm;

namespace {

/// Whether a character may be part of a word: of a keyword, a name or a number.
bool isOfWord(char c) { return isAlnum(c) || c == '_' || c == '.' || c == '$'; }

/// Returns the length of the first token of `text`, by the rules of MLIR's lexer: a word, a name with its
/// sigil, or one character.
size_t tokenLength(StringRef text) {
  const bool hasSigil = StringRef("#!%^@").contains(text[0]);
  if (!hasSigil && !isOfWord(text[0]))
    return 1;
  const bool isNumber = hasSigil && text.size() > 1 && isDigit(text[1]);
  const size_t end =
      text.find_if_not([=](char c) { return isNumber ? isDigit(c) : isOfWord(c) || (hasSigil && c == '-'); },
                       hasSigil ? 1 : 0);
  return std::min(end, text.size());
}

/// Calls `see` with every token outside of strings and comments, in order.
void forEachToken(StringRef text, function_ref<void(StringRef)> see) {
  bool isString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      isString = !isString;
    } else if (c == '\n') {
      isString = false;
    } else if (isString) {
      if (c == '\\' && i + 1 < text.size() && text[i + 1] != '\n')
        ++i;
    } else if (text.substr(i).starts_with("//")) {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (!isSpace(c)) {
      const StringRef token = text.substr(i, tokenLength(text.substr(i)));
      see(token);
      i += token.size() - 1;
    }
  }
}

/// Reads tokens, and describes those that MLIR's parser would not survive.
class SurvivalCheck {
public:
  /// Describes the fault of the next token; empty if it has none.
  std::string faultOf(StringRef token) {
    std::string fault = bracketFault(token);
    if (longestNumber(token) > mlir::attn::mostDigits)
      fault = "expected numbers of at most " + std::to_string(mlir::attn::mostDigits) + " digits";
    unsigned result = 0; // the parser allocates all results up to the named one
    if (token.size() > 1 && token[0] == '#' && isDigit(token[1]) &&
        (token.drop_front().getAsInteger(10, result) || result > mlir::attn::mostResults))
      fault = "expected results numbered up to " + std::to_string(mlir::attn::mostResults);
    if (token == "affine_map" || token == "affine_set") // recursive, with arithmetic that overflows
      fault = "expected no " + token.str() + ": no operation of attn's has any";
    if (beforeLast == "array" && last == "<" && (token == "index" || token[0] == '!'))
      fault = "expected an array of integers or floats, as in array<i32: 1>";
    beforeLast = last;
    last = token;
    return fault;
  }

private:
  static size_t longestNumber(StringRef token) {
    size_t digits = 0, most = 0;
    for (const char c : token)
      most = std::max(most, digits = isDigit(c) ? digits + 1 : 0);
    return most;
  }

  /// Counts brackets; brackets of an alias count where the alias is used.
  std::string bracketFault(StringRef token) {
    unsigned within = depth;
    if (token == "=" && depth == 0 && isAlias(last)) {
      defined = last;
      depthOfAlias[defined] = 0;
    } else if (isAlias(token) && token != defined) {
      within += depthOfAlias.lookup(token);
    } else if (StringRef("([{<").contains(token[0])) {
      within = ++depth;
    } else if (StringRef(")]}>").contains(token[0]) && depth && !(token == ">" && isArrow(token))) {
      --depth;
    }
    if (!defined.empty()) // until the next definition: operations in between refer to it by its name
      depthOfAlias[defined] = std::max(depthOfAlias[defined], within);
    return within <= mlir::attn::mostBrackets
               ? std::string()
               : "expected at most " + std::to_string(mlir::attn::mostBrackets) +
                     " brackets within each other";
  }
  static bool isAlias(StringRef token) { return token.size() > 1 && (token[0] == '#' || token[0] == '!'); }
  bool isArrow(StringRef token) const { return last.end() == token.begin() && last.ends_with("-"); }

  unsigned depth = 0;
  StringRef last, beforeLast, defined;
  StringMap<unsigned> depthOfAlias;
};

} // namespace

std::unique_ptr<MemoryBuffer> mlir::attn::acceptAmpersand(std::unique_ptr<MemoryBuffer> source) {
  StringRef text = source->getBuffer();
  if (!text.contains('&'))
    return source;
  auto copy = WritableMemoryBuffer::getNewUninitMemBuffer(text.size(), source->getBufferIdentifier());
  llvm::copy(text, copy->getBufferStart());
  forEachToken(text, [&](StringRef token) {
    if (token == "&")
      copy->getBufferStart()[token.begin() - text.begin()] = '*';
  });
  return copy;
}

std::optional<mlir::attn::SourceFault> mlir::attn::findSourceFault(StringRef text) {
  if (text.starts_with("ML\xefR"))
    return SourceFault{1, 1, "expected MLIR as text, got bytecode"};
  std::optional<SourceFault> fault;
  SurvivalCheck check;
  forEachToken(text, [&](StringRef token) {
    if (fault)
      return;
    if (const std::string message = check.faultOf(token); !message.empty()) {
      const StringRef before(text.begin(), token.begin() - text.begin());
      fault = {static_cast<unsigned>(before.count('\n')) + 1,
               static_cast<unsigned>(before.size() - (before.rfind('\n') + 1)) + 1, message};
    }
  });
  return fault;
}

mlir::OwningOpRef<mlir::ModuleOp> mlir::attn::parseSource(SourceMgr &sources, MLIRContext *context) {
  bool hasErrors = false;
  ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
    hasErrors |= diagnostic.getSeverity() == DiagnosticSeverity::Error;
    return failure(); // the diagnostic handler reports it
  });
  // The parser reads a copy, and diagnostics quote the text as it was written.
  const MemoryBufferRef text = *sources.getMemoryBuffer(sources.getMainFileID());
  SourceMgr copies;
  copies.AddNewSourceBuffer(acceptAmpersand(MemoryBuffer::getMemBuffer(text)), SMLoc());
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(copies, context);
  return hasErrors ? OwningOpRef<ModuleOp>() : std::move(module);
}
