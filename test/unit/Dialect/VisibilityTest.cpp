//===- VisibilityTest.cpp - Simplification against the definition ---------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/IR/Source.h"

#include "mlir/IR/MLIRContext.h"

#include <gtest/gtest.h>

#include <random>

using namespace mlir;
using namespace mlir::attn;

namespace {

/// The definition, with the ends taken from a list in order of appearance.
bool sees(VisibilityAttr visibility, int q, int k) {
  switch (visibility.getKind()) {
  case VisibilityKind::All:
    return true;
  case VisibilityKind::Causal:
    return k <= q;
  case VisibilityKind::Window:
  case VisibilityKind::Recent:
    return 0 <= q - k && q - k < visibility.getSize();
  case VisibilityKind::Sink:
    return k < visibility.getSize();
  case VisibilityKind::Or:
    return llvm::any_of(visibility.getOperands(), [&](VisibilityAttr part) { return sees(part, q, k); });
  case VisibilityKind::And:
    return llvm::all_of(visibility.getOperands(), [&](VisibilityAttr part) { return sees(part, q, k); });
  }
  return false;
}

int terms(VisibilityAttr visibility) {
  int count = 1;
  for (VisibilityAttr part : visibility.getOperands())
    count += terms(part);
  return count;
}

VisibilityAttr random(MLIRContext *context, std::mt19937 &generator, int depth) {
  auto kind = VisibilityKind(generator() % (depth ? 7 : 5));
  if (kind == VisibilityKind::Or || kind == VisibilityKind::And) {
    SmallVector<VisibilityAttr> parts;
    for (unsigned i = 0, e = 2 + generator() % 2; i != e; ++i)
      parts.push_back(random(context, generator, depth - 1));
    return VisibilityAttr::get(kind, parts);
  }
  return VisibilityAttr::get(context, kind, VisibilityAttr::isSized(kind) ? int64_t(generator() % 4) : 0);
}

TEST(VisibilityTest, SimplifyKeepsTheSet) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  std::mt19937 generator(1);
  for (int i = 0; i < 3000; ++i) {
    VisibilityAttr visibility = random(&context, generator, 3), simple = visibility.simplify();
    std::string text;
    llvm::raw_string_ostream(text) << visibility << " -> " << simple;
    EXPECT_LE(terms(simple), terms(visibility)) << text;
    EXPECT_EQ(simple, simple.simplify()) << text;
    bool any = false;
    for (int q = 0; q < 8; ++q)
      for (int k = 0; k < 8; ++k) {
        ASSERT_EQ(sees(visibility, q, k), sees(simple, q, k)) << text << " at q = " << q << ", k = " << k;
        any |= sees(visibility, q, k);
      }
    if (simple.isStaticallyEmpty())
      EXPECT_FALSE(any) << text;
  }
}

TEST(VisibilityTest, EndsInOrderOfAppearance) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  auto window = VisibilityAttr::get(&context, VisibilityKind::Window, 7);
  auto sink = VisibilityAttr::get(&context, VisibilityKind::Sink, 3);
  auto both = VisibilityAttr::get(VisibilityKind::Or, {sink, window});
  SmallVector<int64_t> ends;
  VisibilityAttr::get(VisibilityKind::And, {window, both}).collectEnds(ends);
  EXPECT_EQ(ends, (SmallVector<int64_t>{7, 3, 7}));
}

TEST(SourceTest, AmpersandOutsideStringsAndComments) {
  auto replaced = [](StringRef text) {
    return acceptAmpersand(llvm::MemoryBuffer::getMemBufferCopy(text, "name"))->getBuffer().str();
  };
  EXPECT_EQ(replaced("a & b // c & \"d\ne & \"f & \\\" & g\" & // & \" &\n&"),
            "a * b // c & \"d\ne * \"f & \\\" & g\" * // & \" &\n*");
  EXPECT_EQ(replaced("\"open & \n & / & \\"), "\"open & \n * / * \\");
  EXPECT_EQ(replaced("\"\\"), "\"\\");
  EXPECT_EQ(replaced(""), "");
}

TEST(SourceTest, WhatTheParserWouldNotSurvive) {
  auto faultOf = [](const std::string &text) {
    auto fault = findSourceFault(text);
    return fault ? std::to_string(fault->line) + ":" + std::to_string(fault->column) + ": " + fault->message
                 : "none";
  };
  const std::string deep(mostBrackets, '(');
  EXPECT_EQ(faultOf(deep), "none");
  EXPECT_EQ(faultOf("\n " + deep + "["), "2:258: expected at most 256 brackets within each other");
  EXPECT_EQ(faultOf("\"" + deep + deep + "\" // " + deep + deep), "none");
  EXPECT_EQ(faultOf(deep + ")-><<"), "1:261: expected at most 256 brackets within each other");
  const std::string digits(mostDigits, '1');
  EXPECT_EQ(faultOf("0." + digits + " " + digits), "none");
  EXPECT_EQ(faultOf(digits + "1"), "1:1001: expected numbers of at most 1000 digits");
}

TEST(SourceTest, WhatTheParserComplainsOfIsNotRead) {
  const std::string type = "!kv = !attn.kv<packed, heads = 2, dim = 64, key = f16, value = f16>\n";
  for (const std::string &rest :
       {std::string("\"open"), std::string("\"\\q\""), std::string(".module"), std::string("@ f")}) {
    MLIRContext context;
    context.loadDialect<AttnDialect>();
    int errors = 0;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &) { return success(++errors); });
    llvm::SourceMgr sources;
    sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(type + rest + "\n"), llvm::SMLoc());
    EXPECT_FALSE(parseSource(sources, &context)) << rest;
    EXPECT_GT(errors, 0) << rest;
  }
}

} // namespace
