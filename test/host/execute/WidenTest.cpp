//===- WidenTest.cpp - e4m3 to f16, by instruction and by arithmetic -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include "attn/Target/PTX.h"
#include "attn_rt/tensor/ElementType.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace attn;

namespace {

// A thread converts a pair of values.
constexpr const char *kernel = R"(
gpu.module @kernels {
  llvm.func @widen(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %from = llvm.getelementptr %in[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xi8>
    %codes = llvm.load %from : !llvm.ptr<1> -> vector<2xi8>
    %halves = nvvm.convert.f8x2.to.f16x2 %codes : vector<2xi8> (f8E4M3FN) -> vector<2xf16>
    %to = llvm.getelementptr %out[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xf16>
    llvm.store %halves, %to : vector<2xf16>, !llvm.ptr<1>
    llvm.return
  }
}
)";

/// Checks all 256 values, each beside another one.
void checkCodes(test::Program &program) {
  test::Launcher launcher;
  std::vector<uint8_t> codes(512);
  for (size_t i = 0; i < codes.size(); i += 2)
    codes[i] = static_cast<uint8_t>(i / 2), codes[i + 1] = static_cast<uint8_t>(37 * i + 11);
  uint8_t *in = launcher.upload("in", codes);
  auto *out = launcher.output<uint16_t>("out", codes.size());
  rt::host::Report report = launcher.run(program.kernel("widen"), {1}, {256}, 0, in, out);
  EXPECT_TRUE(report.clean()) << report.describe();
  const rt::ElementType &type = rt::elementType(rt::DType::F8E4M3FN);
  for (size_t i = 0; i < codes.size(); ++i) {
    const double expected = rt::fromFloatBits(codes[i], type), got = rt::fromF16(out[i]);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(got)) << int(codes[i]);
    else
      EXPECT_EQ(got, expected) << int(codes[i]);
    EXPECT_EQ(std::signbit(got) || std::isnan(got), std::signbit(expected) || std::isnan(expected));
  }
}

TEST(Widen, Instruction) {
  auto program = test::Program::fromText(kernel);
  ASSERT_TRUE(program);
  checkCodes(*program);
}

// The code for chips without the instruction.
TEST(Widen, Arithmetic) {
  auto program = test::Program::fromText(kernel, true, nullptr, [](mlir::gpu::GPUModuleOp module) {
    mlir::attn::expandConversions(module);
    module.walk([](mlir::NVVM::ConvertF8x2ToF16x2Op) { ADD_FAILURE() << "expected no conversion"; });
  });
  ASSERT_TRUE(program);
  checkCodes(*program);
}

TEST(Widen, OtherTypesAreRefused) {
  std::string text = kernel, error;
  text.replace(text.find("f8E4M3FN"), 8, "f8E5M2");
  EXPECT_FALSE(test::Program::fromText(text, true, &error));
  EXPECT_NE(error.find("the host device converts pairs of f8E4M3FN to f16"), std::string::npos) << error;
}

} // namespace
