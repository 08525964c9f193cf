//===- TensorMaps.h - A manifest's tensor maps with numbers -----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SESSION_TENSORMAPS_H
#define ATTN_RT_SESSION_TENSORMAPS_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/device/Device.h"

namespace attn::rt {

/// The memory of a map's buffer; its size, if the session allocated it.
struct MapMemory {
  DeviceAddress address = 0;
  std::optional<size_t> bytes;
};

/// The tensor of a map with the present extents of its dimensions.
///
/// A batch may be without any tokens, and then a cache has no pages; the hardware has no tensor without
/// elements. An extent of 1 over that cache would let copies read missing memory. So such a tensor becomes
/// the single element of `zero`, 16 bytes of zeros: every coordinate but the origin is out of range, and it
/// reads as zeros everywhere, as a tensor without elements does.
Result<BulkTensor> resolveTensorMap(const TensorMapInfo &info, const std::map<std::string, int32_t> &dims,
                                    const MapMemory &memory, DeviceAddress zero);

} // namespace attn::rt

#endif
