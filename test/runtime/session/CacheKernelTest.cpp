//===- CacheKernelTest.cpp - Binding and launching row copies -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernel here only records its arguments. Tests with a compiler
// (test/integration/CacheKernelsTest.cpp) check what real kernels do with them.
//
//===----------------------------------------------------------------------===//
#include "Samples.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/host/Abi.h"
#include "attn_rt/session/CacheKernels.h"
#include "attn_rt/session/Session.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

using Role = KernelInfo::Role;

struct Call {
  std::vector<uint64_t> buffers;
  std::vector<int32_t> dims;
  uint32_t blocks;
  bool operator==(const Call &) const = default;
};
Call lastCall;

/// Parameters in the order of cacheManifest: buffers, then dimensions.
template <int buffers, int dims> void note(host::LaneAbi *lane, void **args) {
  if (lane->special[host::TidX] != 0 || lane->special[host::CtaidX] != 0)
    return;
  lastCall = {{}, {}, lane->special[host::NctaidX]};
  for (int i = 0; i < buffers; ++i)
    lastCall.buffers.push_back(*static_cast<uint64_t *>(args[i]));
  for (int i = buffers; i < buffers + dims; ++i)
    lastCall.dims.push_back(*static_cast<int32_t *>(args[i]));
}

class CacheKernelTest : public ::testing::Test {
protected:
  std::unique_ptr<HostDevice> device = makeHostDevice();
  std::vector<host::HostKernel> code{2};

  CacheKernelTest() {
    code[0].name = "append";
    code[0].entry = note<6, 5>;
    code[1].name = "move";
    code[1].entry = note<5, 3>;
  }
  CacheKernel make(Role role) {
    auto made = CacheKernel::create(*device, cacheManifest(role), {"module", {}, {}, code});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  static std::string text(const Status &status) { return status ? "done" : status.error().message; }
};

// Two heads of 64 and 32 features in bf16: 256 and 128 bytes a token.
TEST_F(CacheKernelTest, BindsWhatTheManifestAsksFor) {
  CacheKernel append = make(Role::Append);
  EXPECT_EQ(append.slotBytes(true), 256);
  EXPECT_EQ(append.slotBytes(false), 128);
  ASSERT_TRUE(append.reserve(100, 4));
  ASSERT_TRUE(append.bind({4096, 8192, 64, 64 * 256 + 32, 64 * 128}, {1024, 2048, 70, 70 * 256, 70 * 128}));
  const std::vector<int32_t> slots = {5, -1, 63};
  ASSERT_TRUE(append.setRows({{}, slots}));
  ASSERT_TRUE(append.launch());
  const Call first = lastCall;
  const DeviceAddress count = first.buffers[0], list = first.buffers[5];
  EXPECT_EQ(first.buffers, (std::vector<uint64_t>{count, 1024, 2048, 4096, 8192, list}));
  EXPECT_EQ(first.dims, (std::vector<int32_t>{4, 70 * 16, 70 * 8, 64 * 16 + 2, 64 * 8}));
  EXPECT_EQ(list % 32, 0u);
  EXPECT_EQ(*reinterpret_cast<int32_t *>(count), 3);
  EXPECT_EQ(std::vector<int32_t>(reinterpret_cast<int32_t *>(list), reinterpret_cast<int32_t *>(list) + 3),
            slots);

  // Other rows change memory, but not the launch.
  const std::vector<int32_t> others(70, -1);
  ASSERT_TRUE(append.setRows({{}, others}));
  ASSERT_TRUE(append.launch());
  EXPECT_EQ(lastCall, first);
  EXPECT_EQ(*reinterpret_cast<int32_t *>(count), 70);
}

TEST_F(CacheKernelTest, BlocksFollowFromWhatIsReserved) {
  CacheKernel append = make(Role::Append);
  ASSERT_TRUE(append.reserve(0, 1));
  EXPECT_EQ(append.blocks(), 1);
  ASSERT_TRUE(append.reserve(33, 3)); // 5 groups of 8 rows in 2 pieces, 3 layers: 30 warps
  EXPECT_EQ(append.blocks(), 8);
  ASSERT_TRUE(append.reserve(1 << 20, 32));
  EXPECT_EQ(append.blocks(), 4 * device->properties().multiprocessors);
  ASSERT_TRUE(append.reserve(1 << 20, 32, 7));
  EXPECT_EQ(append.blocks(), 7);
}

TEST_F(CacheKernelTest, OneLayerNeedsNoDistance) {
  CacheKernel move = make(Role::Move);
  ASSERT_TRUE(move.reserve(8, 1));
  ASSERT_TRUE(move.bind({4096, 8192, 64, -3, 5}));
  const std::vector<int32_t> from = {5}, to = {6};
  ASSERT_TRUE(move.setRows({from, to}));
  ASSERT_TRUE(move.launch());
  EXPECT_EQ(lastCall.dims, (std::vector<int32_t>{1, 0, 0}));
  EXPECT_EQ(*reinterpret_cast<int32_t *>(lastCall.buffers[3]), 5);
  EXPECT_EQ(*reinterpret_cast<int32_t *>(lastCall.buffers[4]), 6);
}

TEST_F(CacheKernelTest, LayersOneAfterTheOtherShareAList) {
  auto both = CacheKernels::create(make(Role::Append), make(Role::Move));
  ASSERT_TRUE(both);
  ASSERT_TRUE(both->reserve({0, 4, 16, 3, 4096, 1 << 16, 64 * 256, 64 * 128}, 8, 8));
  const Movement movement{{}, {{0, 0, {1, 2}, 3}}, 3};
  const uint64_t copies = device->work().copies;
  std::vector<uint64_t> lists;
  for (int32_t layer = 0; layer < 3; ++layer) {
    const DeviceAddress k = 1024 * (static_cast<DeviceAddress>(layer) + 1);
    ASSERT_TRUE(both->execute(movement, {k, 2 * k, 3}, {layer, 1}, 5));
    lists.push_back(lastCall.buffers[5]);
    EXPECT_EQ(lastCall.buffers[1], k);
    EXPECT_EQ(lastCall.buffers[3], 4096u + static_cast<unsigned>(layer) * 64 * 256);
    EXPECT_EQ(lastCall.dims[0], 1);
  }
  EXPECT_EQ(lists, std::vector<uint64_t>(3, lists[0]));
  EXPECT_EQ(device->work().copies, copies + 1);
  ASSERT_TRUE(both->execute(movement, {1024, 2048, 3}, {0, 1}, 6)); // another movement
  EXPECT_EQ(device->work().copies, copies + 2);
  EXPECT_EQ(text(both->execute(movement, {1024, 2048, 2}, {1, 1}, 6)),
            "cache kernel 'append': expected at least the 3 rows that are set, got 2");
  EXPECT_EQ(text(both->execute(movement, {1024, 2048, 3}, {2, 2}, 6)),
            "cache kernels: expected some of 3 layers, got 2 from 2 on");
}

TEST_F(CacheKernelTest, ListsOfTheCallers) {
  auto both = CacheKernels::create(make(Role::Append), make(Role::Move));
  ASSERT_TRUE(both);
  ASSERT_TRUE(both->reserve({0, 4, 16, 2, 4096, 1 << 16, 64 * 256, 64 * 128}, 8, 0));
  const uint64_t copies = device->work().copies;
  ASSERT_TRUE(both->append(1 << 20, {1024, 2048, 8}, {1, 1}));
  EXPECT_EQ(lastCall.buffers[0], 1u << 20);
  EXPECT_EQ(lastCall.buffers[5], (1u << 20) + 32);
  EXPECT_EQ(device->work().copies, copies);
  EXPECT_EQ(text(both->append((1 << 20) + 4, {1024, 2048, 8}, {1, 1})),
            "cache kernel 'append': expected a list at a multiple of 32, got 1048580");
  EXPECT_EQ(text(both->append(1 << 20, {1024, 2048, 9}, {1, 1})),
            "cache kernels: expected at most 8 new tokens, as reserved, got 9");
}

TEST_F(CacheKernelTest, Errors) {
  CacheKernel append = make(Role::Append);
  const std::string at = "cache kernel 'append': ";
  EXPECT_EQ(text(append.bind({})), at + "bind before reserve");
  EXPECT_EQ(text(append.setRows({})), at + "rows are set before a cache is bound");
  EXPECT_EQ(text(append.launch()), at + "launch before rows were set");
  EXPECT_EQ(text(append.reserve(8, 0)),
            at + "expected rows, at least 1 layer and at least 1 block, got 8, 0 and 1");
  EXPECT_EQ(text(append.reserve(int64_t{1} << 33, 4)),
            at + "expected at most 1073741816 rows of 4 layers at once, got 8589934592");
  ASSERT_TRUE(append.reserve(16, 2));
  EXPECT_EQ(
      text(append.bind({4096 + 8, 0, 1, 256, 128}, {})),
      at + "expected the keys of the slots at a multiple of 16 bytes, got an address that is 8 above one");
  EXPECT_EQ(
      text(append.bind({4096, 0, 4, 1024, 511}, {})),
      at + "expected layers of values of the slots to lie a multiple of 16 and at least 512 bytes apart, got "
           "511");
  EXPECT_EQ(text(append.bind({4096, 0, 4, 1024, 512}, {0, 0, -1})),
            at + "expected 0 to 2^31 - 1 rows, got -1");
  ASSERT_TRUE(append.bind({4096, 0, 4, 1024, 512}, {0, 0, 5, 5 * 256, 5 * 128}));
  const std::vector<int32_t> many(17, -1), beyond = {4};
  EXPECT_EQ(text(append.setRows({{}, many})), at + "expected at most 5 rows, got 17: reserve more");
  EXPECT_EQ(text(append.setRows({{}, std::span(many).first(6)})),
            at + "expected at most 5 rows, got 6, more than are bound");
  EXPECT_EQ(text(append.setRows({{}, beyond})),
            "append: row 0 writes slot 4, but the cache has 4 slots, counted from 0");
  EXPECT_EQ(text(append.launch()), at + "launch before rows were set");

  auto both = CacheKernels::create(make(Role::Append), make(Role::Append));
  EXPECT_EQ(both.error().message, "cache kernels: expected an append and a move");
  auto made = CacheKernels::create(make(Role::Append), make(Role::Move));
  ASSERT_TRUE(made);
  EXPECT_EQ(text(made->execute({})), "cache kernels: a movement before pages were reserved for");
}

/// An append to a quantized cache also writes metadata, and counts.
TEST_F(CacheKernelTest, MetadataIsBound) {
  Manifest manifest = cacheManifest(Role::Append);
  auto cache = std::ranges::find(manifest.arguments, Argument::Role::KV, &Argument::role);
  cache->keyFormat = Format::integers(8, cache->keyDim);
  KernelInfo &kernel = manifest.kernels[0];
  kernel.params.push_back({Parameter::Kind::Buffer, "kv.k_meta"});
  kernel.params.push_back({Parameter::Kind::Buffer, "status"});
  kernel.params.push_back({Parameter::Kind::Dim, "kv.k_meta_layer"});
  auto made = CacheKernel::create(*device, manifest, {"module", {}, {}, code});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->slotBytes(true), 128);
  EXPECT_EQ(made->rowBytes(true), 256);
  EXPECT_EQ(made->metaBytes(true, 10), 10 * 2 * 4);
  ASSERT_TRUE(made->reserve(16, 2));
  const DeviceRows rows = {0, 0, 5, 5 * 256, 5 * 128};
  const auto bind = [&](DeviceMeta meta, DeviceAddress status) {
    return text(made->bind({4096, 8192, 4, 512, 512, meta}, rows, status));
  };
  const std::string at = "cache kernel 'append': expected ";
  EXPECT_EQ(bind({}, 64), at + "keys with 'kv.k_meta', the metadata of format i8 per 64, got none");
  EXPECT_EQ(
      bind({4096 + 4, 32}, 64),
      at + "the metadata of keys of the slots at a multiple of 16 bytes, got an address that is 4 above one");
  EXPECT_EQ(bind({4096, 28}, 64), at + "layers of metadata of keys of the slots to lie a multiple of 4 and "
                                       "at least 32 bytes apart, got 28");
  EXPECT_EQ(bind({4096, 32}, 0), at + "a status to count in, at a multiple of 4 bytes");
  EXPECT_EQ(bind({4096, 32}, 64), "done");
}

TEST_F(CacheKernelTest, EachKindOfFunctionHasItsRunner) {
  EXPECT_EQ(Session::create(*device, cacheManifest(Role::Move), {"m", {}, {}, code}).error().message,
            "'move' is an operation on a cache, not an attention: run it as a CacheKernel");
  EXPECT_EQ(CacheKernel::create(*device, sampleManifest(), {"m", {}, {}, code}).error().message,
            "'decode' is an attention, not an operation on a cache: run it in a Session");
}

TEST(RowCopyFloor, CountsWhatIsCopied) {
  const std::vector<int32_t> from = {1, -1, 3}, to = {4, -1, 6};
  EXPECT_EQ(rowCopyFloor(cacheManifest(Role::Move), {from, to}, 5), 2 * 2 * 5 * (256 + 128) + 6 * 4);
  EXPECT_EQ(rowCopyFloor(cacheManifest(Role::Append), {{}, to}, 1), 2 * 2 * (256 + 128) + 3 * 4);
}

} // namespace
