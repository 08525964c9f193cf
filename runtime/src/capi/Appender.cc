//===- Appender.cc - New tokens at strides --------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "capi/Adopted.h"
#include "capi/CacheObjects.h"
#include "capi/OwnedKernel.h"
#include "capi/PageMemory.h"

using namespace attn::rt;
using namespace attn::rt::capi;

struct AttnAppender : OwnedKernel {
  using OwnedKernel::OwnedKernel;
};

AttnStatus attnAppenderCreate(const AttnKernel *append, AttnAppender **appender) {
  return guarded([&]() -> Status {
    if (Status status = required("append, appender", append, appender); !status)
      return status;
    auto made = std::make_unique<AttnAppender>(append->loaded);
    if (Status status = made->create(); !status)
      return status;
    if (!made->kernel->hasStrides())
      return inputError("appender: expected an attn.append with a norm or a rotation, or strided, got '" +
                        made->loaded->manifest.entry + "', which is another operation");
    *appender = made.release();
    return {};
  });
}

void attnAppenderDestroy(AttnAppender *appender) { delete appender; }

AttnStatus attnAppenderReserve(AttnAppender *appender, int64_t rows) {
  return guarded([&]() -> Status {
    if (Status status = required("appender", appender); !status)
      return status;
    constexpr int64_t most = int64_t{1} << 24;
    if (rows < 1 || rows > most)
      return inputError("appender: expected room for 1 to 2^24 rows, got " + std::to_string(rows));
    auto mine = appender->lock.take("the appender");
    if (!mine)
      return mine.error();
    auto held = appender->loaded->device->use();
    if (!held)
      return held.error();
    return appender->kernel->reserve(rows, 1);
  });
}

namespace {

/// The bytes from the first to the end of the last of some lines.
struct Extent {
  const AttnDevicePages &pages;
  const Store &store;

  size_t operator()(const AttnPageStrides &strides, int64_t line) const {
    if (!strides.betweenPages && !strides.betweenTokens && !strides.betweenHeads)
      return static_cast<size_t>(int64_t{pages.pages} * pages.pageTokens * store.heads * line);
    return static_cast<size_t>((pages.pages - 1) * strides.betweenPages +
                               (pages.pageTokens - 1) * strides.betweenTokens +
                               (store.heads - 1) * strides.betweenHeads + line);
  }
};

/// Registers the pages of a layer on the host device.
void addPages(Adopted &adopted, const Argument &cache, const AttnStridedPages &strided) {
  const AttnDevicePages &pages = strided.pages;
  const Store store = storeOf(cache);
  if (pages.pages < 1)
    return;
  const Extent extent{pages, store};
  for (const bool keys : {true, false}) {
    if (!keys && store.isLatent())
      continue; // a part of the keys
    const StorePart &part = store.part(keys);
    const int64_t line = part.format.metaBytes(part.dim);
    const uint64_t meta = keys ? pages.kMeta : pages.vMeta, scale = keys ? pages.kScale : pages.vScale;
    adopted.add(keys ? pages.k : pages.v,
                extent(keys ? strided.k : strided.v, part.format.rowBytes(part.dim)),
                keys ? "keys" : "values");
    if (meta && part.format.hasLines())
      adopted.add(meta, extent(keys ? strided.kMeta : strided.vMeta, line), "metadata");
    else if (meta)
      adopted.add(meta,
                  static_cast<size_t>((part.format.scales == Format::Scales::Head ? store.heads : 1) * line),
                  "scales");
    if (scale)
      adopted.add(scale, sizeof(float), "the scale of a tensor");
  }
  if (pages.status)
    adopted.add(pages.status, sizeof(int32_t), "status");
}

/// Registers queries, positions, weights and tables.
void addPrologue(Adopted &adopted, const Manifest &manifest, const AttnPrologue &prologue, int64_t rows) {
  const auto rowsAt = [&](uint64_t address, int64_t apart, int64_t bytes, const char *name) {
    if (address && rows)
      adopted.add(address, static_cast<size_t>((rows - 1) * (apart ? apart : bytes) + bytes), name);
  };
  rowsAt(prologue.positions, 0, sizeof(int32_t), "positions");
  if (const ResultInfo *rotated = manifest.findResult("rotated")) {
    const int64_t head = rotated->dims.back().value * static_cast<int64_t>(dtypeSize(rotated->dtype));
    const auto row = [&](int64_t apart) { return (manifest.qHeads - 1) * (apart ? apart : head) + head; };
    rowsAt(prologue.q, prologue.qRowBytes, row(prologue.qHeadBytes), "queries");
    rowsAt(prologue.rotated, prologue.rotatedRowBytes, row(prologue.rotatedHeadBytes), "prepared queries");
  }
  for (const Argument &argument : manifest.arguments) {
    if (argument.role != Argument::Role::Tensor)
      continue;
    const bool table = argument.name == "cos" || argument.name == "sin";
    const uint64_t address = argument.name == "cos"      ? prologue.cos
                             : argument.name == "sin"    ? prologue.sin
                             : argument.name == "k_norm" ? prologue.kNorm
                                                         : prologue.qNorm;
    const int64_t count = (table ? prologue.tableRows : 1) * argument.dims[1].value;
    adopted.add(address, static_cast<size_t>(count) * dtypeSize(argument.dtype),
                table ? "cosines and sines" : "weights of a norm");
  }
}

} // namespace

AttnStatus attnAppenderLaunch(AttnAppender *appender, const AttnStridedPages *strided,
                              const AttnDeviceRows *rows, const AttnPrologue *prologue, uint64_t list,
                              size_t listBytes, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("appender, pages, rows, prologue", appender, strided, rows, prologue);
        !status)
      return status;
    const AttnDevicePages *pages = &strided->pages;
    if (pages->pages < 0 || pages->pageTokens < 1 || rows->count < 0 || prologue->tableRows < 0)
      return inputError("appender: expected pages of at least 1 token, and rows, got " +
                        std::to_string(pages->pages) + " of " + std::to_string(pages->pageTokens) + " and " +
                        std::to_string(rows->count));
    auto mine = appender->lock.take("the appender");
    if (!mine)
      return mine.error();
    CacheKernel &kernel = *appender->kernel;
    const Manifest &manifest = appender->loaded->manifest;
    SharedDevice &device = *appender->loaded->device;
    auto held = device.use(stream);
    if (!held)
      return held.error();
    if (prologue->cos && !prologue->positions)
      return inputError("appender: expected the positions of rows beside cosines and sines, got none");
    std::optional<Adopted> adopted;
    if (HostDevice *host = device.host) {
      adopted.emplace(*host);
      addPages(*adopted, kernel.cache(), *strided);
      addPrologue(*adopted, manifest, *prologue, rows->count);
      for (const bool keys : {true, false}) {
        const int64_t bytes = kernel.rowBytes(keys), apart = keys ? prologue->kRowBytes : prologue->vRowBytes;
        if (rows->count)
          adopted->add(keys ? rows->k : rows->v,
                       static_cast<size_t>((rows->count - 1) * (apart ? apart : bytes) + bytes),
                       keys ? "new keys" : "new values");
      }
      adopted->add(list, listBytes, "list of slots");
      if (Status status = adopted->adopt(); !status)
        return status;
    }
    const DeviceRows given{rows->k, rows->v, rows->count};
    if (Status status = kernel.bind(rowsOf(*strided), given, pages->status); !status)
      return status;
    DevicePrologue bound;
    bound.q = {prologue->q, 0, prologue->qRowBytes, prologue->qHeadBytes};
    bound.rotated = {prologue->rotated, 0, prologue->rotatedRowBytes, prologue->rotatedHeadBytes};
    bound.kNorm = prologue->kNorm, bound.qNorm = prologue->qNorm;
    bound.cos = prologue->cos, bound.sin = prologue->sin, bound.tableRows = prologue->tableRows;
    bound.positions = prologue->positions;
    bound.kRowBytes = prologue->kRowBytes, bound.vRowBytes = prologue->vRowBytes;
    if (Status status = kernel.bindPrologue(bound); !status)
      return status;
    if (const auto needed = static_cast<size_t>(kernel.listWords()) * sizeof(int32_t); listBytes < needed)
      return inputError("appender: expected a list of at least " + std::to_string(needed) +
                        " bytes for the rows reserved for, got " + std::to_string(listBytes));
    return kernel.launchFrom(list);
  });
}
