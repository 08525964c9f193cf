//===- CacheReport.h - Reports of attn-run about copied rows ----*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_CACHE_CACHEREPORT_H
#define ATTN_TOOLS_RUN_CACHE_CACHEREPORT_H

#include "attn_rt/cache/CacheRows.h"
#include "attn_rt/host/Launch.h"

#include <optional>
#include <string>

namespace attn::run {

struct CacheRecord {
  const rt::Manifest &manifest;
  rt::CacheTensors tensors;
  int64_t floor; ///< see rowCopyFloor
  std::string device = {}, deviceName = {};
  int blocks = 0;
  double compileMs = 0, hostCodeMs = 0, loadMs = 0, runMs = 0;
  int64_t repeats = 1;
  std::optional<rt::host::Report> host = {};
  bool checked = false;
  std::string failure = {};

  double amplification() const;
};

/// Describes the first element that differs, and the number that differ; empty if all are equal.
std::string firstDifference(const std::string &name, const rt::Tensor &got, const rt::Tensor &expected);

std::string cacheSummary(const CacheRecord &record);
std::string cacheJson(const CacheRecord &record);

} // namespace attn::run

#endif
