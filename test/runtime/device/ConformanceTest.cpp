//===- ConformanceTest.cpp - What every device must do ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One suite for all devices. `cuda` needs a driver and is skipped without one;
// `fake-cuda` runs the code of the cuda device against a fake driver, which has
// memory and modules but runs no kernels.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/host/Abi.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

using namespace attn::rt;

namespace {

// y[i] = a * x[i] + y[i] for i < n, in both languages.
void axpyLane(host::LaneAbi *lane, void **args) {
  const float *x = *static_cast<float **>(args[0]);
  float *y = *static_cast<float **>(args[1]);
  const float a = *static_cast<float *>(args[2]);
  const int32_t n = *static_cast<int32_t *>(args[3]);
  const auto i = static_cast<int32_t>(lane->special[host::CtaidX] * lane->special[host::NtidX] +
                                      lane->special[host::TidX]);
  if (i < n)
    y[i] = std::fma(a, x[i], y[i]);
}

constexpr std::string_view axpyPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 px, .param .u64 py, .param .f32 pa, .param .u32 pn)
{
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .b64 %x, %y, %o;
  .reg .f32 %a, %u, %v;
  ld.param.u64 %x, [px];
  ld.param.u64 %y, [py];
  ld.param.f32 %a, [pa];
  ld.param.u32 %r0, [pn];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  setp.ge.s32 %p, %r4, %r0;
  @%p bra done;
  mul.wide.s32 %o, %r4, 4;
  add.s64 %x, %x, %o;
  add.s64 %y, %y, %o;
  ld.global.f32 %u, [%x];
  ld.global.f32 %v, [%y];
  fma.rn.f32 %v, %a, %u, %v;
  st.global.f32 [%y], %v;
done:
  ret;
}
)";

class Conformance : public ::testing::TestWithParam<std::string> {
protected:
  std::unique_ptr<Device> device;
  host::HostKernel hostKernel;

  void SetUp() override {
    hostKernel.name = "axpy";
    hostKernel.entry = axpyLane;
    hostKernel.parameterBytes = {8, 8, 4, 4};
    if (GetParam() == "host") {
      device = makeHostDevice();
      return;
    }
    CudaOptions options;
    if (GetParam() == "fake-cuda")
      options.library = ATTN_FAKE_CUDA;
    Result<std::unique_ptr<Device>> opened = openCudaDevice(options);
    if (!opened)
      GTEST_SKIP() << opened.error().message;
    device = std::move(*opened);
  }

  ModuleSource source() const { return {"axpy.ptx", axpyPtx, {}, {&hostKernel, 1}}; }
  bool runsKernels() const { return GetParam() != "fake-cuda"; }
  DeviceAddress allocate(size_t bytes, const char *label = "x") {
    Result<DeviceAddress> address = device->allocate(bytes, label);
    EXPECT_TRUE(address) << address.error().message;
    return *address;
  }
};

TEST_P(Conformance, Properties) {
  const DeviceProperties &p = device->properties();
  EXPECT_FALSE(p.name.empty());
  EXPECT_GT(p.multiprocessors, 0);
  EXPECT_GE(p.sharedBytesPerBlock, 48 * 1024);
  EXPECT_GE(p.threadsPerBlock, 1024);
  EXPECT_GT(p.memoryBytes, 0);
  EXPECT_EQ(device->kind(), GetParam() == "host" ? "host" : "cuda");
}

TEST_P(Conformance, CopiesGoThereAndBack) {
  std::vector<uint8_t> data(1000), back(1000);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<uint8_t>(i * 13);
  const DeviceAddress address = allocate(data.size());
  EXPECT_EQ(address % 256, 0u);
  ASSERT_TRUE(device->copyIn(address, data.data(), data.size()));
  ASSERT_TRUE(device->copyOut(back.data(), address, back.size()));
  EXPECT_EQ(back, data);
  // Copies into and out of the middle.
  ASSERT_TRUE(device->copyIn(address + 500, data.data(), 7));
  ASSERT_TRUE(device->copyOut(back.data(), address + 500, 8));
  EXPECT_EQ(std::memcmp(back.data(), data.data(), 7), 0);
  EXPECT_EQ(back[7], data[507]);
  EXPECT_TRUE(device->free(address));
}

TEST_P(Conformance, CopiesWithin) {
  const DeviceAddress from = allocate(64), to = allocate(64);
  std::vector<uint8_t> back(64);
  ASSERT_TRUE(device->fill(from, 7, 64));
  ASSERT_TRUE(device->fill(to, 1, 64));
  ASSERT_TRUE(device->copy(to + 8, from + 16, 32));
  ASSERT_TRUE(device->copy(to, from, 0));
  ASSERT_TRUE(device->copyOut(back.data(), to, 64));
  EXPECT_EQ(back[7], 1);
  EXPECT_EQ(back[8], 7);
  EXPECT_EQ(back[39], 7);
  EXPECT_EQ(back[40], 1);
  EXPECT_TRUE(device->free(from));
  EXPECT_TRUE(device->free(to));
}

TEST_P(Conformance, FillAndPoison) {
  const DeviceAddress address = allocate(64);
  std::vector<uint8_t> back(64);
  ASSERT_TRUE(device->fill(address, 0, 64));
  ASSERT_TRUE(device->fill(address + 3, 0x5a, 2));
  ASSERT_TRUE(device->copyOut(back.data(), address, 64));
  EXPECT_EQ(back[2], 0);
  EXPECT_EQ(back[3], 0x5a);
  EXPECT_EQ(back[4], 0x5a);
  EXPECT_EQ(back[5], 0);
  ASSERT_TRUE(device->poison(address, 64));
  float value = 0;
  ASSERT_TRUE(device->copyOut(&value, address, sizeof(value)));
  EXPECT_TRUE(std::isnan(value));
  EXPECT_TRUE(device->free(address));
}

TEST_P(Conformance, EmptyAllocations) {
  const DeviceAddress address = allocate(0);
  EXPECT_NE(address, 0u);
  EXPECT_TRUE(device->copyIn(address, nullptr, 0));
  EXPECT_TRUE(device->free(address));
}

TEST_P(Conformance, BuffersFreeThemselves) {
  DeviceAddress old = 0;
  {
    Result<Buffer> made = Buffer::create(*device, 256, "b");
    ASSERT_TRUE(made);
    Buffer buffer = std::move(*made);
    old = buffer.address();
    EXPECT_EQ(buffer.bytes(), 256u);
    Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.address(), old);
    EXPECT_FALSE(buffer);
  }
  EXPECT_FALSE(device->free(old));
}

TEST_P(Conformance, OutOfMemorySaysWhatWasAsked) {
  Result<DeviceAddress> address = device->allocate(size_t{1} << 60, "huge");
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().kind, ErrorKind::Memory);
  EXPECT_NE(
      address.error().message.find("out of memory allocating 'huge': asked for 1152921504606846976 bytes"),
      std::string::npos)
      << address.error().message;
  // The failure breaks nothing.
  EXPECT_TRUE(device->free(allocate(16)));
}

TEST_P(Conformance, FreeOfWhatIsNotAllocated) {
  const DeviceAddress address = allocate(512);
  EXPECT_FALSE(device->free(address + 256));
  EXPECT_TRUE(device->free(address));
}

BulkTensor sampleTensor(DeviceAddress base) {
  return {"k.map0", base, DType::BF16, {128, 1000, 8}, {2048, 256}, {64, 128, 1}, 128};
}

TEST_P(Conformance, TensorMapsNameTheirTensor) {
  if (GetParam() == "cuda" && device->properties().computeCapability < 90)
    GTEST_SKIP() << "tensor maps need sm_90";
  const DeviceAddress address = allocate(4096);
  BulkTensor tensor = sampleTensor(address);
  Result<EncodedMap> first = device->encode(tensor);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(device->encode(tensor)->bytes, first->bytes);
  tensor.base += 256;
  EXPECT_NE(device->encode(tensor)->bytes, first->bytes);
  tensor = sampleTensor(address);
  tensor.extents[1] = int64_t{1} << 32;
  Result<EncodedMap> largest = device->encode(tensor);
  ASSERT_TRUE(largest) << largest.error().message;
  EXPECT_NE(largest->bytes, first->bytes);
  EXPECT_TRUE(device->free(address));
}

TEST_P(Conformance, TensorMapsThatCannotBe) {
  BulkTensor tensor = sampleTensor(4096 + 8);
  EXPECT_EQ(device->encode(tensor).error().message,
            "tensor map 'k.map0': expected a base address that is a multiple of 16, got 0x1008");
  tensor.base = 4096;
  for (int64_t extent : {int64_t{0}, int64_t{-1}, (int64_t{1} << 32) + 1}) {
    tensor.extents[2] = extent;
    EXPECT_EQ(device->encode(tensor).error().message,
              "tensor map 'k.map0': expected 1 to 2^32 elements in dimension 2, got " +
                  std::to_string(extent));
  }
  tensor.box[0] = 32;
  EXPECT_EQ(device->encode(tensor).error().message,
            "tensor map 'k.map0': box[0]: expected as many bytes as the swizzle, 128, got 64");
}

TEST_P(Conformance, KernelsComputeInOrder) {
  Result<std::unique_ptr<Module>> module = device->load(source());
  ASSERT_TRUE(module) << module.error().message;
  Result<Kernel *> kernel = (*module)->kernel("axpy", 0);
  ASSERT_TRUE(kernel) << kernel.error().message;
  if (!runsKernels())
    return;
  int32_t n = 1000;
  std::vector<float> x(1000), y(1000, 1.0f);
  for (int i = 0; i < n; ++i)
    x[static_cast<size_t>(i)] = static_cast<float>(i);
  DeviceAddress dx = allocate(4000), dy = allocate(4000, "y");
  ASSERT_TRUE(device->copyIn(dx, x.data(), 4000));
  ASSERT_TRUE(device->copyIn(dy, y.data(), 4000));
  float a = 2;
  void *args[] = {&dx, &dy, &a, &n};
  const LaunchShape shape{{8, 1, 1}, {128, 1, 1}, 0};
  ASSERT_TRUE(device->launch(**kernel, shape, args));
  a = 3; // the arguments were already read
  n = 500;
  ASSERT_TRUE(device->launch(**kernel, shape, args));
  ASSERT_TRUE(device->synchronize());
  ASSERT_TRUE(device->copyOut(y.data(), dy, 4000));
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(y[static_cast<size_t>(i)], 1.0f + static_cast<float>(i) * (i < 500 ? 5.0f : 2.0f));
  EXPECT_TRUE(device->free(dx));
  EXPECT_TRUE(device->free(dy));
}

TEST_P(Conformance, RecordedLaunchesAreDoneAgain) {
  Result<std::unique_ptr<Module>> module = device->load(source());
  ASSERT_TRUE(module) << module.error().message;
  Result<Kernel *> kernel = (*module)->kernel("axpy", 0);
  ASSERT_TRUE(kernel) << kernel.error().message;
  int32_t n = 1000;
  std::vector<float> x(1000, 1.0f), y(1000);
  DeviceAddress dx = allocate(4000), dy = allocate(4000, "y");
  ASSERT_TRUE(device->copyIn(dx, x.data(), 4000));
  ASSERT_TRUE(device->fill(dy, 0, 4000));
  float a = 2;
  void *args[] = {&dx, &dy, &a, &n};
  const LaunchShape shape{{8, 1, 1}, {128, 1, 1}, 0};
  Status begun = device->beginRecording();
  if (!begun)
    GTEST_SKIP() << begun.error().message;
  EXPECT_NE(device->beginRecording().error().message.find("a recording has begun already"),
            std::string::npos);
  ASSERT_TRUE(device->launch(**kernel, shape, args));
  a = 3;
  n = 500;
  ASSERT_TRUE(device->launch(**kernel, shape, args));
  Result<std::unique_ptr<Recording>> recording = device->endRecording();
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_NE(device->endRecording().error().message.find("no recording has begun"), std::string::npos);
  a = 1000; // the arguments were already read
  // Nothing has run yet. Each replay then runs the launches on the present contents of memory.
  ASSERT_TRUE(device->copyOut(y.data(), dy, 4000));
  EXPECT_EQ(y[0], 0);
  ASSERT_TRUE(device->replay(**recording));
  std::fill(x.begin(), x.end(), 10.0f);
  ASSERT_TRUE(device->copyIn(dx, x.data(), 4000));
  ASSERT_TRUE(device->replay(**recording));
  ASSERT_TRUE(device->synchronize());
  if (runsKernels()) {
    ASSERT_TRUE(device->copyOut(y.data(), dy, 4000));
    for (int i = 0; i < 1000; ++i)
      EXPECT_EQ(y[static_cast<size_t>(i)], i < 500 ? 55.0f : 22.0f);
  }
  EXPECT_TRUE(device->free(dx));
  EXPECT_TRUE(device->free(dy));
}

TEST_P(Conformance, EventsMeasureTime) {
  Result<std::unique_ptr<Event>> begin = device->createEvent(), end = device->createEvent();
  ASSERT_TRUE(begin);
  ASSERT_TRUE(end);
  EXPECT_FALSE(device->elapsed(**begin, **end)); // never recorded
  ASSERT_TRUE(device->record(**begin));
  ASSERT_TRUE(device->record(**end));
  Result<double> seconds = device->elapsed(**begin, **end);
  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_GE(*seconds, 0);
  EXPECT_LT(*seconds, 1);
}

TEST_P(Conformance, ErrorsNameTheKernel) {
  Result<std::unique_ptr<Module>> module = device->load(source());
  ASSERT_TRUE(module) << module.error().message;
  Result<Kernel *> unknown = (*module)->kernel("saxpy", 0);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("'saxpy'"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("'axpy.ptx'"), std::string::npos);
  Result<Kernel *> greedy = (*module)->kernel("axpy", 1 << 20);
  ASSERT_FALSE(greedy);
  EXPECT_NE(greedy.error().message.find("'axpy' asks for 1048576 bytes of shared memory; at most"),
            std::string::npos);
}

TEST_P(Conformance, ModuleWithoutCodeForTheDevice) {
  Result<std::unique_ptr<Module>> module = device->load({"empty", {}, {}, {}});
  ASSERT_FALSE(module);
  EXPECT_NE(module.error().message.find("module 'empty' has no code for this device"), std::string::npos);
}

TEST_P(Conformance, LaunchOfAnImpossibleBlock) {
  if (!runsKernels())
    GTEST_SKIP() << "the fake driver launches nothing";
  Result<std::unique_ptr<Module>> module = device->load(source());
  ASSERT_TRUE(module) << module.error().message;
  Result<Kernel *> kernel = (*module)->kernel("axpy", 0);
  ASSERT_TRUE(kernel);
  DeviceAddress none = 0;
  float a = 0;
  int32_t n = 0;
  void *args[] = {&none, &none, &a, &n};
  Status status = device->launch(**kernel, {{1, 1, 1}, {2048, 1, 1}, 0}, args);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("axpy"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, Conformance, ::testing::Values("host", "cuda", "fake-cuda"),
                         [](const auto &info) {
                           return info.param == "fake-cuda" ? std::string("fake") : info.param;
                         });

// A refused launch spoils only its recording.
TEST(HostDevice, RecordingOfAnUnknownKernel) {
  std::unique_ptr<HostDevice> device = makeHostDevice();
  host::HostKernel kernel;
  kernel.name = "axpy";
  kernel.entry = axpyLane;
  std::unique_ptr<Module> module = std::move(*device->load({"m", {}, {}, {&kernel, 1}}));
  const char *message = "host: recording 'axpy': the kernel does not say how large its parameters are";
  ASSERT_TRUE(device->beginRecording());
  EXPECT_EQ(device->launch(**module->kernel("axpy", 0), {}, nullptr).error().message, message);
  EXPECT_EQ(device->endRecording().error().message, message);
  EXPECT_TRUE(device->beginRecording());
  EXPECT_TRUE(device->endRecording());
}

TEST(HostDevice, CopiesBeyondAnAllocation) {
  std::unique_ptr<HostDevice> device = makeHostDevice();
  Result<DeviceAddress> address = device->allocate(16, "small");
  ASSERT_TRUE(address);
  char data[32] = {};
  EXPECT_EQ(device->copyIn(*address, data, 17).error().message,
            "host: cannot copy to 17 bytes at 'small', which has 16");
  EXPECT_EQ(device->copyOut(data, *address + 8, 9).error().message,
            "host: cannot copy from 9 bytes at 'small', which has 16");
  EXPECT_EQ(device->fill(8, 0, 1).error().message,
            "host: cannot fill 1 bytes at an address that is in no allocation");
  EXPECT_EQ(device->poison(8, 1).error().message,
            "host: cannot poison 1 bytes at an address that is in no allocation");
}

} // namespace
