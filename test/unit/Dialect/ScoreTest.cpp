//===- ScoreTest.cpp - Approximate functions are declared -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Score.h"
#include "attn/Dialect/Attn/IR/Signature.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace mlir::attn;

TEST(ScoreTest, ApproximateFunctions) {
  MLIRContext context;
  context.loadDialect<AttnDialect, func::FuncDialect>();
  auto uses = [&](StringRef flags) {
    auto module = parseSourceString<ModuleOp>(R"(
      !query = tensor<?x1x32xf16>
      !kv = !attn.kv<dense, heads = 1, dim = 32, key = f16, value = f16>
      func.func @f(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !query {
        %o = attn.attend %q over (%kv see all) score {
          ^bb0(%s: f32, %head: i32, %q_pos: i32, %k_pos: i32):
            %e = math.exp %s fastmath<fast> : f32
            %t = math.tanh %e )" + flags.str() + R"( : f32
            attn.yield %t : f32
          } : !query, !kv -> !query
        return %o : !query
      })",
                                              &context);
    return usesApproximateFunctions(findAttends(*module->getOps<func::FuncOp>().begin())->last.getScore());
  };
  EXPECT_FALSE(uses(""));
  EXPECT_FALSE(uses("fastmath<nnan>"));
  EXPECT_TRUE(uses("fastmath<afn>"));
  EXPECT_TRUE(uses("fastmath<fast>"));
}
