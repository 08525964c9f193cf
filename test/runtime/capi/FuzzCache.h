//===- FuzzCache.h - Random calls on caches ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_CAPI_FUZZCACHE_H
#define ATTN_TEST_RUNTIME_CAPI_FUZZCACHE_H

#include "FuzzRuntime.h"

namespace attn::rt::test {

class CacheCaller : public RuntimeCaller {
public:
  using RuntimeCaller::RuntimeCaller;

protected:
  //===--- Caches ------------------------------------------------------------===//

  void makeCache() {
    AttnCache *made = nullptr;
    const AttnCacheClass classes[] = {{rarely() ? text({"", "kv"}) : "kv", rarely() ? small(99) : 40,
                                       rarely() ? small(40) : 0, small(9), small(2)},
                                      {"streaming", 40, 32, 8, 0}};
    take(attnCacheCreate(rarely() ? small(64) : 16, rarely() ? small(16) : 0, rarely() ? nullptr : classes,
                         rarely() ? 2 : 1, out(made)),
         made, world.caches);
  }
  void growCache() {
    const auto cache = world.caches.pick(rng);
    AttnMovement *made = nullptr;
    AttnNode one = 0;
    std::array<AttnNode, 64> many = {};
    switch (below(rng, 4)) {
    case 0:
      if (take(attnCacheCreateRoot(cache.get(), rarely() ? nullptr : &one)))
        world.keep(one);
      break;
    case 1: {
      const auto count = static_cast<int32_t>(below(rng, 3));
      if (take(attnCacheBranch(cache.get(), node(), rarely() ? -1 : count, many.data())))
        for (int32_t i = 0; i < count; ++i)
          world.keep(many[static_cast<size_t>(i)]);
      break;
    }
    case 2:
      if (take(attnCacheFork(cache.get(), node(), &one, out(made)), made, world.movements))
        world.keep(one);
      break;
    default:
      take(attnCacheAppend(cache.get(), node(), small(20), out(made)), made, world.movements);
    }
  }
  void shrinkCache() {
    const auto cache = world.caches.pick(rng);
    AttnMovement *made = nullptr;
    if (below(rng, 2))
      take(attnCacheTruncate(cache.get(), node(), small(9), out(made)), made, world.movements);
    else
      take(rarely() ? attnCacheEvict(cache.get(), node()) : attnCachePrune(cache.get(), node()));
  }
  void speculate() {
    const auto cache = world.caches.pick(rng);
    AttnMovement *made = nullptr;
    int32_t parents[6];
    for (int32_t i = 0; i < 6; ++i)
      parents[i] = rarely() ? small(9) : static_cast<int32_t>(below(rng, static_cast<size_t>(i) + 1)) - 1;
    if (below(rng, 2))
      take(attnCacheSpeculate(cache.get(), node(), rarely() ? nullptr : parents, below(rng, 7), out(made)),
           made, world.movements);
    else
      take(attnCacheCommit(cache.get(), node(), rarely() ? small(9) : static_cast<int32_t>(below(rng, 4)) - 1,
                           out(made)),
           made, world.movements);
  }
  void applyToCache() {
    const auto cache = world.caches.pick(rng);
    const AttnNode prune[] = {node()};
    const AttnAppend append[] = {{node(), small(9)}, {node(), 1}};
    const AttnBranch branch[] = {{node(), static_cast<int32_t>(below(rng, 3)), small(4)}};
    std::array<AttnNode, 64> children = {};
    AttnMovement *made = nullptr;
    const size_t branches = below(rng, 2);
    if (take(attnCacheApply(cache.get(), prune, rarely(), append, below(rng, 3), branch, branches,
                            children.data(), rarely() ? 0 : children.size(), out(made)),
             made, world.movements) &&
        branches)
      world.keep(children[0]);
  }
  void askCache() {
    const auto cache = world.caches.pick(rng);
    AttnNodeInfo info;
    take(attnCacheNode(cache.get(), node(), rarely() ? nullptr : &info));
    (void)attnCacheContains(cache.get(), node());
    EXPECT_GE(attnCacheNodeCount(cache.get()), 0);
    int32_t pages = 0;
    take(attnCacheFreePages(cache.get(), small(1), &pages));
    EXPECT_EQ(take(attnCacheCheckInvariants(cache.get())), bool(cache));
    std::array<AttnNode, 16> nodes;
    std::array<AttnTokenSpan, 16> spans;
    size_t count = 0;
    const size_t room = below(rng, 17);
    take(attnCacheRoots(cache.get(), rarely() ? nullptr : nodes.data(), room, &count));
    take(attnCacheChildren(cache.get(), node(), nodes.data(), room, rarely() ? nullptr : &count));
    take(attnCachePlaces(cache.get(), node(), small(1), spans.data(), room, &count));
    take(attnCacheDraftPlaces(cache.get(), node(), small(1), spans.data(), room, &count));
  }
  void useMovement() {
    const auto movement = world.movements.pick(rng);
    EXPECT_GE(attnMovementRows(movement.get()), 0);
    EXPECT_EQ(attnMovementCopy(movement.get(), attnMovementCopyCount(movement.get())).tokens, 0);
    EXPECT_EQ(attnMovementWrite(movement.get(), attnMovementWriteCount(movement.get())).tokens, 0);
    std::vector<uint8_t> pages(40 * 16 * 8), rows(64 * 8);
    const AttnPageMemory memory = {0,
                                   16,
                                   rarely() ? small(3) : 1,
                                   8,
                                   rarely() ? number(1 << 14) : static_cast<int64_t>(pages.size()),
                                   rarely() ? nullptr : pages.data(),
                                   rarely() ? below(rng, pages.size()) : pages.size(),
                                   rarely() ? nullptr : rows.data(),
                                   rarely() ? below(rng, rows.size()) : rows.size(),
                                   rarely() ? number(64) : static_cast<int64_t>(rows.size())};
    take(attnMovementExecute(movement.get(), rarely() ? nullptr : &memory));
  }

  //===--- Kernels on caches -------------------------------------------------===//

  AttnDevicePages devicePages() {
    AttnDevicePages pages = {};
    pages.pages = rarely() ? small(40) : 40;
    pages.pageTokens = rarely() ? small(16) : 16;
    pages.layers = rarely() ? small(2) : 1;
    pages.k = rarely() ? rng() : 1 << 20;
    pages.v = 1 << 28;
    return pages;
  }
  AttnDeviceRows deviceRows() {
    return {1 << 20,
            1 << 28,
            number(40),
            number(4096),
            number(4096),
            rarely() ? small(2) : 0,
            rarely() ? small(2) : 0};
  }
  void makeCacheKernels() {
    const auto append = world.kernels.pick(rng), move = world.kernels.pick(rng);
    AttnCacheKernels *made = nullptr;
    take(attnCacheKernelsCreate(append.get(), move.get(), out(made)), made, world.cacheKernels);
  }
  void useCacheKernels() {
    const auto kernels = world.cacheKernels.pick(rng);
    const auto movement = world.movements.pick(rng);
    const auto memory = world.memories.pick(rng);
    const AttnDevicePages pages = devicePages();
    const AttnDeviceRows rows = deviceRows();
    const uint64_t list = rarely() ? rng() : attnMemoryAddress(memory.get());
    const size_t bytes = rarely() ? below(rng, 64) : attnMemorySize(memory.get());
    switch (below(rng, 4)) {
    case 0:
      take(attnCacheKernelsReserve(kernels.get(), rarely() ? nullptr : &pages, number(64), number(64)));
      break;
    case 1:
      take(attnCacheKernelsExecute(kernels.get(), movement.get(), rarely() ? nullptr : &rows, 0));
      break;
    case 2:
      take(attnCacheKernelsAppend(kernels.get(), list, bytes, &rows, 0));
      break;
    default:
      take(attnCacheKernelsMove(kernels.get(), list, bytes, 0));
    }
  }
  void makeStepTables() {
    const auto kernel = world.kernels.pick(rng);
    const auto cache = world.caches.pick(rng);
    const AttnStepOperand operands[] = {{{rarely() ? small(2) : 0, true, below(rng, 2) == 0}, small(9)}};
    AttnStepTables *made = nullptr;
    take(attnStepTablesCreate(kernel.get(), cache.get(), small(4), small(8), small(30), operands,
                              rarely() ? 0 : 1, out(made)),
         made, world.stepTables);
  }
  void useStepTables() {
    const auto tables = world.stepTables.pick(rng);
    const auto cache = world.caches.pick(rng);
    const auto movement = world.movements.pick(rng);
    const auto memory = world.memories.pick(rng);
    size_t first = 0, words = 0;
    take(attnStepTablesPlace(tables.get(), static_cast<size_t>(number(5)), &first, &words));
    EXPECT_GE(attnStepTablesRows(tables.get()), 0);
    (void)attnStepTablesName(tables.get(), static_cast<size_t>(number(5)));
    const AttnAppend append[] = {{node(), small(3)}};
    const std::vector<AttnRowGroup> rows = groups();
    const bool isLarge = attnMemorySize(memory.get()) >= 4 * attnStepTablesWords(tables.get());
    switch (below(rng, 3)) {
    case 0:
      take(attnStepTablesTake(tables.get(), cache.get(), movement.get()));
      break;
    case 1:
      take(attnStepTablesAppend(tables.get(), cache.get(), append, below(rng, 2)));
      break;
    default:
      take(attnStepTablesUpdate(tables.get(), cache.get(), rows.data(), rows.size(),
                                isLarge ? attnMemoryAddress(memory.get()) : 0,
                                isLarge ? attnMemorySize(memory.get()) : 0, 0));
    }
  }
  void makeOtherKernels() {
    const auto kernel = world.kernels.pick(rng);
    AttnRequantizer *requantizer = nullptr;
    EXPECT_FALSE(take(attnRequantizerCreate(kernel.get(), out(requantizer)))) << "no sample is one";
    AttnTableOperation *operation = nullptr;
    const int64_t sizes[] = {number(9), number(9), number(9), number(9)};
    EXPECT_FALSE(take(attnTableOperationCreate(kernel.get(), sizes, below(rng, 5), out(operation))))
        << "no sample is one";
    take(attnRequantizerReserve(nullptr, number(9), small(2)));
    take(attnTableOperationLaunch(nullptr, nullptr, 0, 0));
  }
};

} // namespace attn::rt::test

#endif
