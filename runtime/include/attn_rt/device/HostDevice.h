//===- HostDevice.h - The executor as a device ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_DEVICE_HOSTDEVICE_H
#define ATTN_RT_DEVICE_HOSTDEVICE_H

#include "attn_rt/device/Device.h"

namespace attn::rt {

/// The work of a host device since the last reset. Replays of one recording do exactly the same work.
struct HostWork {
  uint64_t launches = 0, copies = 0, allocations = 0;
  uint64_t shapes = 0;    ///< a hash of kernels, grids and sizes
  uint64_t arguments = 0; ///< a hash of all arguments, addresses among them
};

/// The device that runs everywhere and checks what it runs. Findings do not fail a launch: report() collects
/// them.
///
/// Kernels are native code in this process, and nothing confines them. In code compiled with checks, each
/// access is checked first, and an access that would fault is a finding. Without checks, a kernel that is
/// wrong, or reads wrong tables, may write anywhere or end the process with a signal. During launches,
/// handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGTRAP name the kernel on standard error, then call the
/// handlers that were installed before (host::LaunchOptions::nameSignals, or ATTN_HOST_SIGNALS=0, turns them
/// off).
class HostDevice : public Device {
public:
  /// The options of later launches.
  virtual host::LaunchOptions &options() = 0;
  /// Findings and counters of all launches since the last reset.
  virtual const host::Report &report() const = 0;
  virtual void resetReport() = 0;
  virtual const HostWork &work() const = 0;
  virtual void resetWork() = 0;

  /// Registers memory of the caller as an allocation, all of it written, until it is released. Copies
  /// nothing. Refuses memory that overlaps another allocation.
  virtual Status adopt(void *memory, size_t bytes, const std::string &label) = 0;
  /// Ends the registration of adopted memory; does not free it.
  virtual Status release(void *memory) = 0;
  /// Whether one allocation holds all of this memory.
  virtual bool holds(const void *memory, size_t bytes) const = 0;
};

/// Makes a host device. It needs no driver, and several may exist.
std::unique_ptr<HostDevice> makeHostDevice(const host::LaunchOptions &options = {});

} // namespace attn::rt

#endif
