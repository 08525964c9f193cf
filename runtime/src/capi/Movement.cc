//===- Movement.cc - The C API's movements --------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/CacheMemory.h"
#include "attn_rt/cache/StepTables.h"
#include "attn_rt/capi/Objects.h"
#include "attn_rt/session/CacheKernels.h"
#include "capi/Adopted.h"
#include "capi/CacheObjects.h"

using namespace attn::rt;
using namespace attn::rt::capi;

void attnMovementDestroy(AttnMovement *movement) { delete movement; }
int32_t attnMovementRows(const AttnMovement *movement) { return movement ? movement->movement.rows : 0; }
size_t attnMovementCopyCount(const AttnMovement *movement) {
  return movement ? movement->movement.copies.size() : 0;
}
size_t attnMovementWriteCount(const AttnMovement *movement) {
  return movement ? movement->movement.writes.size() : 0;
}

AttnTokenCopy attnMovementCopy(const AttnMovement *movement, size_t index) {
  if (index >= attnMovementCopyCount(movement))
    return {};
  const Movement::Copy &copy = movement->movement.copies[index];
  return {copy.headClass, copy.from.page, copy.from.slot, copy.to.page, copy.to.slot, copy.tokens};
}

AttnTokenWrite attnMovementWrite(const AttnMovement *movement, size_t index) {
  if (index >= attnMovementWriteCount(movement))
    return {};
  const Movement::Write &write = movement->movement.writes[index];
  return {write.headClass, write.row, write.to.page, write.to.slot, write.tokens};
}

AttnStatus attnMovementExecute(const AttnMovement *movement, const AttnPageMemory *memory) {
  return guarded([&]() -> Status {
    if (Status status = required("movement, memory", movement, memory); !status)
      return status;
    if (memory->pageTokens < 1)
      return inputError("page_tokens: expected at least 1, got " + std::to_string(memory->pageTokens));
    if ((memory->pagesSize && !memory->pages) || (memory->rowsSize && !memory->rows))
      return inputError("cache memory: expected an address, got null");
    return executeMovement(
        movement->movement, memory->headClass, memory->pageTokens,
        {{static_cast<std::byte *>(memory->pages), memory->pagesSize},
         memory->tokenBytes,
         memory->layers,
         memory->layerBytes},
        {{static_cast<const std::byte *>(memory->rows), memory->rowsSize}, memory->rowsLayerBytes});
  });
}

struct AttnCacheKernels {
  std::shared_ptr<LoadedKernel> append, move;
  std::optional<CacheKernels> kernels;
  /// Bytes per token of keys or values in pages and in new rows, and of a layer's metadata.
  struct Sizes {
    int64_t slot, row, meta;
  };
  Sizes keys = {}, values = {};
  DevicePages pages = {};
  Lock lock = {};

  AttnCacheKernels(std::shared_ptr<LoadedKernel> append, std::shared_ptr<LoadedKernel> move)
      : append(std::move(append)), move(std::move(move)) {}
  ~AttnCacheKernels() {
    if (!kernels)
      return;
    auto held = append->device->use();
    if (held)
      kernels.reset();
    else
      new (std::nothrow) CacheKernels(std::move(*kernels)); // their buffers belong to a device that is lost
  }
};

AttnStatus attnCacheKernelsCreate(const AttnKernel *append, const AttnKernel *move,
                                  AttnCacheKernels **kernels) {
  return guarded([&]() -> Status {
    if (Status status = required("append, move, kernels", append, move, kernels); !status)
      return status;
    const std::shared_ptr<SharedDevice> &device = append->loaded->device;
    if (move->loaded->device != device)
      return inputError("cache kernels: expected an append and a move on one device");
    auto made = std::make_unique<AttnCacheKernels>(append->loaded, move->loaded);
    auto held = device->use();
    if (!held)
      return held.error();
    Result<CacheKernel> first =
        CacheKernel::create(*device->device, made->append->manifest, made->append->module);
    if (!first)
      return first.error();
    made->keys = {first->slotBytes(true), first->rowBytes(true), 0};
    made->values = {first->slotBytes(false), first->rowBytes(false), 0};
    Result<CacheKernel> second =
        CacheKernel::create(*device->device, made->move->manifest, made->move->module);
    if (!second)
      return second.error();
    Result<CacheKernels> both = CacheKernels::create(std::move(*first), std::move(*second));
    if (!both)
      return both.error();
    made->kernels.emplace(std::move(*both));
    *kernels = made.release();
    return {};
  });
}

void attnCacheKernelsDestroy(AttnCacheKernels *kernels) { delete kernels; }

AttnStatus attnCacheKernelsReserve(AttnCacheKernels *kernels, const AttnDevicePages *pages, int64_t newTokens,
                                   int64_t copiedTokens) {
  return guarded([&]() -> Status {
    if (Status status = required("kernels, pages", kernels, pages); !status)
      return status;
    constexpr int64_t most = int64_t{1} << 28;
    if (newTokens < 0 || newTokens > most || copiedTokens < 0 || copiedTokens > most)
      return inputError("cache kernels: expected room for 0 to 2^28 tokens, got " +
                        std::to_string(newTokens) + " and " + std::to_string(copiedTokens));
    if (pages->layers < 1 || pages->kLayerBytes < 0 || pages->vLayerBytes < 0 || pages->kMetaLayerBytes < 0 ||
        pages->vMetaLayerBytes < 0 || pages->kScaleLayerBytes < 0 || pages->vScaleLayerBytes < 0)
      return inputError("cache kernels: expected at least 1 layer, and layers in ascending order");
    auto mine = kernels->lock.take("the cache kernels");
    if (!mine)
      return mine.error();
    auto held = kernels->append->device->use();
    if (!held)
      return held.error();
    const DevicePages given{pages->headClass,
                            pages->pages,
                            pages->pageTokens,
                            pages->layers,
                            pages->k,
                            pages->v,
                            pages->kLayerBytes,
                            pages->vLayerBytes,
                            {pages->kMeta, pages->kMetaLayerBytes},
                            {pages->vMeta, pages->vMetaLayerBytes},
                            {pages->kScale, pages->kScaleLayerBytes},
                            {pages->vScale, pages->vScaleLayerBytes},
                            pages->status};
    Status reserved = kernels->kernels->reserve(given, newTokens, copiedTokens);
    kernels->pages = reserved ? given : DevicePages{};
    const int64_t slots = int64_t{given.pages} * given.pageTokens;
    kernels->keys.meta = kernels->kernels->append().metaBytes(true, slots);
    kernels->values.meta = kernels->kernels->append().metaBytes(false, slots);
    return reserved;
  });
}

/// Bytes from the first to the end of the last token of [layers, count] tokens.
static size_t extent(int32_t layers, int64_t layerBytes, int64_t count, int64_t tokenBytes) {
  return static_cast<size_t>(int64_t{layers - 1} * layerBytes + count * tokenBytes);
}

static Status readRows(const AttnCacheKernels &kernels, const AttnDeviceRows *rows, DeviceRows &given,
                       LayerRange &layers) {
  if (!rows)
    return {};
  given = {rows->k, rows->v, rows->count, rows->kLayerBytes, rows->vLayerBytes};
  layers = {rows->firstLayer, rows->layers};
  if (given.count < 0 || given.count > 1 << 28 || given.kLayerBytes < 0 || given.vLayerBytes < 0)
    return inputError("cache kernels: expected 0 to 2^28 new tokens, and layers in ascending order, got " +
                      std::to_string(given.count));
  if (given.count && (!given.k || (kernels.values.row && !given.v)))
    return inputError("cache kernels: expected addresses of new keys and values, got null");
  return {};
}

/// Registers the pages and new tokens on the host device.
static void addMemory(const AttnCacheKernels &kernels, const DeviceRows &rows, const LayerRange &range,
                      Adopted &adopted) {
  const DevicePages &pages = kernels.pages;
  const int64_t slots = int64_t{pages.pages} * pages.pageTokens;
  if (slots) {
    adopted.add(pages.k, extent(pages.layers, pages.kLayerBytes, slots, kernels.keys.slot), "keys");
    if (kernels.values.slot) // otherwise values are a part of the keys
      adopted.add(pages.v, extent(pages.layers, pages.vLayerBytes, slots, kernels.values.slot), "values");
  }
  for (auto [meta, bytes, name] : {std::tuple(pages.kMeta, kernels.keys.meta, "metadata of keys"),
                                   std::tuple(pages.vMeta, kernels.values.meta, "metadata of values"),
                                   std::tuple(pages.kScale, int64_t{4}, "the scale of keys"),
                                   std::tuple(pages.vScale, int64_t{4}, "the scale of values")})
    if (slots && meta.address)
      adopted.add(meta.address, extent(pages.layers, meta.layerBytes, 1, bytes), name);
  if (pages.status)
    adopted.add(pages.status, sizeof(int32_t), "status");
  if (const int32_t layers = range.count > 0 ? range.count : pages.layers; rows.count) {
    adopted.add(rows.k, extent(layers, rows.kLayerBytes, rows.count, kernels.keys.row), "new keys");
    if (kernels.values.row)
      adopted.add(rows.v, extent(layers, rows.vLayerBytes, rows.count, kernels.values.row), "new values");
  }
}

/// Memory of the caller with a list of slots.
struct SlotList {
  uint64_t address;
  size_t bytes;
  const char *name;
};

/// Locks the kernels and the device and calls `launch` with the rows of a call, if there are any, unless
/// `check` fails.
template <typename Check, typename Launch>
static Status launchOver(AttnCacheKernels &kernels, const AttnDeviceRows *rows, std::optional<SlotList> list,
                         uintptr_t stream, Check check, Launch launch) {
  DeviceRows given;
  LayerRange layers;
  if (Status status = readRows(kernels, rows, given, layers); !status)
    return status;
  auto mine = kernels.lock.take("the cache kernels");
  if (!mine)
    return mine.error();
  auto held = kernels.append->device->use(stream);
  if (!held)
    return held.error();
  if (Status status = check(given); !status)
    return status;
  std::optional<Adopted> adopted;
  if (HostDevice *host = kernels.append->device->host) {
    adopted.emplace(*host);
    addMemory(kernels, given, layers, *adopted);
    if (list)
      adopted->add(list->address, list->bytes, list->name);
    if (Status status = adopted->adopt(); !status)
      return status;
  }
  return launch(given, layers);
}

AttnStatus attnCacheKernelsExecute(AttnCacheKernels *kernels, const AttnMovement *movement,
                                   const AttnDeviceRows *rows, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("kernels, movement", kernels, movement); !status)
      return status;
    const auto check = [&](const DeviceRows &) -> Status {
      if (!kernels->append->device->device->isRecording())
        return {};
      return inputError(
          "cache kernels: the stream is being captured, and a replay would write to the slots of this "
          "movement again: write new tokens where their slots are in tables (CacheSteps.write)");
    };
    return launchOver(*kernels, rows, {}, stream, check,
                      [&](const DeviceRows &given, const LayerRange &layers) {
                        return kernels->kernels->execute(movement->movement, given, layers, movement->id);
                      });
  });
}

AttnStatus attnCacheKernelsAppend(AttnCacheKernels *kernels, uint64_t list, size_t listBytes,
                                  const AttnDeviceRows *rows, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("kernels, rows", kernels, rows); !status)
      return status;
    const auto check = [&](const DeviceRows &given) -> Status {
      const size_t needed = newTokenWords(given.count) * sizeof(int32_t);
      if (listBytes >= needed)
        return {};
      return inputError("cache kernels: expected a list of at least " + std::to_string(needed) +
                        " bytes for " + std::to_string(given.count) + " new tokens, got " +
                        std::to_string(listBytes));
    };
    return launchOver(*kernels, rows, SlotList{list, listBytes, "new_tokens"}, stream, check,
                      [&](const DeviceRows &given, const LayerRange &layers) {
                        return kernels->kernels->append(list, given, layers);
                      });
  });
}

AttnStatus attnCacheKernelsMove(AttnCacheKernels *kernels, uint64_t list, size_t listBytes,
                                uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("kernels", kernels); !status)
      return status;
    const auto check = [&](const DeviceRows &) -> Status {
      const auto needed = static_cast<size_t>(kernels->kernels->move().listWords()) * sizeof(int32_t);
      if (listBytes >= needed)
        return {};
      return inputError("cache kernels: expected lists of at least " + std::to_string(needed) +
                        " bytes for the copied tokens reserved for, got " + std::to_string(listBytes));
    };
    return launchOver(*kernels, nullptr, SlotList{list, listBytes, "copied_tokens"}, stream, check,
                      [&](const DeviceRows &, const LayerRange &) { return kernels->kernels->move(list); });
  });
}
