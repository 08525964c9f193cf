//===- PageMemory.h - Pages that a caller describes -------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CAPI_PAGEMEMORY_H
#define ATTN_RT_CAPI_PAGEMEMORY_H

#include "attn-c/Cache.h"
#include "attn_rt/session/CacheKernel.h"

namespace attn::rt::capi {

inline PageStrides stridesOf(const AttnPageStrides &strides) {
  return {strides.betweenPages, strides.betweenTokens, strides.betweenHeads};
}

/// The slots of the pages, as a cache kernel binds them.
inline DeviceRows rowsOf(const AttnDevicePages &pages) {
  return {pages.k,
          pages.v,
          int64_t{pages.pages} * pages.pageTokens,
          pages.kLayerBytes,
          pages.vLayerBytes,
          {pages.kMeta, pages.kMetaLayerBytes},
          {pages.vMeta, pages.vMetaLayerBytes},
          pages.pageBytes,
          {pages.kScale, pages.kScaleLayerBytes},
          {pages.vScale, pages.vScaleLayerBytes}};
}
inline DeviceRows rowsOf(const AttnStridedPages &strided) {
  DeviceRows rows = rowsOf(strided.pages);
  rows.kStrides = stridesOf(strided.k), rows.vStrides = stridesOf(strided.v);
  rows.kMetaStrides = stridesOf(strided.kMeta), rows.vMetaStrides = stridesOf(strided.vMeta);
  return rows;
}

} // namespace attn::rt::capi

#endif
