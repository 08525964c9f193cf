//===- TableOperationTest.cpp - Pages of lists by any number of blocks ----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random steps of many lists, recorded once and replayed. Grids of one block, which handles its lists in
// rounds, and of many blocks leave equal bytes, and every page is in exactly one list. The contents of
// tensors are tested against lists of Python (test/python/cache/test_page_pool.py). `cuda` needs a driver and
// is skipped without one.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/session/TableOperation.h"
#include "Compiled.h"
#include "Fuzz.h"
#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/session/CacheKernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

using namespace attn::rt;
using namespace attn::rt::test;

namespace {

constexpr int64_t lists = 1000, columns = 6, pages = 3300, flags = 48, moves = 3;

const char *const manageText = R"(
  func.func @manage(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                    %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %free: tensor<?xi32> {attn.name = "free"},
                    %span: tensor<2xi32> {attn.name = "span"}, %status: tensor<4xi32> {attn.name = "status"}) {
    attn.manage_pages %table counts %counts of %tokens left 8 right 16 free %free span %span status %status
        : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?xi32>, tensor<2xi32>, tensor<4xi32>
    return
  })";
const char *const compactText = R"(
  func.func @compact(%table: tensor<?x?xi32> {attn.name = "table"}, %counts: tensor<?x2xi32> {attn.name = "counts"},
                     %tokens: tensor<?x2xi32> {attn.name = "tokens"}, %keep: tensor<?x?xi8> {attn.name = "keep"},
                     %from: tensor<?x?xi32> {attn.name = "from"}, %to: tensor<?x?xi32> {attn.name = "to"},
                     %status: tensor<1xi32> {attn.name = "status"}) {
    attn.compact_tokens %table counts %counts of %tokens page 8 keep %keep from %from to %to status %status
        : tensor<?x?xi32>, tensor<?x2xi32>, tensor<?x2xi32>, tensor<?x?xi8>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<1xi32>
    return
  })";

const char *const moveText = R"(
  !kv = !attn.kv<paged<8>, heads = 1, dim = 32, key = f16, value = f16>
  !slots = tensor<?xi32>
  func.func @move(%kv: !kv {attn.name = "kv"}, %from: !slots {attn.name = "from"}, %to: !slots {attn.name = "to"}) {
    attn.move %kv from %from to %to : !kv, !slots, !slots
    return
  })";

class TablesOnDevice : public ::testing::TestWithParam<std::string> {
protected:
  std::unique_ptr<Device> device;
  std::string chip; ///< target of a GPU

  void SetUp() override {
    if (GetParam() == "host") {
      device = makeHostDevice();
      return;
    }
    auto opened = openCudaDevice();
    if (!opened)
      GTEST_SKIP() << opened.error().message;
    device = std::move(*opened);
    chip = device->properties().computeCapability == 90 ? "sm_90a" : "sm_80";
  }
  void expectClean() {
    if (auto *host = dynamic_cast<HostDevice *>(device.get()))
      EXPECT_TRUE(host->report().clean()) << host->report().describe();
  }
};

/// Tables with recorded operations of this many blocks.
struct Tables {
  Device &device;
  TableOperation manage, compact;
  std::unique_ptr<Recording> managed, compacted;
  std::vector<int32_t> table = std::vector<int32_t>(lists * columns, -1),
                       counts = std::vector<int32_t>(lists * 2), tokens = counts,
                       free = std::vector<int32_t>(pages), span = {0, pages},
                       status = std::vector<int32_t>(4), from = std::vector<int32_t>(lists * moves),
                       to = from;
  std::vector<int8_t> keep = std::vector<int8_t>(lists * flags);
  std::vector<int32_t> left = {0};
  std::vector<Buffer> buffers;

  static TableOperation load(Device &device, const Compiled &compiled) {
    auto module = device.load(compiled.source());
    EXPECT_TRUE(module);
    auto made =
        TableOperation::create(device, compiled.manifest, std::shared_ptr<Module>(std::move(*module)));
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

  Tables(Device &device, const Compiled &manageCode, const Compiled &compactCode, int blocks)
      : device(device), manage(load(device, manageCode)), compact(load(device, compactCode)) {
    std::iota(free.begin(), free.end(), 0);
    const int64_t sizes[] = {lists, columns, pages}, compactSizes[] = {lists, columns, flags, moves};
    EXPECT_TRUE(manage.reserve(sizes, blocks)) << blocks;
    EXPECT_TRUE(compact.reserve(compactSizes, blocks)) << blocks;
    EXPECT_EQ(manage.blocks(), blocks);
    for (std::vector<int32_t> *words : {&table, &counts, &tokens, &free, &span, &status, &from, &to, &left})
      add(words->data(), words->size() * 4);
    add(keep.data(), keep.size());
    const auto at = [&](size_t i) { return buffers[i].address(); };
    const DeviceAddress ofManage[] = {at(0), at(1), at(2), at(3), at(4), at(5)},
                        ofCompact[] = {at(0), at(1), at(2), at(9), at(6), at(7), at(8)};
    EXPECT_TRUE(manage.bind(ofManage));
    EXPECT_TRUE(compact.bind(ofCompact));
    managed = record(manage);
    compacted = record(compact);
  }
  void add(const void *data, size_t bytes) {
    buffers.push_back(std::move(*Buffer::create(device, bytes, "table")));
    EXPECT_TRUE(device.copyIn(buffers.back().address(), data, bytes));
  }
  std::unique_ptr<Recording> record(TableOperation &operation) {
    EXPECT_TRUE(device.beginRecording());
    EXPECT_TRUE(operation.launch());
    auto recording = device.endRecording();
    EXPECT_TRUE(recording);
    return std::move(*recording);
  }
  void write(size_t buffer, const void *data, size_t bytes) {
    EXPECT_TRUE(device.copyIn(buffers[buffer].address(), data, bytes));
  }
  void read() {
    size_t i = 0;
    for (std::vector<int32_t> *words : {&table, &counts, &tokens, &free, &span, &status, &from, &to, &left})
      EXPECT_TRUE(device.copyOut(words->data(), buffers[i++].address(), words->size() * 4));
  }
  /// Returns all pages, of the tables and of the ring.
  std::vector<int32_t> held() const {
    std::vector<int32_t> found;
    std::copy_if(table.begin(), table.end(), std::back_inserter(found),
                 [](int32_t page) { return page >= 0; });
    for (int32_t i = 0; i < span[1]; ++i)
      found.push_back(free[static_cast<size_t>((span[0] + i) % pages)]);
    std::sort(found.begin(), found.end());
    return found;
  }
  auto words() const { return std::tie(table, counts, tokens, free, span, status, from, to, left); }
};

TEST_P(TablesOnDevice, BlocksOfAnyNumberDoTheSame) {
  const Compiled manage(manageText, chip), compact(compactText, chip);
  std::vector<Tables> all;
  for (int blocks : {4, 1, 3, 16})
    all.emplace_back(*device, manage, compact, blocks);
  std::vector<int32_t> everyPage(pages), tokens(lists * 2);
  std::iota(everyPage.begin(), everyPage.end(), 0);
  std::vector<int8_t> keep(lists * flags);
  Rng rng(3);
  int done = 0, asked = 0;
  for (int step = 0; step < 8; ++step) {
    // Some lists do not fit their rows in step 4, and all together not the pool in step 6.
    const uint64_t most = step == 4 ? 49 : step == 6 ? 33 : 24;
    for (int32_t &count : tokens)
      count = static_cast<int32_t>(step % 2 ? static_cast<uint64_t>(count) + rng() % 4 : rng() % most);
    for (int8_t &flag : keep)
      flag = rng() % 8 != 0;
    for (Tables &each : all) {
      each.write(2, tokens.data(), tokens.size() * 4);
      each.write(9, keep.data(), keep.size());
      ASSERT_TRUE(device->replay(*each.managed));
      ASSERT_TRUE(device->replay(*each.compacted));
      each.read();
      ASSERT_EQ(each.words(), all.front().words()) << "step " << step << ", blocks " << each.manage.blocks();
    }
    ASSERT_EQ(all.front().held(), everyPage) << "step " << step;
    tokens = all.front().tokens;
    done += all.front().status[0];
    asked += all.front().status[1];
  }
  EXPECT_TRUE(done >= 3 && done <= 6 && asked > pages) << done << ", " << asked;
  expectClean();
}

/// Returns the marks of a list's tokens at the left, in order: flagged tokens, or all.
std::vector<uint16_t> marksOf(const Tables &tables, const std::vector<uint16_t> &k, int64_t list, bool all) {
  std::vector<uint16_t> marks;
  for (int64_t i = 0; i < tables.tokens[static_cast<size_t>(2 * list)]; ++i) {
    const int32_t page = tables.table[static_cast<size_t>(list * columns + i / 8)];
    if (all || tables.keep[static_cast<size_t>(list * flags + i)])
      marks.push_back(k[static_cast<size_t>(page * 8 + i % 8) * 32]);
  }
  std::sort(marks.begin(), marks.end());
  return marks;
}

TEST_P(TablesOnDevice, CompactionsAreMovesOfACache) {
  const Compiled manage(manageText, chip), compact(compactText, chip), move(moveText, chip);
  Tables tables(*device, manage, compact, 4);
  Rng rng(7);
  for (int64_t list = 0; list < lists; ++list)
    tables.tokens[static_cast<size_t>(2 * list)] = static_cast<int32_t>(rng() % 24);
  for (int8_t &flag : tables.keep)
    flag = rng() % 6 != 0;
  tables.write(2, tables.tokens.data(), tables.tokens.size() * 4);
  tables.write(9, tables.keep.data(), tables.keep.size());
  ASSERT_TRUE(device->replay(*tables.managed));
  tables.read();
  ASSERT_EQ(tables.status[0], 1);
  constexpr int64_t slots = pages * 8, elements = slots * 32;
  std::vector<uint16_t> k(elements);
  for (size_t i = 0; i < k.size(); ++i)
    k[i] = static_cast<uint16_t>(i / 32);
  Buffer keys = std::move(*Buffer::create(*device, elements * 2, "keys")),
         values = std::move(*Buffer::create(*device, elements * 2, "values"));
  for (const Buffer *buffer : {&keys, &values})
    ASSERT_TRUE(device->copyIn(buffer->address(), k.data(), elements * 2));
  std::vector<std::vector<uint16_t>> all, kept;
  for (int64_t list = 0; list < lists; ++list) {
    all.push_back(marksOf(tables, k, list, true));
    kept.push_back(marksOf(tables, k, list, false));
  }

  ASSERT_TRUE(device->replay(*tables.compacted));
  tables.read();
  auto moves = CacheKernel::create(*device, move.manifest, move.source());
  ASSERT_TRUE(moves);
  ASSERT_TRUE(moves->reserve(static_cast<int64_t>(tables.from.size()), 1));
  ASSERT_TRUE(moves->bind({.k = keys.address(), .v = values.address(), .count = slots}));
  const Status set = moves->setRows({tables.from, tables.to}); // checks them
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_TRUE(moves->launch());
  ASSERT_TRUE(device->copyOut(k.data(), keys.address(), elements * 2));
  int64_t left = 0;
  for (int64_t list = 0; list < lists; ++list) {
    const auto l = static_cast<size_t>(list);
    const bool stayed = static_cast<size_t>(tables.tokens[2 * l]) == all[l].size() && kept[l] != all[l];
    left += stayed;
    EXPECT_EQ(marksOf(tables, k, list, true), stayed ? all[l] : kept[l]) << "list " << list;
  }
  EXPECT_TRUE(left == tables.left[0] && left > 0 && left < lists / 2) << left << ", " << tables.left[0];
  expectClean();
}

TEST_P(TablesOnDevice, WhatIsRefused) {
  const Compiled manage(manageText, chip);
  TableOperation operation = Tables::load(*device, manage);
  EXPECT_EQ(operation.sizeNames(), (std::vector<std::string>{"lists", "columns", "pages"}));
  const auto fault = [](const Status &status) { return status ? "none" : status.error().message; };
  EXPECT_EQ(fault(operation.launch()), "table operation 'manage': launch before bind");
  EXPECT_EQ(fault(operation.bind({})), "table operation 'manage': bind before reserve");
  const int64_t two[] = {1, 2}, none[] = {1, 0, 1}, most[] = {4, 4, int64_t{1} << 30},
                wide[] = {3, 1 << 30, 1}, right[] = {4, 4, 4};
  EXPECT_EQ(fault(operation.reserve(two)),
            "table operation 'manage': expected the sizes lists, columns, pages, got 2 numbers");
  EXPECT_EQ(fault(operation.reserve(none)),
            "table operation 'manage': expected 1 to 2147483647 columns, got 0; nearest legal: 1");
  EXPECT_EQ(
      fault(operation.reserve(most)),
      "table operation 'manage': expected 1 to 536870912 pages, got 1073741824; nearest legal: 536870912");
  EXPECT_EQ(
      fault(operation.reserve(wide)),
      "table operation 'manage': expected at most 715827882 columns of 3 lists in 'table', got 1073741824");
  EXPECT_EQ(fault(operation.reserve(right, 0)),
            "table operation 'manage': expected 1 to 65536 blocks, got 0");
  ASSERT_TRUE(operation.reserve(right));
  const DeviceAddress some[] = {16, 32}, odd[] = {16, 32, 48, 72, 80, 96};
  EXPECT_EQ(fault(operation.bind(some)),
            "table operation 'manage': expected an address of each of the 6 tensors, got 2");
  EXPECT_EQ(fault(operation.bind(odd)),
            "table operation 'manage': expected 'free' at a multiple of 16, got 72");
  TableOperation compact = Tables::load(*device, Compiled(compactText, chip));
  const int64_t uneven[] = {4, 4, 24, 1}, many[] = {1, 1, (int64_t{1} << 30) + 16, 1};
  EXPECT_EQ(fault(compact.reserve(uneven)),
            "table operation 'compact': expected a multiple of 16 flags, got 24; nearest legal: 32");
  EXPECT_EQ(fault(compact.reserve(many)), "table operation 'compact': expected 1 to 1073741824 flags, got "
                                          "1073741840; nearest legal: 1073741824");
}

INSTANTIATE_TEST_SUITE_P(Devices, TablesOnDevice, ::testing::Values("host", "cuda"),
                         [](const auto &info) { return info.param; });

} // namespace
