//===- StepTables.cc - The C API's tables of steps ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/StepTables.h"
#include "attn_rt/capi/Objects.h"
#include "capi/Adopted.h"
#include "capi/CacheObjects.h"

#include <algorithm>

using namespace attn::rt;
using namespace attn::rt::capi;

struct AttnStepTables {
  std::shared_ptr<LoadedKernel> kernel;
  StepTables tables;
  std::vector<RowGroup> groups = {};
  uint64_t sentTo = 0; ///< the address of the last update's words
  mutable Lock lock = {};
};

namespace {

/// Copies through pinned memory are made in pieces of this size; the device's staging memory holds many of
/// them.
constexpr size_t pieceBytes = size_t{1} << 19;

Status upload(const SharedDevice &shared, std::span<const int32_t> words, uint64_t address) {
  const auto *from = reinterpret_cast<const std::byte *>(words.data());
  for (size_t at = 0; at < words.size_bytes(); at += pieceBytes)
    if (Status status =
            shared.device->copyIn(address + at, from + at, std::min(pieceBytes, words.size_bytes() - at));
        !status)
      return status;
  return {};
}

} // namespace

AttnStatus attnStepTablesCreate(const AttnKernel *kernel, const AttnCache *cache, int32_t sequences,
                                int32_t rows, int32_t newTokens, const AttnStepOperand *operands,
                                size_t count, AttnStepTables **tables) {
  return guarded([&]() -> Status {
    if (Status status = required("kernel, cache, operands, tables", kernel, cache, operands, tables); !status)
      return status;
    const Manifest &manifest = kernel->loaded->manifest;
    if (count != manifest.operands.size())
      return inputError("expected " + std::to_string(manifest.operands.size()) + " operands, as '" +
                        manifest.entry + "' has, got " + std::to_string(count));
    StepCapacity capacity{sequences, rows, newTokens, {}};
    for (size_t i = 0; i < count; ++i) {
      const AttnCacheOperand &shown = operands[i].shown;
      capacity.operands.push_back({manifest.argumentOf(manifest.operands[i]).name,
                                   {shown.headClass, shown.nodes, shown.drafts},
                                   operands[i].pages});
    }
    auto held = cache->lock.take("the cache");
    if (!held)
      return held.error();
    Result<StepTables> made = StepTables::create(cache->cache, std::move(capacity));
    if (!made)
      return made.error();
    *tables = new AttnStepTables{kernel->loaded, std::move(*made)};
    return {};
  });
}

void attnStepTablesDestroy(AttnStepTables *tables) { delete tables; }

size_t attnStepTablesWords(const AttnStepTables *tables) { return tables ? tables->tables.words() : 0; }

const char *attnStepTablesName(const AttnStepTables *tables, size_t index) {
  return tables && index < tables->tables.parts().size() ? tables->tables.parts()[index].name.c_str()
                                                         : nullptr;
}

AttnStatus attnStepTablesPlace(const AttnStepTables *tables, size_t index, size_t *first, size_t *words) {
  return guarded([&]() -> Status {
    if (Status status = required("tables, first, words", tables, first, words); !status)
      return status;
    if (index >= tables->tables.parts().size())
      return inputError("table: expected 0 to " + std::to_string(tables->tables.parts().size() - 1) +
                        ", got " + std::to_string(index));
    *first = tables->tables.parts()[index].first;
    *words = tables->tables.parts()[index].words;
    return {};
  });
}

AttnStatus attnStepTablesTake(AttnStepTables *tables, const AttnCache *cache, const AttnMovement *movement) {
  return guarded([&]() -> Status {
    if (Status status = required("tables, cache, movement", tables, cache, movement); !status)
      return status;
    auto mine = tables->lock.take("the tables");
    if (!mine)
      return mine.error();
    auto held = cache->lock.take("the cache");
    return held ? tables->tables.take(cache->cache, movement->movement) : held.error();
  });
}

AttnStatus attnStepTablesAppend(AttnStepTables *tables, AttnCache *cache, const AttnAppend *append,
                                size_t count) {
  return guarded([&]() -> Status {
    if (Status status = required("tables, cache", tables, cache); !status)
      return status;
    if (count && !append)
      return inputError("expected " + std::to_string(count) + " appends, got null");
    auto mine = tables->lock.take("the tables");
    if (!mine)
      return mine.error();
    auto held = cache->lock.take("the cache");
    if (!held)
      return held.error();
    std::vector<CacheStep::Append> appends;
    appends.reserve(count);
    for (size_t i = 0; i < count; ++i)
      appends.emplace_back(nodeOf(append[i].node), append[i].tokens);
    return tables->tables.append(cache->cache, std::move(appends));
  });
}

AttnStatus attnStepTablesUpdate(AttnStepTables *tables, const AttnCache *cache, const AttnRowGroup *groups,
                                size_t count, uint64_t address, size_t size, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("tables, cache", tables, cache); !status)
      return status;
    if (count && !groups)
      return inputError("expected " + std::to_string(count) + " row groups, got null");
    auto mine = tables->lock.take("the tables");
    if (!mine)
      return mine.error();
    const size_t needed = tables->tables.words() * sizeof(int32_t);
    if (!address || address % 64 || size < needed)
      return inputError("tables: expected " + std::to_string(needed) + " bytes at a multiple of 64, got " +
                        std::to_string(size) + " at " + std::to_string(address));
    auto held = cache->lock.take("the cache");
    if (!held)
      return held.error();
    auto device = tables->kernel->device->use(stream);
    if (!device)
      return device.error();
    if (tables->kernel->device->device->isRecording())
      return inputError("tables: expected to be updated between replays, and the stream is being captured");
    std::optional<Adopted> adopted;
    if (HostDevice *host = tables->kernel->device->host) {
      adopted.emplace(*host);
      adopted->add(address, needed, "tables of steps");
      if (Status status = adopted->adopt(); !status)
        return status;
    }
    tables->groups.clear();
    for (size_t i = 0; i < count; ++i)
      tables->groups.emplace_back(nodeOf(groups[i].node), groups[i].rows, groups[i].draft);
    if (Status status = tables->tables.update(cache->cache, tables->groups); !status)
      return status;
    const bool isThere = std::exchange(tables->sentTo, 0) == address;
    Status status =
        upload(*tables->kernel->device, isThere ? tables->tables.changed() : tables->tables.used(), address);
    if (status)
      tables->sentTo = address;
    return status;
  });
}

AttnStatus attnStepTablesCheck(AttnStepTables *tables) {
  return guarded([&]() -> Status {
    if (Status status = required("tables", tables); !status)
      return status;
    auto mine = tables->lock.take("the tables");
    if (!mine)
      return mine.error();
    if (Status status = tables->tables.checkCurrent(); !status)
      return inputError("replay: " + status.error().message + ": update the steps first");
    return {};
  });
}

int64_t attnStepTablesRows(const AttnStepTables *tables) {
  return guardedValue(int64_t{0}, [&]() -> int64_t {
    if (!tables)
      return 0;
    auto mine = tables->lock.take("the tables");
    return mine ? tables->tables.rows() : 0;
  });
}
