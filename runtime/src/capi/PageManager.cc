//===- PageManager.cc - The C API's pages of many lists -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/PageManager.h"
#include "attn-c/Pages.h"
#include "attn_rt/capi/Objects.h"
#include "capi/Adopted.h"

using namespace attn::rt;
using namespace attn::rt::capi;

struct AttnPageManager {
  std::shared_ptr<LoadedKernel> loaded;
  std::optional<PageManager> manager = {};
  Lock lock = {};

  explicit AttnPageManager(std::shared_ptr<LoadedKernel> loaded) : loaded(std::move(loaded)) {}
  ~AttnPageManager() {
    if (!manager)
      return;
    auto held = loaded->device->use();
    if (held)
      manager.reset();
    else
      new (std::nothrow) PageManager(std::move(*manager)); // its buffer belongs to a device that is lost
  }
};

AttnStatus attnPageManagerCreate(const AttnKernel *manage, int64_t lists, int64_t columns, int64_t pages,
                                 AttnPageManager **manager) {
  return guarded([&]() -> Status {
    if (Status status = required("manage, manager", manage, manager); !status)
      return status;
    auto made = std::make_unique<AttnPageManager>(manage->loaded);
    SharedDevice &device = *made->loaded->device;
    {
      auto held = device.use();
      if (!held)
        return held.error();
      Result<PageManager> found =
          PageManager::create(*device.device, made->loaded->manifest, made->loaded->module);
      if (!found)
        return found.error();
      if (Status status = found->reserve({lists, columns, pages}); !status)
        return status;
      made->manager.emplace(std::move(*found));
    }
    *manager = made.release();
    return {};
  });
}

void attnPageManagerDestroy(AttnPageManager *manager) { delete manager; }

AttnStatus attnPageManagerLaunch(AttnPageManager *manager, const AttnPageTables *tables, uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("manager, tables", manager, tables); !status)
      return status;
    auto mine = manager->lock.take("the page manager");
    if (!mine)
      return mine.error();
    SharedDevice &device = *manager->loaded->device;
    auto held = device.use(stream);
    if (!held)
      return held.error();
    const PageTables given{
        {tables->table, tables->counts, tables->tokens, tables->free, tables->span, tables->status}};
    if (Status status = manager->manager->bind(given); !status)
      return status;
    std::optional<Adopted> adopted;
    if (HostDevice *host = device.host) {
      adopted.emplace(*host);
      const std::vector<size_t> bytes = PageTables::bytes(manager->manager->sizes());
      for (size_t i = 0; i < bytes.size(); ++i)
        adopted->add(given.addresses[i], bytes[i], PageTables::names[i]);
      if (Status status = adopted->adopt(); !status)
        return status;
    }
    return manager->manager->launch();
  });
}
