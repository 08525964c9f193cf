//===- SourceTest.cpp - Source text before parsing ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Source.h"
#include "attn/Dialect/Attn/IR/Attn.h"

#include "mlir/IR/Diagnostics.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::attn;

namespace {

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

std::string faultOf(const std::string &text) {
  auto fault = findSourceFault(text);
  return fault ? std::to_string(fault->line) + ":" + std::to_string(fault->column) + ": " + fault->message
               : "none";
}

TEST(SourceTest, WhatTheParserWouldNotSurvive) {
  const std::string deep(mostBrackets, '(');
  EXPECT_EQ(faultOf(deep), "none");
  EXPECT_EQ(faultOf("\n " + deep + "["), "2:258: expected at most 256 brackets within each other");
  EXPECT_EQ(faultOf("\"" + deep + deep + "\" // " + deep + deep), "none");
  EXPECT_EQ(faultOf(deep + ")-><<"), "1:261: expected at most 256 brackets within each other");
  const std::string digits(mostDigits, '1');
  EXPECT_EQ(faultOf("0." + digits + " " + digits), "none");
  EXPECT_EQ(faultOf(digits + "1"), "1:1: expected numbers of at most 1000 digits");
}

TEST(SourceTest, ArraysOfIndices) {
  const std::string fault = "expected an array of integers or floats, as in array<i32: 1>";
  EXPECT_EQ(faultOf("{x = array<index: 1>}"), "1:12: " + fault);
  EXPECT_EQ(faultOf("{x = array // of\n <\n index>}"), "3:2: " + fault);
  EXPECT_EQ(faultOf("!i = index\n{x = array<!i: 1>}"), "2:12: " + fault);
  EXPECT_EQ(faultOf("{x = array<i32: 1>, y = \"array<index: 1>\", index = array<f32>} // array<index>"),
            "none");
}

TEST(SourceTest, AffineMaps) {
  EXPECT_EQ(faultOf("#m = affine_map<(d0) -> (d0)>"),
            "1:6: expected no affine_map: no operation of attn's has any");
  EXPECT_EQ(faultOf("x = affine_set<(d0) : (d0 == 0)>"),
            "1:5: expected no affine_set: no operation of attn's has any");
  EXPECT_EQ(faultOf("@affine_map \"affine_map\" %affine_map x.affine_map"), "none");
}

TEST(SourceTest, NumbersOfResults) {
  EXPECT_EQ(faultOf("\"x\"(%a#65535, %a# 99999, #x99999, %99999)"), "none");
  EXPECT_EQ(faultOf("\"x\"(%a#65536)"), "1:7: expected results numbered up to 65535");
  EXPECT_EQ(faultOf("\"x\"(%a #99999999999999999999)"), "1:8: expected results numbered up to 65535");
}

TEST(SourceTest, BracketsInAliases) {
  std::string text = "!t0 = tuple<i1>\n";
  for (unsigned i = 1; i < mostBrackets; ++i)
    text += "!t" + std::to_string(i) + " = tuple<!t" + std::to_string(i - 1) + ">\n";
  EXPECT_EQ(faultOf(text + "\"x\"() : () -> !t255"), "none");
  EXPECT_EQ(faultOf(text + "\"x\"() : () -> ((!t254))"),
            "257:17: expected at most 256 brackets within each other");
  EXPECT_EQ(faultOf(text + "!u = tuple<!t255>"), "257:12: expected at most 256 brackets within each other");
  // Operations are not part of the alias before them.
  EXPECT_EQ(faultOf("!q = i1\n" + std::string(200, '{') + "!q" + std::string(200, '}') + "!q !q"), "none");
}

TEST(SourceTest, Bytecode) {
  EXPECT_EQ(faultOf("ML\xefR\x0dMLIR"), "1:1: expected MLIR as text, got bytecode");
}

TEST(SourceTest, ErrorsQuoteWhatWasWritten) {
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  std::string said;
  llvm::raw_string_ostream stream(said);
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler handler(sources, &context, stream);
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy("module { x.y causal & z }\n", "name"),
                             llvm::SMLoc());
  EXPECT_FALSE(parseSource(sources, &context));
  EXPECT_NE(said.find("module { x.y causal & z }"), std::string::npos) << said;
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
