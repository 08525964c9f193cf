//===- ExecutorTest.cpp - Numerics of the host device ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include <gtest/gtest.h>

using namespace attn;

TEST(Compile, namesTheOperationItCannotExecute) {
  std::string error;
  auto program = test::Program::fromText(R"(
gpu.module @m {
  llvm.func @k() attributes {nvvm.kernel} {
    nvvm.cluster.arrive
    llvm.return
  }
})",
                                         true, &error);
  EXPECT_FALSE(program);
  EXPECT_NE(error.find("kernel.mlir:4:5: error: the host device cannot execute 'nvvm.cluster.arrive'"),
            std::string::npos)
      << error;
}

TEST(Compile, dispatchesMmaOnTypesAndShape) {
  std::string error;
  auto program = test::Program::fromText(R"(
gpu.module @m {
  llvm.func @k(%a: i32, %c: i32) attributes {nvvm.kernel} {
    %d = nvvm.mma.sync A[%a, %a, %a, %a] B[%a, %a] C[%c, %c, %c, %c]
      {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, intOverflowBehavior = #nvvm.mma_int_overflow<satfinite>,
       multiplicandAPtxType = #nvvm.mma_type<s8>, multiplicandBPtxType = #nvvm.mma_type<s8>,
       shape = #nvvm.shape<m = 16, n = 8, k = 32>} : (i32, i32, i32) -> !llvm.struct<(i32, i32, i32, i32)>
    llvm.return
  }
})",
                                         true, &error);
  EXPECT_FALSE(program);
  EXPECT_NE(error.find("executes mma.sync m16n8k16 of f16 or bf16 with f32 accumulators"), std::string::npos)
      << error;
}
