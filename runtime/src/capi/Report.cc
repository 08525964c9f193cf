//===- Report.cc - The C API's reports of the host device -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn-c/Unstable.h"
#include "attn_rt/capi/Objects.h"

using namespace attn::rt;
using namespace attn::rt::capi;

static Status onHost(const AttnDevice *device) {
  if (Status status = required("device", device); !status)
    return status;
  if (!device->shared->host)
    return inputError("expected a host device, which alone checks what it runs, got a cuda device");
  return {};
}

AttnStatus attnDeviceHostReport(AttnDevice *device, AttnHostReport *report, AttnBytes **text) {
  return guarded([&]() -> Status {
    if (Status status = onHost(device); !status)
      return status;
    if (Status status = required("report", report); !status)
      return status;
    auto held = device->shared->use();
    if (!held)
      return held.error();
    const host::Report &found = device->shared->host->report();
    using host::FindingKind;
    *report = {found.total(FindingKind::Race),
               found.total(FindingKind::Uninitialized),
               found.total(FindingKind::OutOfBounds),
               found.total(FindingKind::Misaligned),
               found.total(FindingKind::Sync),
               found.total(FindingKind::Deadlock),
               found.counters.bytesRead,
               found.counters.bytesWritten,
               found.counters.bytesPartials,
               found.counters.flops,
               found.counters.sectorEfficiency(),
               found.counters.bankConflicts(),
               found.seconds,
               found.clean()};
    if (text)
      *text = new AttnBytes{found.describe()};
    return {};
  });
}

AttnStatus attnDeviceHostWork(AttnDevice *device, AttnHostWork *work, bool reset) {
  return guarded([&]() -> Status {
    if (Status status = onHost(device); !status)
      return status;
    if (Status status = required("work", work); !status)
      return status;
    auto held = device->shared->use();
    if (!held)
      return held.error();
    const HostWork &done = device->shared->host->work();
    *work = {done.launches, done.copies, done.allocations, done.shapes, done.arguments};
    if (reset)
      device->shared->host->resetWork();
    return {};
  });
}

AttnStatus attnDeviceResetReport(AttnDevice *device) {
  return guarded([&]() -> Status {
    if (Status status = onHost(device); !status)
      return status;
    auto held = device->shared->use();
    if (!held)
      return held.error();
    device->shared->host->resetReport();
    return {};
  });
}
