//===- WidenTest.cpp - e4m3 to f16 and back, by instruction and arithmetic ===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include "attn/Target/PTX.h"
#include "attn_rt/tensor/ElementType.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

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

// A thread converts a pair of numbers.
constexpr const char *narrowing = R"(
gpu.module @kernels {
  llvm.func @narrow(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %bid = nvvm.read.ptx.sreg.ctaid.x : i32
    %threads = llvm.mlir.constant(256 : i32) : i32
    %first = llvm.mul %bid, %threads : i32
    %i = llvm.add %first, %tid : i32
    %from = llvm.getelementptr %in[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<2xf32>
    %pair = llvm.load %from : !llvm.ptr<1> -> vector<2xf32>
    %zero = llvm.mlir.constant(0 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %low = llvm.extractelement %pair[%zero : i32] : vector<2xf32>
    %high = llvm.extractelement %pair[%one : i32] : vector<2xf32>
    %codes = nvvm.convert.f32x2.to.f8x2 %high, %low {rnd = #nvvm.fp_rnd_mode<rn>, sat = #nvvm.sat_mode<satfinite>} : i16 (f8E4M3FN)
    %to = llvm.getelementptr %out[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i16
    llvm.store %codes, %to : i16, !llvm.ptr<1>
    llvm.return
  }
}
)";

/// Checks all numbers of e4m3, those at and beside the middle of two, and numbers that are not finite.
void checkNumbers(test::Program &program) {
  const rt::ElementType &type = rt::elementType(rt::DType::F8E4M3FN);
  std::vector<float> numbers{0, 500, 1e30F, 1e-30F, std::numeric_limits<float>::infinity(), std::nanf("")};
  for (uint16_t code = 0; code < 0x7e; ++code) {
    const double below = rt::fromFloatBits(code, type), above = rt::fromFloatBits(code + 1, type);
    const auto border = static_cast<float>((below + above) / 2);
    for (float number :
         {static_cast<float>(below), border, std::nextafter(border, 0.0F), std::nextafter(border, 448.0F)})
      numbers.push_back(number);
  }
  for (size_t i = 0, count = numbers.size(); i < count; ++i)
    numbers.push_back(-numbers[i]);
  numbers.resize((numbers.size() + 511) / 512 * 512, 1);
  test::Launcher launcher;
  float *in = launcher.upload("in", numbers);
  auto *out = launcher.output<uint8_t>("out", numbers.size());
  const auto blocks = static_cast<uint32_t>(numbers.size() / 512);
  rt::host::Report report = launcher.run(program.kernel("narrow"), {blocks}, {256}, 0, in, out);
  EXPECT_TRUE(report.clean()) << report.describe();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int wanted = std::isnan(numbers[i]) ? 0x7f : rt::toFloatBits(numbers[i], type);
    EXPECT_EQ(int(out[i]), wanted) << numbers[i];
  }
}

TEST(Narrow, Instruction) {
  auto program = test::Program::fromText(narrowing);
  ASSERT_TRUE(program);
  checkNumbers(*program);
}

TEST(Narrow, Arithmetic) {
  auto program = test::Program::fromText(narrowing, true, nullptr, [](mlir::gpu::GPUModuleOp module) {
    mlir::attn::expandConversions(module);
    module.walk([](mlir::NVVM::ConvertF32x2ToF8x2Op) { ADD_FAILURE() << "expected no conversion"; });
  });
  ASSERT_TRUE(program);
  checkNumbers(*program);
}

TEST(Narrow, OtherTypesAreRefused) {
  std::string text = narrowing, error;
  text.replace(text.find("f8E4M3FN"), 8, "f8E5M2");
  EXPECT_FALSE(test::Program::fromText(text, true, &error));
  EXPECT_NE(error.find("the host device converts pairs of f32 to f8E4M3FN"), std::string::npos) << error;
}

} // namespace
