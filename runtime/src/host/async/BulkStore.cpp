//===- BulkStore.cpp - cp.async.bulk.tensor to global memory --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two moments are free. The box is read between the issue and a wait that covers it. The
// bytes are written to global memory between that read and a wait without `.read`, or the
// block's end if there is none.
//
// Additions of blocks that wait for each other happen at that moment: their order is the
// kernel's affair. A shuffled block is late with some, so that another could be early.
// Other additions are deferred (DeferredAdd).
//
//===----------------------------------------------------------------------===//
#include "BulkCopy.h"
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"
#include "host/machine/Swizzle.h"
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace attn::rt::host {

static void read(Block &block, BulkStore &store) {
  if (store.read)
    return;
  store.read = true;
  const uint32_t rowBytes = store.rowBytes(), span = store.map.swizzle;
  store.bytes.resize(store.map.boxBytes());
  for (uint32_t at = 0; at < store.bytes.size(); at += rowBytes)
    for (uint32_t i = at; i < at + rowBytes; i += 16)
      std::memcpy(store.bytes.data() + i, block.shared + swizzle(store.offset + i, span), 16);
}

static void write(Block &block, BulkStore &store) {
  if (store.written)
    return;
  store.written = true;
  if (!store.accessible)
    return;
  forRows(store, [&](const BulkRow &row) {
    const uint8_t *from = store.bytes.data() + (row.offset - store.offset) + row.begin;
    if (row.bytes() && !store.adds)
      std::memcpy(reinterpret_cast<void *>(row.address), from, row.bytes());
    for (uint32_t i = 0; store.adds && i < row.bytes(); i += sizeof(float)) {
      float value;
      std::memcpy(&value, from + i, sizeof value);
      auto *sum = reinterpret_cast<float *>(row.address + i);
      if (block.grid->kernel.inOrder)
        std::atomic_ref(*sum).fetch_add(value, std::memory_order_relaxed);
      else
        block.adds.push_back({sum, value});
    }
  });
}

void abandonBulkStores(Lane &lane) {
  for (BulkStore &store : lane.block->bulkStores)
    if (store.thread == lane.thread && !store.read) {
      store.read = true; // whatever the memory holds at that moment
      store.bytes.assign(store.map.boxBytes(), 0xff);
    }
}

void finishBulkStores(Block &block) {
  for (BulkStore &store : block.bulkStores)
    write(block, store);
}

} // namespace attn::rt::host

using namespace attn::rt::host;

/// Lets other blocks overtake one that adds, unless the kernel forbids it.
static void delay(Block &block) {
  constexpr uint32_t oneOf = 16, mostMicroseconds = 16000;
  if (block.shuffle && block.grid->kernel.inOrder && block.schedule.below(oneOf) == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(block.schedule.below(mostMicroseconds)));
}

static void issue(LaneAbi *abi, uint32_t op, const void *from, const void *map, uint32_t rank,
                  const int32_t *at, bool adds) {
  Lane &lane = laneOf(abi);
  Block &block = *lane.block;
  BulkStore store;
  if (!makeBulkBox(lane, op, from, map, rank, at, store))
    return;
  store.adds = adds;
  store.group = lane.openBulkGroup;
  store.sequence = ++lane.bulkStores;
  if (store.offset % 128 || store.offset + store.map.boxBytes() > kArenaBytes)
    store.read = store.written = true; // nothing is stored
  if (block.checker && !block.checker->bulkStored(lane, store))
    store.read = store.written = true;
  const AsyncEffects effects = block.grid->options.asyncEffects;
  const uint32_t draw = effects == AsyncEffects::Random  ? block.effects.below(3)
                        : effects == AsyncEffects::Eager ? 0
                                                         : 2;
  if (draw < 2)
    read(block, store);
  if (draw < 1)
    write(block, store);
  block.bulkStores.push_back(std::move(store));
}

void attn_host_bulk_store(LaneAbi *abi, uint32_t op, const void *from, const void *map, uint32_t rank,
                          int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
  const int32_t at[] = {c0, c1, c2, c3, c4};
  issue(abi, op, from, map, rank, at, /*adds=*/false);
}

void attn_host_bulk_add(LaneAbi *abi, uint32_t op, const void *from, const void *map, uint32_t rank,
                        int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
  const int32_t at[] = {c0, c1, c2, c3, c4};
  delay(*laneOf(abi).block);
  issue(abi, op, from, map, rank, at, /*adds=*/true);
}

void attn_host_bulk_commit(LaneAbi *abi) { ++laneOf(abi).openBulkGroup; }

void attn_host_bulk_wait(LaneAbi *abi, uint32_t newest, uint32_t reading) {
  Lane &lane = laneOf(abi);
  Block &block = *lane.block;
  const auto covered = [&](const BulkStore &store) {
    return store.thread == lane.thread && store.group + newest < lane.openBulkGroup;
  };
  for (BulkStore &store : block.bulkStores) {
    if (!covered(store))
      continue;
    read(block, store);
    if (!reading)
      write(block, store);
    if (block.checker)
      block.checker->bulkWaited(lane, store, reading);
    store.released = true;
    if (reading && store.written && store.sequence > lane.readStores)
      lane.readStores = store.sequence, lane.readGroup = store.group;
  }
  if (!reading && block.checker && lane.readStores && lane.readGroup + newest < lane.openBulkGroup)
    block.checker->bulkWritten(lane, lane.readStores);
  std::erase_if(block.bulkStores,
                [&](const BulkStore &store) { return covered(store) && store.read && store.written; });
}
