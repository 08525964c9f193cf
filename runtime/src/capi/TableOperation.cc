//===- TableOperation.cc - The C API's pages of many lists ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/TableOperation.h"
#include "attn-c/Pages.h"
#include "attn_rt/capi/Objects.h"
#include "capi/Adopted.h"

using namespace attn::rt;
using namespace attn::rt::capi;

struct AttnTableOperation {
  std::shared_ptr<LoadedKernel> loaded;
  std::optional<TableOperation> operation = {};
  Lock lock = {};

  explicit AttnTableOperation(std::shared_ptr<LoadedKernel> loaded) : loaded(std::move(loaded)) {}
  ~AttnTableOperation() {
    if (!operation)
      return;
    auto held = loaded->device->use();
    if (held)
      operation.reset();
    else
      new (std::nothrow) TableOperation(std::move(*operation)); // its buffer belongs to a device that is lost
  }
};

AttnStatus attnTableOperationCreate(const AttnKernel *kernel, const int64_t *sizes, size_t count,
                                    AttnTableOperation **operation) {
  return guarded([&]() -> Status {
    if (Status status = required("kernel, sizes, operation", kernel, sizes, operation); !status)
      return status;
    auto made = std::make_unique<AttnTableOperation>(kernel->loaded);
    SharedDevice &device = *made->loaded->device;
    {
      auto held = device.use();
      if (!held)
        return held.error();
      Result<TableOperation> found =
          TableOperation::create(*device.device, made->loaded->manifest, made->loaded->module);
      if (!found)
        return found.error();
      if (Status status = found->reserve({sizes, count}); !status)
        return status;
      made->operation.emplace(std::move(*found));
    }
    *operation = made.release();
    return {};
  });
}

void attnTableOperationDestroy(AttnTableOperation *operation) { delete operation; }

AttnStatus attnTableOperationLaunch(AttnTableOperation *operation, const uint64_t *addresses, size_t count,
                                    uintptr_t stream) {
  return guarded([&]() -> Status {
    if (Status status = required("operation, addresses", operation, addresses); !status)
      return status;
    auto mine = operation->lock.take("the table operation");
    if (!mine)
      return mine.error();
    SharedDevice &device = *operation->loaded->device;
    auto held = device.use(stream);
    if (!held)
      return held.error();
    TableOperation &table = *operation->operation;
    if (Status status = table.bind({addresses, count}); !status)
      return status;
    std::optional<Adopted> adopted;
    if (HostDevice *host = device.host) {
      adopted.emplace(*host);
      for (size_t i = 0; i < count; ++i)
        adopted->add(addresses[i], table.tensors()[i].bytes, table.tensors()[i].name);
      if (Status status = adopted->adopt(); !status)
        return status;
    }
    return table.launch();
  });
}
