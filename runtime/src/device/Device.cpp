//===- Device.cpp - Where kernels run -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/device/Device.h"

namespace attn::rt {

Kernel::~Kernel() = default;
Module::~Module() = default;
Event::~Event() = default;
Recording::~Recording() = default;
Device::~Device() = default;

Status Device::copyPieces(DeviceAddress to, std::span<const CopyPiece> pieces) {
  for (const CopyPiece &piece : pieces)
    if (Status status = copyIn(to + piece.offset, piece.from, piece.bytes); !status)
      return status;
  return {};
}

Result<Buffer> Buffer::create(Device &device, size_t bytes, const std::string &label, MemoryUse use) {
  Result<DeviceAddress> address = device.allocate(bytes, label, use);
  if (!address)
    return address.error();
  Buffer buffer;
  buffer.device_ = &device;
  buffer.address_ = *address;
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer &Buffer::operator=(Buffer &&other) noexcept {
  if (this != &other) {
    reset();
    device_ = std::exchange(other.device_, nullptr);
    address_ = std::exchange(other.address_, 0);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Buffer::reset() {
  if (device_)
    (void)device_->free(address_); // a destructor has no caller to report to
  device_ = nullptr;
  address_ = bytes_ = 0;
}

} // namespace attn::rt
