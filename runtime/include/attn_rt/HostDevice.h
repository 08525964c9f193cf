//===- HostDevice.h - The executor as a device ------------------*- C++ -*-===//
#ifndef ATTN_RT_HOSTDEVICE_H
#define ATTN_RT_HOSTDEVICE_H

#include "attn_rt/Device.h"

namespace attn::rt {

/// The device that runs everywhere and checks what it runs. Findings do not fail a launch: they add up in
/// report().
class HostDevice : public Device {
public:
  /// For the launches to come.
  virtual host::LaunchOptions &options() = 0;
  /// Findings and counters of all launches since the last reset.
  virtual const host::Report &report() const = 0;
  virtual void resetReport() = 0;

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
