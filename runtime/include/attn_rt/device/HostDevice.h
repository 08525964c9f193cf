//===- HostDevice.h - The executor as a device ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_DEVICE_HOSTDEVICE_H
#define ATTN_RT_DEVICE_HOSTDEVICE_H

#include "attn_rt/device/Device.h"

namespace attn::rt {

/// The device that runs everywhere and checks what it runs. Findings do not fail a launch: they add up in
/// report().
///
/// Kernels are native code in this process, and nothing confines them. Compiled with checks, each access is
/// looked at first, and one that would fault is a finding; without, a kernel that is wrong, or reads tables
/// that are, may write anywhere or end the process with a signal. Around launches handlers of SIGSEGV,
/// SIGBUS, SIGFPE, SIGILL and SIGTRAP say on standard error which kernel it was, and hand on to the handlers
/// that were there (host::LaunchOptions::nameSignals, or ATTN_HOST_SIGNALS=0, leaves them alone).
/// What a host device was asked to do since the last reset: replays of one recording differ in none of it.
struct HostWork {
  uint64_t launches = 0, copies = 0, allocations = 0;
  uint64_t shapes = 0;    ///< a hash over kernels, grids and sizes
  uint64_t arguments = 0; ///< and over all arguments, addresses among them
};

class HostDevice : public Device {
public:
  /// For the launches to come.
  virtual host::LaunchOptions &options() = 0;
  /// Findings and counters of all launches since the last reset.
  virtual const host::Report &report() const = 0;
  virtual void resetReport() = 0;
  virtual const HostWork &work() const = 0;
  virtual void resetWork() = 0;

  /// Makes memory of the caller an allocation, all of it written, until it is released; nothing is copied.
  /// Refused where it overlaps another.
  virtual Status adopt(void *memory, size_t bytes, const std::string &label) = 0;
  virtual Status release(void *memory) = 0;
  /// Does one allocation hold all of this?
  virtual bool holds(const void *memory, size_t bytes) const = 0;
};

std::unique_ptr<HostDevice> makeHostDevice(const host::LaunchOptions &options = {});

} // namespace attn::rt

#endif
