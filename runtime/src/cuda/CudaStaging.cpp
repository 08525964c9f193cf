//===- CudaStaging.cpp - Small copies that do not wait --------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cuda/CudaStaging.h"

#include <cstring>

namespace attn::rt::cuda {

Staging::~Staging() {
  for (CUevent event : emptied_)
    if (event) {
      (void)api_.cuEventSynchronize(event);
      (void)api_.cuEventDestroy_v2(event);
    }
  if (memory_)
    (void)api_.cuMemFreeHost(memory_);
}

Status Staging::prepare() {
  for (CUevent &event : emptied_)
    if (!event)
      if (CUresult result = api_.cuEventCreate(&event, 0); result != success)
        return api_.error(result, "creating an event for copies to the device");
  void *memory = nullptr;
  if (CUresult result = api_.cuMemHostAlloc(&memory, 2 * halfBytes, 0); result != success)
    return api_.error(result, "allocating " + std::to_string(2 * halfBytes) + " bytes of pinned memory");
  memory_ = static_cast<char *>(memory);
  return {};
}

Status Staging::leave(CUstream stream) {
  if (used_ == 0)
    return {};
  if (CUresult result = api_.cuEventRecord(emptied_[half_], stream); result != success)
    return api_.error(result, "recording an event");
  pending_[half_] = true;
  half_ ^= 1;
  used_ = 0;
  return {};
}

Result<char *> Staging::take(size_t bytes, CUstream stream) {
  if (!memory_)
    if (Status status = prepare(); !status)
      return status.error();
  if (used_ + bytes > halfBytes)
    if (Status status = leave(stream); !status)
      return status.error();
  if (pending_[half_])
    if (CUresult result = api_.cuEventSynchronize(emptied_[half_]); result != success)
      return api_.error(result, "waiting for copies to the device");
  pending_[half_] = false;
  char *place = memory_ + half_ * halfBytes + used_;
  used_ += (bytes + 63) / 64 * 64;
  return place;
}

Status Staging::copyIn(CUdeviceptr to, std::span<const CopyPiece> pieces, size_t bytes, CUstream stream) {
  Result<char *> place = take(bytes, stream);
  if (!place)
    return place.error();
  for (const CopyPiece &piece : pieces)
    std::memcpy(*place + (piece.offset - pieces.front().offset), piece.from, piece.bytes);
  if (CUresult result = api_.cuMemcpyHtoDAsync_v2(to, *place, bytes, stream); result != success)
    return api_.error(result, "copying to the device");
  return {};
}

Status Staging::copyIn(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  if (bytes <= halfBytes) {
    Result<char *> place = take(bytes, stream);
    if (!place)
      return place.error();
    std::memcpy(*place, from, bytes);
    from = *place;
  }
  if (CUresult result = api_.cuMemcpyHtoDAsync_v2(to, from, bytes, stream); result != success)
    return api_.error(result, "copying to the device");
  return {};
}

} // namespace attn::rt::cuda
