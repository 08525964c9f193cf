//===- ExecutorTest.cpp - Numerics of the host device ---------------------===//
#include "Fixture.h"
#include <gtest/gtest.h>

using namespace attn;

TEST(Compile, namesTheOperationItCannotExecute) {
  std::string error;
  auto program = test::Program::fromText(R"(
gpu.module @m {
  llvm.func @k(%p: !llvm.ptr<3>, %c: i32) attributes {nvvm.kernel} {
    nvvm.mbarrier.init %p, %c : !llvm.ptr<3>, i32
    llvm.return
  }
})",
                                         true, &error);
  EXPECT_FALSE(program);
  EXPECT_NE(error.find("kernel.mlir:4:5: error: the host device cannot execute 'nvvm.mbarrier.init"),
            std::string::npos)
      << error;
}
