//===- CudaErrorsTest.cpp - Drivers that fail -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cuda/CudaDevice.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace attn::rt;

namespace {

// Sets a variable for a scope.
struct Setting {
  const char *name;
  Setting(const char *name, const char *value) : name(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name); }
};

// Every copy of the fake driver is a library of its own, initialized once.
std::string errorOf(const std::string &library) {
  CudaOptions options;
  options.library = library;
  Result<std::unique_ptr<Device>> device = openCudaDevice(options);
  return device ? "no error" : device.error().message;
}

std::unique_ptr<Device> fake(const char *library = ATTN_FAKE_CUDA) {
  CudaOptions options;
  options.library = library;
  Result<std::unique_ptr<Device>> device = openCudaDevice(options);
  EXPECT_TRUE(device) << device.error().message;
  return std::move(*device);
}

TEST(CudaErrors, NoDriver) {
  const std::string message = errorOf("libno-such-driver.so.1");
  EXPECT_NE(message.find("cuda: no NVIDIA driver: cannot load libno-such-driver.so.1"), std::string::npos)
      << message;
}

TEST(CudaErrors, DriverTooOld) {
  Setting version("FAKE_CUDA_VERSION", "10020");
  EXPECT_EQ(errorOf(ATTN_FAKE_CUDA_OLD),
            "cuda: the NVIDIA driver is too old: it supports CUDA 10.2 and lacks "
            "'cuFuncSetAttribute'; CUDA 11.0 (driver 450) or later is needed");
  // Under another name, the same library has not been initialized yet.
  const std::string other = std::string(ATTN_FAKE_CUDA_DIR) + "/./libfakecuda.so";
  EXPECT_EQ(errorOf(other),
            "cuda: the NVIDIA driver is too old: it supports CUDA 10.2; CUDA 11.0 (driver 450) or "
            "later is needed");
}

TEST(CudaErrors, InitializingFails) {
  const std::string other = std::string(ATTN_FAKE_CUDA_DIR) + "/././libfakecuda.so";
  {
    Setting init("FAKE_CUDA_INIT", "100");
    EXPECT_EQ(errorOf(other), "cuda: the NVIDIA driver finds no device");
  }
  Setting init("FAKE_CUDA_INIT", "999");
  EXPECT_EQ(errorOf(other), "cuda: initializing the driver failed: error 999");
}

TEST(CudaErrors, NoSuchDevice) {
  {
    Setting count("FAKE_CUDA_COUNT", "0");
    EXPECT_EQ(errorOf(ATTN_FAKE_CUDA), "cuda: the NVIDIA driver finds no device");
  }
  CudaOptions options;
  options.library = ATTN_FAKE_CUDA;
  options.index = 3;
  EXPECT_EQ(openCudaDevice(options).error().message,
            "cuda: there is no device 3; there are 1, counted from 0");
}

TEST(CudaErrors, PropertiesThatTheDriverDoesNotSay) {
  const std::string message = "cuda: asking for the properties of device 0 failed: error 999";
  for (const char *attribute : {"1", "16", "38", "75", "76", "97"}) {
    Setting failing("FAKE_CUDA_ATTRIBUTE", attribute);
    EXPECT_EQ(errorOf(ATTN_FAKE_CUDA), message) << attribute;
  }
  for (const char *function : {"FAKE_CUDA_NAME", "FAKE_CUDA_TOTAL"}) {
    Setting failing(function, "999");
    EXPECT_EQ(errorOf(ATTN_FAKE_CUDA), message) << function;
  }
  EXPECT_EQ(fake()->properties().multiprocessors, 4);
}

TEST(CudaErrors, OutOfMemoryNamesAskedAndFree) {
  std::unique_ptr<Device> device = fake();
  Result<DeviceAddress> some = device->allocate(1000000, "some");
  ASSERT_TRUE(some);
  Result<DeviceAddress> more = device->allocate(100000, "kv.k_pages");
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().kind, ErrorKind::Memory);
  EXPECT_EQ(more.error().message,
            "cuda: out of memory allocating 'kv.k_pages': asked for 100000 bytes, free are 48576 of 1048576");
  EXPECT_TRUE(device->free(*some));
}

const BulkTensor someTensor{"kv.k.map0", 4096, DType::F16, {64, 100, 2}, {256, 128}, {32, 16, 1}, 64};

TEST(CudaErrors, TensorMapsAreTheDriversBusiness) {
  Result<EncodedMap> map = fake()->encode(someTensor);
  ASSERT_TRUE(map) << map.error().message;
  // The fake writes down its arguments: f16, rank, no interleave, 64 bytes, 128-byte promotion, zeros, then
  // base, extents less one, strides in 16 bytes, box and steps.
  const uint32_t expected[] = {6, 3, 0, 2, 2, 0, 4096, 0, 63, 0, 99, 0, 1, 0, 16, 8, 0x2001, 0x1001, 0x101};
  EXPECT_EQ(std::memcmp(map->bytes.data(), expected, sizeof expected), 0);
  Setting refuse("FAKE_CUDA_MAP", "1");
  EXPECT_EQ(fake()->encode(someTensor).error().message,
            "cuda: encoding tensor map 'kv.k.map0' failed: CUDA_ERROR_OF_THE_FAKE");
}

// An old driver serves all kernels except those with tensor maps.
TEST(CudaErrors, DriverTooOldForTensorMaps) {
  Setting version("FAKE_CUDA_VERSION", "11080");
  EXPECT_EQ(fake(ATTN_FAKE_CUDA_NO_MAPS)->encode(someTensor).error().message,
            "cuda: the NVIDIA driver is too old for tensor map 'kv.k.map0': it supports CUDA 11.8 and lacks "
            "'cuTensorMapEncodeTiled'; CUDA 12.0 (driver 525) or later is needed");
}

std::string loadError(const ModuleSource &source) {
  Result<std::unique_ptr<Module>> module = fake()->load(source);
  return module ? "no error" : module.error().message;
}

TEST(CudaErrors, PtxTheDriverDoesNotKnow) {
  Setting load("FAKE_CUDA_LOAD", "222");
  EXPECT_EQ(loadError({"m", ".version 9.1\n.target sm_80\n", {}, {}}),
            "cuda: the NVIDIA driver is too old for module 'm': the driver supports CUDA 13.0, PTX 9.1 needs "
            "CUDA 13.1");
}

TEST(CudaErrors, PtxThatDoesNotCompile) {
  Setting load("FAKE_CUDA_LOAD", "218");
  EXPECT_EQ(loadError({"m", ".version 7.0\n.target sm_80\n", {}, {}}),
            "cuda: compiling the PTX of module 'm' in the driver failed: CUDA_ERROR_INVALID_PTX\n"
            "ptxas fatal: line 3 of the fake");
}

TEST(CudaErrors, CodeForAnotherChip) {
  EXPECT_EQ(loadError({"m", ".version 8.7\n.target sm_100a\n", {}, {}}),
            "cuda: module 'm' was compiled for sm_100a, but 'Fake 9000' is sm_90, and code for sm_100a runs "
            "on no other");
  EXPECT_EQ(loadError({"m", ".version 8.7\n.target sm_120\n", {}, {}}),
            "cuda: module 'm' was compiled for sm_120, but 'Fake 9000' is sm_90");
  EXPECT_EQ(loadError({"m", ".version 8.0\n.target sm_90a\n", {}, {}}), "no error");
  EXPECT_EQ(loadError({"m", ".version 7.0\n.target sm_80\n", {}, {}}), "no error");
}

TEST(CudaErrors, FaultOfAKernelNamesIt) {
  std::unique_ptr<Device> device = fake();
  Result<std::unique_ptr<Module>> module = device->load({"m", ".version 7.0\n.target sm_80\n", {}, {}});
  ASSERT_TRUE(module);
  Result<Kernel *> kernel = (*module)->kernel("axpy", 0);
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(device->launch(**kernel, {}, nullptr));
  Setting sync("FAKE_CUDA_SYNC", "700");
  EXPECT_EQ(device->synchronize().error().message, "cuda: running kernel 'axpy' or work before it failed: "
                                                   "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access "
                                                   "was encountered)");
}

// The fake's counters: launches, launches by graphs, overlapping launches; graphs, pinned bytes and modules
// alive.
std::vector<int> counted(const char *library = ATTN_FAKE_CUDA) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  const auto counters = reinterpret_cast<const int *(*)()>(dlsym(handle, "fakeCudaCounters"));
  return std::vector<int>(counters(), counters() + 6);
}

// A cubin that the fake accepts if it has a kernel.
std::vector<uint8_t> cubinOf(const std::string &kernel) {
  const std::string bytes = "\x7f"
                            "ELF" +
                            (kernel.empty() ? "" : ".entry " + kernel + "(") + '\0';
  return {bytes.begin(), bytes.end()};
}
constexpr const char *ptxOfBoth = ".version 7.0\n.target sm_80\n.entry first(\n.entry second(\n";

TEST(CudaCubins, KernelsAreFoundInTheirOwn) {
  const int before = counted()[5];
  {
    const std::vector<uint8_t> cubins[] = {cubinOf("first"), cubinOf("second")};
    Result<std::unique_ptr<Module>> module = fake()->load({"m", {}, cubins, {}});
    ASSERT_TRUE(module) << module.error().message;
    EXPECT_EQ(counted()[5], before + 2);
    EXPECT_TRUE((*module)->kernel("first", 0));
    EXPECT_TRUE((*module)->kernel("second", 0));
    const Result<Kernel *> third = (*module)->kernel("third", 0);
    ASSERT_FALSE(third);
    EXPECT_NE(third.error().message.find("cuda: finding kernel 'third' in module 'm' failed"),
              std::string::npos);
  }
  EXPECT_EQ(counted()[5], before);
}

// Either all cubins load, or the PTX does: the cubins loaded before the refused one are unloaded.
TEST(CudaCubins, OneForAnotherChipFallsBackToPtx) {
  const int before = counted()[5];
  const std::vector<uint8_t> cubins[] = {cubinOf("first"), cubinOf("")};
  {
    Result<std::unique_ptr<Module>> module = fake()->load({"m", ptxOfBoth, cubins, {}});
    ASSERT_TRUE(module) << module.error().message;
    EXPECT_EQ(counted()[5], before + 1);
    EXPECT_TRUE((*module)->kernel("first", 0));
    EXPECT_TRUE((*module)->kernel("second", 0));
  }
  EXPECT_EQ(counted()[5], before);
  EXPECT_NE(loadError({"m", {}, cubins, {}}).find("cuda: loading a cubin of module 'm' failed"),
            std::string::npos);
  EXPECT_EQ(counted()[5], before);
}

// An attention and a merge that overlaps it become one graph; while they are recorded, nothing runs.
TEST(CudaRecording, IsAGraph) {
  const std::vector<int> before = counted();
  {
    std::unique_ptr<Device> device = fake();
    Result<std::unique_ptr<Module>> module = device->load({"m", ".version 7.0\n.target sm_80\n", {}, {}});
    Kernel *kernel = *(*module)->kernel("axpy", 0);
    LaunchShape overlapping;
    overlapping.overlapsPrevious = true;
    ASSERT_TRUE(device->beginRecording());
    ASSERT_TRUE(device->launch(*kernel, {}, nullptr));
    ASSERT_TRUE(device->launch(*kernel, overlapping, nullptr));
    Result<std::unique_ptr<Recording>> recording = device->endRecording();
    ASSERT_TRUE(recording) << recording.error().message;
    EXPECT_EQ(counted()[0], before[0]);
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(device->replay(**recording));
    EXPECT_EQ(counted()[0], before[0]);
    EXPECT_EQ(counted()[1], before[1] + 6);
    EXPECT_EQ(counted()[2], before[2] + 3);
    EXPECT_EQ(counted()[3], before[3] + 1);
    ASSERT_TRUE(device->launch(*kernel, {}, nullptr));
    EXPECT_EQ(counted()[0], before[0] + 1);
  }
  EXPECT_EQ(counted()[3], before[3]); // nothing is left behind
  EXPECT_EQ(counted()[4], before[4]);
}

TEST(CudaRecording, FailsWhereTheDriverDoes) {
  std::unique_ptr<Device> device = fake();
  ASSERT_TRUE(device->beginRecording());
  Setting refuse("FAKE_CUDA_CAPTURE", "901");
  EXPECT_EQ(device->endRecording().error().message,
            "cuda: ending a recording failed: CUDA_ERROR_OF_THE_FAKE");
  EXPECT_EQ(device->endRecording().error().message, "cuda: no recording has begun");
}

TEST(CudaRecording, DriverTooOld) {
  Setting version("FAKE_CUDA_VERSION", "11000");
  const std::string other = std::string(ATTN_FAKE_CUDA_DIR) + "/./libfakecuda-nomaps.so";
  EXPECT_EQ(fake(other.c_str())->beginRecording().error().message,
            "cuda: the NVIDIA driver is too old to record launches: it supports CUDA 11.0 and lacks "
            "'cuStreamBeginCapture_v2'; CUDA 11.4 (driver 470) or later is needed");
}

// An old driver runs the merge after the attention in a recording, and beside it elsewhere.
TEST(CudaRecording, DriverTooOldForOverlap) {
  Setting version("FAKE_CUDA_VERSION", "12020");
  const std::string other = std::string(ATTN_FAKE_CUDA_DIR) + "/././././libfakecuda.so";
  std::unique_ptr<Device> device = fake(other.c_str());
  Result<std::unique_ptr<Module>> module = device->load({"m", ".version 7.0\n.target sm_80\n", {}, {}});
  LaunchShape overlapping;
  overlapping.overlapsPrevious = true;
  ASSERT_TRUE(device->beginRecording());
  ASSERT_TRUE(device->launch(**(*module)->kernel("axpy", 0), overlapping, nullptr));
  Result<std::unique_ptr<Recording>> recording = device->endRecording();
  const std::vector<int> before = counted(other.c_str());
  ASSERT_TRUE(device->replay(**recording));
  EXPECT_EQ(counted(other.c_str())[1], before[1] + 1);
  EXPECT_EQ(counted(other.c_str())[2], before[2]);
}

// Copies of any size go through the two halves of pinned memory; the source may change at once.
TEST(CudaStaging, CopiesArrive) {
  std::unique_ptr<Device> device = fake();
  Buffer buffer = std::move(*Buffer::create(*device, 1 << 20, "all of it"));
  std::vector<uint8_t> data(1 << 20), back(data.size());
  for (int round = 0; round < 8; ++round) {
    for (size_t at = 0, size = 1; at < data.size(); at += size, size = std::min(3 * size, data.size() - at)) {
      std::fill_n(data.begin() + static_cast<int64_t>(at), size, static_cast<uint8_t>(round * 31 + at));
      ASSERT_TRUE(device->copyIn(buffer.address() + at, data.data() + at, size));
    }
    ASSERT_TRUE(device->copyOut(back.data(), buffer.address(), back.size()));
    EXPECT_EQ(back, data);
  }
}

} // namespace
