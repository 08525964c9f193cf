//===- CodeObjectTest.cpp - Native code written, read and loaded ----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Fixture.h"
#include "attn/Host/Host.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include <gtest/gtest.h>
#include <random>

using namespace attn;
using namespace attn::rt::host;

namespace {

CodeObject objectOf(test::Program &program, bool check) {
  mlir::Operation *gpuModule = nullptr;
  program.module->walk([&](mlir::gpu::GPUModuleOp op) { gpuModule = op; });
  auto object = attn::host::compileForHost(gpuModule, {check, ""});
  EXPECT_TRUE(static_cast<bool>(object));
  return std::move(*object);
}

std::vector<float> runChain(const HostKernel &kernel) {
  std::vector<uint16_t> tile(256);
  for (size_t i = 0; i < tile.size(); ++i)
    tile[i] = static_cast<uint16_t>(0x3f80 + i % 64);
  test::Launcher launcher;
  auto *in = launcher.upload("in", tile);
  auto *out = launcher.output<float>("out", 128), *sums = launcher.output<float>("sums", 32);
  Report report = launcher.run(kernel, {1}, {32}, 512, in, out, sums);
  EXPECT_TRUE(report.clean()) << report.describe();
  return {out, out + 128};
}

TEST(CodeObject, RunsWhenItIsReadBack) {
  for (bool check : {true, false}) {
    auto program = test::Program::fromFile("runs.mlir", check);
    const CodeObject object = objectOf(*program, check);
    EXPECT_EQ(object.cpu, thisCpu());
    const std::vector<uint8_t> bytes = writeCodeObject(object);
    auto read = readCodeObject(bytes, "test");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->checked, check);
    EXPECT_EQ(writeCodeObject(*read), bytes);
    auto loaded = LoadedCode::load(*read, "test");
    ASSERT_TRUE(loaded) << loaded.error().message;
    const HostKernel &kernel = (*loaded)->kernels()[0];
    const HostKernel &original = program->kernel(kernel.name);
    ASSERT_EQ(kernel.ops.size(), original.ops.size());
    for (size_t op = 0; op < kernel.ops.size(); ++op)
      if (check || kernel.ops[op].access == Access::Matrix)
        EXPECT_EQ(kernel.ops[op].text, original.ops[op].text);
      else if (kernel.ops[op].access == Access::Load)
        EXPECT_EQ(kernel.ops[op].text, "");
    EXPECT_EQ(kernel.parameterBytes, original.parameterBytes);
    EXPECT_EQ(runChain(kernel), runChain(original));
  }
}

TEST(CodeObject, CodeForAnotherMachineIsRefused) {
  auto program = test::Program::fromFile("runs.mlir", false);
  CodeObject object = objectOf(*program, false);
  object.cpu = "x86-64-v9";
  auto loaded = LoadedCode::load(object, "artifact 'x'");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message, "artifact 'x': host code: made for x86-64-v9, and this machine is " +
                                        std::string(thisCpu()) + ": compile it again");
  object.cpu = cpuModels[0]; // the oldest model runs everywhere
  EXPECT_TRUE(LoadedCode::load(object, "x"));
  object.elf[18] = 183; // e_machine: AArch64
  loaded = LoadedCode::load(object, "x");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message, "x: host code: not a relocatable object for x86-64");
}

TEST(CodeObject, AnotherVersionIsRefused) {
  auto program = test::Program::fromFile("runs.mlir", false);
  std::vector<uint8_t> bytes = writeCodeObject(objectOf(*program, false));
  bytes[8] += 1;
  auto read = readCodeObject(bytes, "x");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "x: host code: expected version " + std::to_string(codeVersion) + ", got " +
                                      std::to_string(codeVersion + 1) + ": compile it again");
  read = readCodeObject({}, "x");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "x: host code: not made by this compiler");
}

TEST(CodeObject, NobodyHasTheFunction) {
  auto program = test::Program::fromFile("runs.mlir", false);
  CodeObject object = objectOf(*program, false);
  const std::string_view wanted = "attn_host_program";
  auto at = std::search(object.elf.begin(), object.elf.end(), wanted.begin(), wanted.end());
  ASSERT_NE(at, object.elf.end());
  *at = 'b';
  auto loaded = LoadedCode::load(object, "x");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message, "x: host code: it calls 'bttn_host_program', which does not exist");
}

// Reading and loading never access memory outside the given bytes. Loaded code is not run.
TEST(CodeObject, DamageNeverLeavesItsBytes) {
  auto program = test::Program::fromFile("runs.mlir", false);
  const CodeObject object = objectOf(*program, false);
  const std::vector<uint8_t> bytes = writeCodeObject(object);
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 50)
    EXPECT_FALSE(readCodeObject(std::span(bytes).first(size), "x")) << size;
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> damaged = bytes;
    for (int i = 0; i < 1 + round % 4; ++i)
      damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
    auto read = readCodeObject(damaged, "x");
    refused += !read || !LoadedCode::load(*read, "x");
    CodeObject other = object;
    for (int i = 0; i < 1 + round % 4; ++i) // the headers of an object are at its end
      other.elf[other.elf.size() - 1 - random() % 1500] = static_cast<uint8_t>(random());
    refused += !LoadedCode::load(other, "x");
  }
  EXPECT_GT(refused, 1000);
}

} // namespace
