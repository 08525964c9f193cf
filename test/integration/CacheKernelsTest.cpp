//===- CacheKernelsTest.cpp - A cache's changes, by kernels and by hand ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random operations on a cache, each of whose movements is executed twice: by
// executeMovement on the host's memory, and by compiled kernels on a device's.
// Every byte must be the same, those between the layers included. `cuda` needs a
// driver and is skipped without one. A failure prints its seed; ATTN_FUZZ=20 runs
// twenty times as many.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/session/CacheKernels.h"
#include "Compiled.h"
#include "attn_rt/cache/CacheMemory.h"
#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/device/HostDevice.h"
#include "cache/Mirror.h"

#include <gtest/gtest.h>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

constexpr int64_t keyBytes = 64, valueBytes = 96; // one head of 32 and 48 features in f16
constexpr int32_t layers = 3;
constexpr int64_t mostTokens = 400;

std::string function(const std::string &name, const std::string &key = "f16") {
  const std::string types = R"(
    !k = tensor<?x?x1x32xf16>
    !v = tensor<?x?x1x48xf16>
    !kv = !attn.kv<paged<16>, heads = 1, dim = 32, value_dim = 48, key = )" +
                            key + R"(, value = f16>
    !slots = tensor<?xi32>)";
  if (name == "append")
    return types + R"(
    func.func @append(%k: !k {attn.name = "k"}, %v: !v {attn.name = "v"}, %kv: !kv {attn.name = "kv"},
                      %slots: !slots {attn.name = "slots"}) {
      attn.append %k, %v to %kv at %slots : !k, !v, !kv, !slots
      return
    })";
  return types + R"(
    func.func @move(%kv: !kv {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
      attn.move %kv from %from to %to : !kv, !slots, !slots
      return
    })";
}

/// Memory of the host and of a device with equal contents.
struct Twin {
  std::vector<std::byte> bytes;
  Buffer buffer;

  Twin(Device &device, size_t size, Rng &rng) : bytes(size) {
    buffer = std::move(*Buffer::create(device, size, "twin"));
    scramble(device, rng);
  }
  void scramble(Device &device, Rng &rng) {
    for (std::byte &byte : bytes)
      byte = static_cast<std::byte>(rng());
    EXPECT_TRUE(device.copyIn(buffer.address(), bytes.data(), bytes.size()));
  }
  bool same(Device &device) const {
    std::vector<std::byte> back(bytes.size());
    EXPECT_TRUE(device.copyOut(back.data(), buffer.address(), back.size()));
    return back == bytes;
  }
};

/// The pages of one class twice, and the kernels. Layers are 160 bytes further apart than their pages need.
class Pool {
public:
  Pool(Device &device, CacheKernels made, int32_t headClass, int32_t pages, int32_t pageTokens, Rng &rng)
      : device(device), kernels(std::move(made)), pageTokens(pageTokens),
        kLayer(pages * pageTokens * keyBytes + 160), vLayer(pages * pageTokens * valueBytes + 160),
        k(device, static_cast<size_t>(layers * kLayer), rng),
        v(device, static_cast<size_t>(layers * vLayer), rng),
        newK(device, layers * mostTokens * keyBytes, rng),
        newV(device, layers * mostTokens * valueBytes, rng) {
    pool = {headClass, pages, pageTokens, layers, k.buffer.address(), v.buffer.address(), kLayer, vLayer};
    const Status reserved = kernels.reserve(pool, mostTokens, mostTokens);
    EXPECT_TRUE(reserved) << reserved.error().message;
  }

  void execute(const Movement &movement, Rng &rng) {
    ASSERT_LE(movement.rows, mostTokens);
    newK.scramble(device, rng);
    newV.scramble(device, rng);
    const int64_t kRows = mostTokens * keyBytes, vRows = mostTokens * valueBytes;
    ASSERT_TRUE(executeMovement(movement, pool.headClass, pageTokens, {k.bytes, keyBytes, layers, kLayer},
                                {newK.bytes, kRows}));
    ASSERT_TRUE(executeMovement(movement, pool.headClass, pageTokens, {v.bytes, valueBytes, layers, vLayer},
                                {newV.bytes, vRows}));
    const DeviceRows rows = {newK.buffer.address(), newV.buffer.address(), mostTokens, kRows, vRows};
    const Status done = recording ? kernels.set(movement, rows) : kernels.execute(movement, rows);
    ASSERT_TRUE(done) << done.error().message;
    if (recording)
      ASSERT_TRUE(device.replay(*recording));
  }
  /// Records a launch that executes all later movements.
  void record() {
    ASSERT_TRUE(kernels.set({}, {newK.buffer.address(), newV.buffer.address(), mostTokens,
                                 mostTokens * keyBytes, mostTokens * valueBytes}));
    ASSERT_TRUE(device.beginRecording());
    ASSERT_TRUE(kernels.launch());
    auto made = device.endRecording();
    ASSERT_TRUE(made) << made.error().message;
    recording = std::move(*made);
  }
  void verify() {
    ASSERT_TRUE(k.same(device)) << "keys of class " << pool.headClass;
    ASSERT_TRUE(v.same(device)) << "values of class " << pool.headClass;
  }

  Device &device;
  CacheKernels kernels;
  int32_t pageTokens;
  int64_t kLayer, vLayer;
  Twin k, v, newK, newV;
  DevicePages pool;
  std::unique_ptr<Recording> recording;
};

class CacheOnDevice : public ::testing::TestWithParam<std::string> {
protected:
  std::unique_ptr<Device> device;
  std::unique_ptr<Compiled> append, move;

  void SetUp() override {
    std::string target;
    if (GetParam() == "host") {
      device = makeHostDevice();
    } else {
      auto opened = openCudaDevice();
      if (!opened)
        GTEST_SKIP() << opened.error().message;
      device = std::move(*opened);
      target = device->properties().computeCapability == 90 ? "sm_90a" : "sm_80";
    }
    append = std::make_unique<Compiled>(function("append"), target);
    move = std::make_unique<Compiled>(function("move"), target);
    chip = target;
  }
  std::string chip;
  CacheKernels kernels() {
    auto appends = CacheKernel::create(*device, append->manifest, append->source());
    auto moves = CacheKernel::create(*device, move->manifest, move->source());
    return std::move(*CacheKernels::create(std::move(*appends), std::move(*moves)));
  }
  void expectClean() {
    if (auto *host = dynamic_cast<HostDevice *>(device.get()))
      EXPECT_TRUE(host->report().clean()) << host->report().describe();
  }
};

TEST_P(CacheOnDevice, RandomOperationsMoveTheSameBytes) {
  int64_t copies = 0, writes = 0;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(rounds(25)); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    Mirror mirror(randomOptions(rng));
    const CacheOptions &options = mirror.cache.options();
    std::vector<Pool> pools;
    for (size_t c = 0; c < options.classes.size(); ++c)
      pools.emplace_back(*device, kernels(), static_cast<int32_t>(c), options.classes[c].pages,
                         options.pageTokens, rng);
    for (Pool &pool : pools)
      if (seed % 2)
        pool.record();
    mirror.watch = [&](const Movement &movement, const std::vector<uint64_t> &) {
      copies += std::ssize(movement.copies);
      writes += std::ssize(movement.writes);
      for (Pool &pool : pools)
        pool.execute(movement, rng);
    };
    for (int i = 0; i < 80 && !HasFailure(); ++i) {
      (void)randomOperation(mirror, rng);
      if (i % 10 == 9)
        for (Pool &pool : pools)
          pool.verify();
    }
    if (HasFailure())
      return;
  }
  EXPECT_GT(copies, 200);
  EXPECT_GT(writes, 3000);
  expectClean();
}

/// A launch recorded before there are any rows is replayed for other rows and other numbers of rows.
TEST_P(CacheOnDevice, OneRecordedLaunchServesAnyRows) {
  Rng rng(1);
  CacheKernel kernel = std::move(*CacheKernel::create(*device, append->manifest, append->source()));
  Twin k(*device, 2 * 100 * keyBytes, rng), v(*device, 2 * 100 * valueBytes, rng);
  Twin newK(*device, 2 * 50 * keyBytes, rng), newV(*device, 2 * 50 * valueBytes, rng);
  ASSERT_TRUE(kernel.reserve(50, 2));
  ASSERT_TRUE(
      kernel.bind({k.buffer.address(), v.buffer.address(), 100, 100 * keyBytes, 100 * valueBytes},
                  {newK.buffer.address(), newV.buffer.address(), 50, 50 * keyBytes, 50 * valueBytes}));
  ASSERT_TRUE(kernel.setRows({}));
  ASSERT_TRUE(device->beginRecording());
  ASSERT_TRUE(kernel.launch());
  auto recording = device->endRecording();
  ASSERT_TRUE(recording) << recording.error().message;
  for (size_t rows : {50, 0, 1, 13, 50}) {
    std::vector<int32_t> slots(rows);
    for (size_t row = 0; row < rows; ++row)
      slots[row] = row % 7 == 3 ? -1 : static_cast<int32_t>((row * 37 + rows) % 100);
    ASSERT_TRUE(kernel.setRows({{}, slots}));
    ASSERT_TRUE(device->replay(**recording));
    for (size_t layer = 0; layer < 2; ++layer)
      for (size_t row = 0; row < rows; ++row)
        for (auto [to, from, size] : {std::tuple(&k, &newK, keyBytes), std::tuple(&v, &newV, valueBytes)})
          if (slots[row] >= 0)
            std::copy_n(from->bytes.begin() + static_cast<int64_t>(layer * 50 + row) * size, size,
                        to->bytes.begin() + (static_cast<int64_t>(layer) * 100 + slots[row]) * size);
    EXPECT_TRUE(k.same(*device));
    EXPECT_TRUE(v.same(*device));
  }
  expectClean();
}

/// A step that moves nothing may be the first, and needs no rows.
TEST_P(CacheOnDevice, NothingMayComeFirst) {
  Rng rng(4);
  Pool pool(*device, kernels(), 0, 4, 16, rng);
  const Status set = pool.kernels.set({}, {});
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_TRUE(pool.kernels.launch());
  pool.verify();
  expectClean();
}

TEST_P(CacheOnDevice, WhatIsRefusedMovesNothing) {
  Rng rng(2);
  Pool pool(*device, kernels(), 0, 4, 16, rng);
  const auto refused = [&](const Movement &movement, const std::string &message,
                           const DeviceRows &rows = {}) {
    const Status status = pool.kernels.execute(movement, rows);
    EXPECT_EQ(status ? "done" : status.error().message, message);
    pool.verify();
  };
  refused({{{0, {4, 0}, {0, 0}, 1}}, {}, 0},
          "copy 0 of the movement reads slot 0 of page 4, but the pool has 4 pages, counted from 0");
  refused({{{0, {1, 0}, {0, 14}, 3}}, {}, 0}, "copy 0 of the movement writes 3 tokens from slot 14 of page 0 "
                                              "on, but they must lie within the page's 16 "
                                              "slots");
  refused(
      {{{0, {1, 0}, {2, 0}, 4}, {0, {2, 3}, {3, 0}, 1}}, {}, 0},
      "move: row 4 reads slot 35, which row 3 writes: rows are copied in any order, so no slot may be both");
  refused({{}, {{0, 0, {0, 0}, 2}}, 1}, "write 0 of the movement takes rows from 0 to 2, but it has 1");
  refused({{}, {{0, 0, {0, 0}, 1}, {0, 0, {1, 0}, 1}}, 1},
          "write 1 of the movement takes row 0, which goes to slot 0 already");
  refused({{}, {{0, 0, {0, 0}, 1}}, 1}, "cache kernels: expected 1 new tokens, got 0");
  refused({{}, {{0, 0, {0, 0}, 1}}, 401},
          "cache kernels: expected at most 400 new and 400 copied tokens, as reserved, got 401 and 0");
  // Both lists are checked before either is launched.
  refused({{{0, {1, 0}, {2, 0}, 1}}, {{0, 0, {0, 0}, 1}, {0, 1, {0, 0}, 1}}, 2},
          "append: rows 0 and 1 both write slot 0",
          {pool.newK.buffer.address(), pool.newV.buffer.address(), 2, 2 * keyBytes, 2 * valueBytes});
  // of another class: nothing to do
  EXPECT_TRUE(pool.kernels.execute({{{1, {9, 0}, {8, 0}, 1}}, {{1, 0, {7, 0}, 1}}, 1}));
  pool.verify();
}

/// Tokens with eight bits per key: each has 32 bytes of elements and 4 of metadata.
class Codes {
public:
  static constexpr int32_t pages = 4, slots = 64, rows = 3;
  const Format format = Format::integers(8, 32);

  Codes(Device &device, const std::string &target, Rng &rng)
      : device(device), append(function("append", "!attn.quantized<i8, per = 32>"), target),
        move(function("move", "!attn.quantized<i8, per = 32>"), target), k(device, slots * 32, rng),
        meta(device, slots * 4, rng), v(device, slots * valueBytes, rng), newK(device, rows * keyBytes, rng),
        newV(device, rows * valueBytes, rng) {
    for (size_t i = 0; i < rows * keyBytes / 2; ++i)
      reinterpret_cast<uint16_t *>(newK.bytes.data())[i] = toF16(static_cast<double>(i * i % 97) / 8 - 3);
    EXPECT_TRUE(device.copyIn(newK.buffer.address(), newK.bytes.data(), newK.bytes.size()));
  }
  CacheKernels kernels() {
    auto appends = CacheKernel::create(device, append.manifest, append.source());
    auto moves = CacheKernel::create(device, move.manifest, move.source());
    return std::move(*CacheKernels::create(std::move(*appends), std::move(*moves)));
  }
  DevicePages memory() const {
    return {.pages = pages,
            .k = k.buffer.address(),
            .v = v.buffer.address(),
            .kMeta = {meta.buffer.address(), 0}};
  }
  DeviceRows newRows() const { return {newK.buffer.address(), newV.buffer.address(), rows, 0, 0}; }
  /// Expects the content of a slot after an append of row `row`.
  void expectRow(size_t row, size_t slot) {
    std::vector<float> numbers(32);
    RowDecoder(Format::plain(DType::F16))
        .decode(reinterpret_cast<uint8_t *>(newK.bytes.data() + row * keyBytes), nullptr, numbers);
    auto *line = reinterpret_cast<uint8_t *>(meta.bytes.data() + slot * 4);
    EXPECT_EQ(clampRow(format, numbers), 0);
    findMeta(format, numbers, line);
    quantizeRow(format, numbers, line, reinterpret_cast<uint8_t *>(k.bytes.data() + slot * 32));
    std::copy_n(newV.bytes.begin() + static_cast<int64_t>(row) * valueBytes, valueBytes,
                v.bytes.begin() + static_cast<int64_t>(slot) * valueBytes);
  }

  Device &device;
  Compiled append, move;
  Twin k, meta, v, newK, newV;
};

TEST_P(CacheOnDevice, CodesAreQuantizedAndMoved) {
  Rng rng(5);
  Codes codes(*device, chip, rng);
  CacheKernels kernels = codes.kernels();
  ASSERT_TRUE(kernels.reserve(codes.memory(), Codes::rows, 8));
  // Tokens 16 to 19 are copied to 32, with three new ones after them.
  const Movement movement = {{{0, {1, 0}, {2, 0}, 4}}, {{0, 0, {2, 4}, 3}}, 3};
  const Status done = kernels.execute(movement, codes.newRows());
  ASSERT_TRUE(done) << done.error().message;
  for (auto [twin, bytes] : {std::pair(&codes.k, 32), std::pair(&codes.meta, 4),
                             std::pair(&codes.v, static_cast<int>(valueBytes))})
    std::copy_n(twin->bytes.begin() + 16 * bytes, 4 * bytes, twin->bytes.begin() + 32 * bytes);
  for (size_t row = 0; row < 3; ++row)
    codes.expectRow(row, 36 + row);
  EXPECT_TRUE(codes.k.same(*device));
  EXPECT_TRUE(codes.meta.same(*device));
  EXPECT_TRUE(codes.v.same(*device));
  expectClean();
}

TEST_P(CacheOnDevice, TwoWritersOfOneByteAreFound) {
  auto *host = dynamic_cast<HostDevice *>(device.get());
  if (!host)
    GTEST_SKIP() << "only the host device has detectors";
  Rng rng(6);
  Codes codes(*device, chip, rng);
  CacheKernels kernels = codes.kernels();
  DevicePages shared = codes.memory();
  shared.kMeta.address = shared.k; // metadata of some tokens overlaps the elements of others
  ASSERT_TRUE(kernels.reserve(shared, Codes::rows, 8));
  ASSERT_TRUE(kernels.execute({{}, {{0, 0, {0, 6}, 1}, {0, 1, {0, 0}, 1}}, 3}, codes.newRows()));
  EXPECT_FALSE(host->report().clean());
  EXPECT_GT(host->report().totals[static_cast<size_t>(host::FindingKind::Race)], 0u);
}

INSTANTIATE_TEST_SUITE_P(Devices, CacheOnDevice, ::testing::Values("host", "cuda"),
                         [](const auto &info) { return info.param; });

} // namespace
