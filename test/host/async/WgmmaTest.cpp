//===- WgmmaTest.cpp - wgmma against plain loops --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every layout of operands that a descriptor can name: the test lays the matrices
// out in an image of shared memory; the kernel copies it there and multiplies.
//
//===----------------------------------------------------------------------===//
#include "Fixture.h"
#include <gtest/gtest.h>
#include <random>

using namespace attn;
using namespace attn::rt::host;

namespace {

constexpr uint32_t kDepth = 32; // two steps

/// The layout of an operand of `lines` lines (rows of the left operand, columns of the right).
struct Layout {
  uint32_t width; ///< swizzle in bytes; 0: none
  bool transposed;
  uint32_t lines;

  uint32_t leading() const { return width == 0 ? 128 : transposed ? kDepth * width : 0; }
  uint32_t stride() const { return width == 0 ? 512 : 8 * width; }
  /// The offset before the swizzle.
  uint32_t linear(uint32_t line, uint32_t k) const {
    if (width == 0) { // cores of 128 bytes: eight lines by eight k, or eight k by eight lines
      uint32_t within = transposed ? k % 8 * 16 + line % 8 * 2 : line % 8 * 16 + k % 8 * 2;
      return line / 8 * 512 + k / 8 * 128 + within;
    }
    uint32_t perRow = width / 2;
    if (transposed) // panels of `perRow` lines, one k after another
      return line / perRow * kDepth * width + k * width + line % perRow * 2;
    return k / perRow * lines * width + line * width + k % perRow * 2;
  }
  uint32_t at(uint32_t line, uint32_t k) const {
    uint32_t x = linear(line, k);
    if (width == 0)
      return x;
    // The 16-byte chunk within 128 bytes moves with the number of that 128-byte line.
    uint32_t chunks = width / 16;
    return x ^ ((x / 128 % chunks) * 16);
  }
  uint32_t bytes() const {
    uint32_t last = 0;
    for (uint32_t l = 0; l < lines; ++l)
      for (uint32_t k = 0; k < kDepth; ++k)
        last = std::max(last, at(l, k) + 2);
    return (last + 2047) / 2048 * 2048;
  }
  uint64_t descriptor(uint32_t start, uint32_t step) const {
    uint64_t mode = width == 128 ? 1 : width == 64 ? 2 : width == 32 ? 3 : 0;
    start += linear(0, 16 * step);
    return start >> 4 | uint64_t(leading() >> 4) << 16 | uint64_t(stride() >> 4) << 32 | mode << 62;
  }
};

struct Case {
  Layout left, right;
  bool registers, half, accumulate;
};

class Text {
public:
  template <class... Parts> void line(Parts... parts) {
    ((out += asText(parts)), ...);
    out += "\n";
  }
  std::string value(const std::string &operation) {
    std::string name = "%v" + std::to_string(next++);
    line(name, " = ", operation);
    return name;
  }
  std::string constant(int64_t x, const char *type = "i32") {
    return value("llvm.mlir.constant(" + std::to_string(x) + " : " + type + ") : " + type);
  }
  std::string gep(const std::string &base, const std::string &index, const char *element, int space) {
    std::string p = "!llvm.ptr<" + std::to_string(space) + ">";
    return value("llvm.getelementptr " + base + "[" + index + "] : (" + p + ", i32) -> " + p + ", " +
                 element);
  }
  std::string out;

private:
  static std::string asText(const std::string &s) { return s; }
  static std::string asText(const char *s) { return s; }
  unsigned next = 0;
};

std::string join(const std::vector<std::string> &list) {
  std::string text;
  for (const std::string &s : list)
    text += (text.empty() ? "" : ", ") + s;
  return text;
}

std::string kernelText(const Case &c, uint32_t leftBytes, uint32_t imageBytes) {
  uint32_t n = c.right.lines, words = n / 2;
  Text t;
  t.line("gpu.module @m {");
  t.line("llvm.mlir.global external @smem() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x "
         "i8>");
  t.line(
      "llvm.func @k(%image: !llvm.ptr<1>, %a: !llvm.ptr<1>, %c: !llvm.ptr<1>, %d: !llvm.ptr<1>) attributes "
      "{nvvm.kernel} {");
  std::string tid = t.value("nvvm.read.ptx.sreg.tid.x : i32");
  std::string smem = t.value("llvm.mlir.addressof @smem : !llvm.ptr<3>");
  for (uint32_t at = 0; at < imageBytes; at += 2048) {
    std::string o = t.value("llvm.add " + t.value("llvm.mul " + tid + ", " + t.constant(16) + " : i32") +
                            ", " + t.constant(at) + " : i32");
    std::string v = t.value("llvm.load " + t.gep("%image", o, "i8", 1) + " : !llvm.ptr<1> -> vector<4xi32>");
    t.line("llvm.store ", v, ", ", t.gep(smem, o, "i8", 3), " : vector<4xi32>, !llvm.ptr<3>");
  }
  t.line("nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}");
  t.line("nvvm.barrier");
  auto own = [&](const char *base, uint32_t perThread, uint32_t i, const char *type) {
    std::string index =
        t.value("llvm.add " + t.value("llvm.mul " + tid + ", " + t.constant(perThread) + " : i32") + ", " +
                t.constant(i) + " : i32");
    return t.gep(base, index, type, 1);
  };
  std::string start = t.value("llvm.ptrtoint " + smem + " : !llvm.ptr<3> to i64");
  start = t.value("llvm.lshr " + start + ", " + t.constant(4, "i64") + " : i64");
  auto descriptor = [&](const Layout &l, uint32_t offset, uint32_t step) {
    return t.value("llvm.add " + start + ", " +
                   t.constant(static_cast<int64_t>(l.descriptor(offset, step)), "i64") + " : i64");
  };
  std::vector<std::string> acc, lhs;
  for (uint32_t i = 0; c.accumulate && i < words; ++i)
    acc.push_back(t.value("llvm.load " + own("%c", words, i, "f32") + " : !llvm.ptr<1> -> f32"));
  for (uint32_t i = 0; c.registers && i < 8; ++i)
    lhs.push_back(t.value("llvm.load " + own("%a", 8, i, "i32") + " : !llvm.ptr<1> -> i32"));
  t.line("nvvm.wgmma.fence.aligned");
  std::vector<std::string> types(words, "f32");
  for (uint32_t step = 0; step < kDepth / 16; ++step) {
    std::string operands = c.registers ? " lhs " + join({lhs.begin() + 4 * step, lhs.begin() + 4 * step + 4})
                                       : " lhs_descriptor " + descriptor(c.left, 0, step);
    operands += " rhs_descriptor " + descriptor(c.right, leftBytes, step);
    if (!acc.empty())
      operands += " acc " + join(acc);
    std::string name = "%w" + std::to_string(step);
    t.line(name, ":", std::to_string(words), " = tile.wgmma ", std::to_string(n), c.half ? " f16" : " bf16",
           c.right.transposed ? " transposed" : "", operands, " : ", join(types));
    acc.clear();
    for (uint32_t i = 0; i < words; ++i)
      acc.push_back(name + "#" + std::to_string(i));
  }
  t.line("nvvm.wgmma.commit.group.sync.aligned");
  t.line("%done:", std::to_string(words), " = tile.wgmma_wait 0(", join(acc), ") : ", join(types));
  for (uint32_t i = 0; i < words; ++i)
    t.line("llvm.store %done#", std::to_string(i), ", ", own("%d", words, i, "f32"), " : f32, !llvm.ptr<1>");
  t.line("llvm.return\n}\n}");
  return t.out;
}

float widen(uint16_t h, bool half) {
  if (half) {
    _Float16 f;
    std::memcpy(&f, &h, 2);
    return float(f);
  }
  uint32_t u = uint32_t(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

void runCase(const Case &c, bool check, std::mt19937 &random) {
  uint32_t n = c.right.lines, words = n / 2;
  uint32_t leftBytes = c.registers ? 0 : c.left.bytes(), imageBytes = leftBytes + c.right.bytes();
  // Bits without the top exponent bits: finite, and some f16 are subnormal.
  uint16_t mask = c.half ? 0xbfff : 0xbfff;
  auto draw = [&](size_t count) {
    std::vector<uint16_t> v(count);
    for (uint16_t &x : v)
      x = static_cast<uint16_t>(random()) & mask;
    return v;
  };
  std::vector<uint16_t> A = draw(64 * kDepth), B = draw(size_t(n) * kDepth);
  std::vector<float> C(64 * size_t(n), 0.0f);
  if (c.accumulate)
    for (float &x : C)
      x = std::uniform_real_distribution<float>(-4, 4)(random);
  std::vector<uint8_t> image(imageBytes);
  for (uint32_t k = 0; k < kDepth; ++k) {
    for (uint32_t row = 0; row < 64 && !c.registers; ++row)
      std::memcpy(&image[c.left.at(row, k)], &A[row * kDepth + k], 2);
    for (uint32_t column = 0; column < n; ++column)
      std::memcpy(&image[leftBytes + c.right.at(column, k)], &B[column * kDepth + k], 2);
  }
  std::vector<uint32_t> a(128 * 8);
  std::vector<float> acc(128 * size_t(words));
  auto place = [&](uint32_t thread, uint32_t i) { // for accumulator i
    uint32_t row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i >> 1 & 1);
    return size_t(row) * n + 8 * (i >> 2) + 2 * (thread % 4) + (i & 1);
  };
  for (uint32_t thread = 0; thread < 128; ++thread) {
    for (uint32_t r = 0; r < 8; ++r) {
      uint32_t row = thread / 32 * 16 + thread % 32 / 4 + 8 * (r & 1);
      uint32_t k = 16 * (r / 4) + 2 * (thread % 4) + 8 * (r >> 1 & 1);
      a[thread * 8 + r] = A[row * kDepth + k] | uint32_t(A[row * kDepth + k + 1]) << 16;
    }
    for (uint32_t i = 0; i < words; ++i)
      acc[thread * size_t(words) + i] = C[place(thread, i)];
  }
  std::string error;
  auto program = test::Program::fromText(kernelText(c, leftBytes, imageBytes), check, &error);
  ASSERT_TRUE(program) << error;
  std::vector<float> expected(C);
  for (uint32_t row = 0; row < 64; ++row)
    for (uint32_t column = 0; column < n; ++column)
      for (uint32_t k = 0; k < kDepth; ++k)
        expected[row * size_t(n) + column] +=
            widen(A[row * kDepth + k], c.half) * widen(B[column * kDepth + k], c.half);
  for (AsyncEffects effects : {AsyncEffects::Eager, AsyncEffects::Delayed}) {
    test::Launcher launcher;
    launcher.options.asyncEffects = effects;
    float *d = launcher.output<float>("d", 128 * size_t(words));
    Report report =
        launcher.run(program->kernel("k"), {1}, {128}, imageBytes, launcher.upload("image", image),
                     launcher.upload("a", a), launcher.upload("c", acc), d);
    ASSERT_TRUE(report.clean()) << report.describe();
    EXPECT_EQ(report.counters.flops, 2ull * 64 * n * kDepth);
    if (check) {
      // Every swizzle spreads the eight rows of a core matrix over all banks.
      uint64_t needed = (n + (c.registers ? 0 : 64)) / 8 * (kDepth / 8);
      EXPECT_EQ(report.counters.operandWavefrontsNeeded, needed);
      EXPECT_EQ(report.counters.operandWavefronts, needed);
    }
    for (uint32_t thread = 0; thread < 128; ++thread)
      for (uint32_t i = 0; i < words; ++i)
        ASSERT_EQ(d[thread * size_t(words) + i], expected[place(thread, i)])
            << "thread " << thread << " word " << i;
  }
}

TEST(Wgmma, everyLayoutOfTheRightOperand) {
  std::mt19937 random{11};
  for (uint32_t width : {128u, 64u, 32u, 0u})
    for (bool transposed : {false, true})
      for (uint32_t n : {8u, 24u, 64u, 80u, 256u})
        for (bool half : {false, true}) {
          SCOPED_TRACE(testing::Message() << "width " << width << " transposed " << transposed << " n " << n
                                          << " half " << half);
          runCase({{128, false, 64}, {width, transposed, n}, false, half, n != 64}, true, random);
        }
}

TEST(Wgmma, everyLayoutOfTheLeftOperand) {
  std::mt19937 random{12};
  for (uint32_t width : {128u, 64u, 32u, 0u})
    for (bool half : {false, true})
      runCase({{width, false, 64}, {64, true, 96}, false, half, true}, true, random);
}

TEST(Wgmma, leftOperandInRegisters) {
  std::mt19937 random{13};
  for (bool half : {false, true})
    for (bool transposed : {false, true})
      for (bool check : {false, true})
        for (uint32_t n : {8u, 128u})
          runCase({{128, false, 64}, {128, transposed, n}, true, half, true}, check, random);
}

} // namespace
