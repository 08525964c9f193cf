//===- Requantizer.cc - Stored values in fewer bits -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "capi/Adopted.h"
#include "capi/CacheObjects.h"
#include "capi/OwnedKernel.h"
#include "capi/PageMemory.h"

using namespace attn::rt;
using namespace attn::rt::capi;

struct AttnRequantizer : OwnedKernel {
  using OwnedKernel::OwnedKernel;
  int32_t layers = 0;
};

AttnStatus attnRequantizerCreate(const AttnKernel *requantize, AttnRequantizer **requantizer) {
  return guarded([&]() -> Status {
    if (Status status = required("requantize, requantizer", requantize, requantizer); !status)
      return status;
    auto made = std::make_unique<AttnRequantizer>(requantize->loaded);
    if (Status status = made->create(); !status)
      return status;
    if (made->kernel->role() != KernelInfo::Role::Requantize)
      return inputError("requantizer: expected an attn.requantize, got '" + made->loaded->manifest.entry +
                        "', which is another operation");
    *requantizer = made.release();
    return {};
  });
}

void attnRequantizerDestroy(AttnRequantizer *requantizer) { delete requantizer; }

AttnStatus attnRequantizerReserve(AttnRequantizer *requantizer, int64_t slots, int32_t layers) {
  return guarded([&]() -> Status {
    if (Status status = required("requantizer", requantizer); !status)
      return status;
    constexpr int64_t most = int64_t{1} << 28;
    if (slots < 0 || slots > most || layers < 1)
      return inputError("requantizer: expected room for 0 to 2^28 slots of at least 1 layer, got " +
                        std::to_string(slots) + " of " + std::to_string(layers));
    auto mine = requantizer->lock.take("the requantizer");
    if (!mine)
      return mine.error();
    auto held = requantizer->loaded->device->use();
    if (!held)
      return held.error();
    Status reserved = requantizer->kernel->reserve(slots, layers);
    requantizer->layers = reserved ? layers : 0;
    return reserved;
  });
}

namespace {

/// The names of a cache's memory in messages.
struct PageNames {
  const char *keys, *values, *keyMeta, *valueMeta, *keyScale, *valueScale;
};
constexpr PageNames sourceNames{"keys of the source",
                                "values of the source",
                                "metadata of the source's keys",
                                "metadata of the source's values",
                                "the scale of the source's keys",
                                "the scale of the source's values"};
constexpr PageNames targetNames{"keys of the target",
                                "values of the target",
                                "metadata of the target's keys",
                                "metadata of the target's values",
                                "the scale of the target's keys",
                                "the scale of the target's values"};

/// Registers the memory that a kernel may access in pages that hold this cache.
void addPages(Adopted &adopted, const Argument &cache, const AttnDevicePages &pages, const PageNames &names) {
  const int64_t slots = int64_t{pages.pages} * pages.pageTokens;
  const Store store = storeOf(cache);
  // Bytes from the first page to the end of the last.
  const auto reach = [&](int64_t tokenBytes) {
    return store.isUnified() ? (pages.pages - 1) * pages.pageBytes + store.tokensOf(1) * tokenBytes
                             : slots * cache.kvHeads * tokenBytes;
  };
  for (const bool keys : {true, false}) {
    const StorePart &part = store.part(keys);
    const auto add = [&](uint64_t address, int64_t layerBytes, int64_t bytes, const char *name) {
      if (slots && address)
        adopted.add(address, static_cast<size_t>(int64_t{pages.layers - 1} * layerBytes + bytes), name);
    };
    add(keys ? pages.k : pages.v, keys ? pages.kLayerBytes : pages.vLayerBytes,
        reach(part.format.rowBytes(part.dim)), keys ? names.keys : names.values);
    const Format::Scales scales = part.format.scales;
    const int64_t given = scales == Format::Scales::Head ? cache.kvHeads : 1,
                  line = part.format.metaBytes(part.dim);
    add(keys ? pages.kMeta : pages.vMeta, keys ? pages.kMetaLayerBytes : pages.vMetaLayerBytes,
        part.format.hasLines() ? reach(line) : given * line, keys ? names.keyMeta : names.valueMeta);
    if (part.format.hasLines() && part.format.hasSharedScale())
      add(keys ? pages.kScale : pages.vScale, keys ? pages.kScaleLayerBytes : pages.vScaleLayerBytes,
          sizeof(float), keys ? names.keyScale : names.valueScale);
  }
  if (pages.status)
    adopted.add(pages.status, sizeof(int32_t), "status");
}

Status checkPages(const AttnDevicePages &pages, int32_t layers, const std::string &whose) {
  if (pages.pages < 0 || pages.pageTokens < 1 || pages.layers != layers || pages.kLayerBytes < 0 ||
      pages.vLayerBytes < 0 || pages.kMetaLayerBytes < 0 || pages.vMetaLayerBytes < 0 ||
      pages.kScaleLayerBytes < 0 || pages.vScaleLayerBytes < 0)
    return inputError("requantizer: expected pages of at least 1 token in the " + std::to_string(layers) +
                      " layers reserved for, in ascending order, got " + std::to_string(pages.pages) +
                      " of " + std::to_string(pages.pageTokens) + " in " + std::to_string(pages.layers) +
                      " of the " + whose);
  return {};
}

/// Binds both caches, then calls `launch`. `list`: the caller's memory with a list, or 0.
template <typename Launch>
AttnStatus launchBetween(AttnRequantizer *requantizer, const AttnDevicePages *source,
                         const AttnDevicePages *target, uint64_t list, size_t listBytes, uintptr_t stream,
                         Launch launch) {
  return guarded([&]() -> Status {
    if (Status status = required("requantizer, source, target", requantizer, source, target); !status)
      return status;
    auto mine = requantizer->lock.take("the requantizer");
    if (!mine)
      return mine.error();
    CacheKernel &kernel = *requantizer->kernel;
    for (auto [pages, whose] : {std::pair(source, "source"), std::pair(target, "target")})
      if (Status status = checkPages(*pages, requantizer->layers, whose); !status)
        return status;
    SharedDevice &device = *requantizer->loaded->device;
    auto held = device.use(stream);
    if (!held)
      return held.error();
    std::optional<Adopted> adopted;
    if (HostDevice *host = device.host) {
      adopted.emplace(*host);
      addPages(*adopted, kernel.cache(), *source, sourceNames);
      addPages(*adopted, kernel.written(), *target, targetNames);
      if (list)
        adopted->add(list, listBytes, "lists of slots");
      if (Status status = adopted->adopt(); !status)
        return status;
    }
    if (Status status = kernel.bind(rowsOf(*source), rowsOf(*target), target->status); !status)
      return status;
    return launch(kernel);
  });
}

} // namespace

AttnStatus attnRequantizerExecute(AttnRequantizer *requantizer, const AttnDevicePages *source,
                                  const AttnDevicePages *target, const int32_t *from, const int32_t *to,
                                  size_t count, uintptr_t stream) {
  return launchBetween(requantizer, source, target, 0, 0, stream, [&](CacheKernel &kernel) -> Status {
    if (count && (!from || !to))
      return inputError("requantizer: expected lists of slots, got null");
    if (Status status = kernel.setRows({{from, count}, {to, count}}); !status)
      return status;
    return kernel.launch();
  });
}

AttnStatus attnRequantizerLaunch(AttnRequantizer *requantizer, const AttnDevicePages *source,
                                 const AttnDevicePages *target, uint64_t list, size_t listBytes,
                                 uintptr_t stream) {
  return launchBetween(
      requantizer, source, target, list, listBytes, stream, [&](CacheKernel &kernel) -> Status {
        if (const auto needed = static_cast<size_t>(kernel.listWords()) * sizeof(int32_t); listBytes < needed)
          return inputError("requantizer: expected lists of at least " + std::to_string(needed) +
                            " bytes for the slots reserved for, got " + std::to_string(listBytes));
        return kernel.launchFrom(list);
      });
}
