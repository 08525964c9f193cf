//===- AdoptTest.cpp - Memory of the caller's -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/device/HostDevice.h"

#include <gtest/gtest.h>

using namespace attn::rt;

namespace {

TEST(Adopt, MemoryOfTheCallerIsAnAllocation) {
  auto device = makeHostDevice();
  std::vector<uint8_t> memory(1000, 7);
  EXPECT_FALSE(device->holds(memory.data(), 1));
  ASSERT_TRUE(device->adopt(memory.data(), memory.size(), "mine"));
  EXPECT_TRUE(device->holds(memory.data(), 1000));
  EXPECT_FALSE(device->holds(memory.data(), 1001));
  uint8_t byte = 0;
  ASSERT_TRUE(device->copyOut(&byte, reinterpret_cast<DeviceAddress>(memory.data()) + 999, 1));
  EXPECT_EQ(byte, 7);
  ASSERT_TRUE(device->release(memory.data()));
  EXPECT_FALSE(device->holds(memory.data(), 1));
  EXPECT_EQ(memory[0], 7); // released, not freed
  EXPECT_FALSE(device->release(memory.data()));
}

TEST(Adopt, WhatOverlapsIsRefused) {
  auto device = makeHostDevice();
  std::vector<uint8_t> memory(1000);
  ASSERT_TRUE(device->adopt(memory.data() + 100, 100, "first"));
  ASSERT_TRUE(device->adopt(memory.data() + 200, 100, "second"));
  const std::pair<size_t, size_t> ranges[] = {{0, 101},  {0, 1000}, {100, 100},
                                              {120, 10}, {199, 1},  {199, 200}};
  for (const auto &[begin, bytes] : ranges) {
    Status status = device->adopt(memory.data() + begin, bytes, "third");
    ASSERT_FALSE(status) << begin;
    EXPECT_EQ(status.error().message.find("host: 'third' overlaps '"), 0u) << status.error().message;
  }
  EXPECT_TRUE(device->adopt(memory.data(), 100, "before"));
  EXPECT_TRUE(device->adopt(memory.data() + 300, 700, "after"));
  for (void *address : {static_cast<void *>(nullptr), reinterpret_cast<void *>(~uintptr_t{15})}) {
    Status status = device->adopt(address, 1000, "nothing");
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message.find("host: 'nothing' is no memory: 1000 bytes"), 0u);
  }
}

} // namespace
