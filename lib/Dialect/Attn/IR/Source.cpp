//===- Source.cpp - Text as people write it -------------------------------===//
#include "attn/Dialect/Attn/IR/Source.h"

#include "llvm/ADT/StringRef.h"

using namespace llvm;

std::unique_ptr<MemoryBuffer> mlir::attn::acceptAmpersand(std::unique_ptr<MemoryBuffer> source) {
  StringRef text = source->getBuffer();
  // Bytecode is binary; it starts with the letters ML and the byte EF.
  if (!text.contains('&') || text.starts_with("ML\xefR"))
    return source;
  auto copy = WritableMemoryBuffer::getNewUninitMemBuffer(text.size(), source->getBufferIdentifier());
  enum { Code, String, Comment } state = Code;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    copy->getBufferStart()[i] = state == Code && c == '&' ? '*' : c;
    if (c == '\n')
      state = Code;
    else if (state == String && c == '\\' && i + 1 < text.size() && text[i + 1] != '\n')
      copy->getBufferStart()[i + 1] = text[i + 1], ++i;
    else if (c == '"' && state != Comment)
      state = state == String ? Code : String;
    else if (state == Code && text.substr(i).starts_with("//"))
      state = Comment;
  }
  return copy;
}
