//===- Report.h - What a launch found ---------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SRC_HOST_DETECT_REPORT_H
#define ATTN_RT_SRC_HOST_DETECT_REPORT_H

#include "host/machine/Machine.h"

namespace attn::rt::host {

/// Turns a block's findings into the launch's.
void addFindings(Report &report, const Grid &grid, uint64_t block, const std::vector<LocalFinding> &findings);

} // namespace attn::rt::host

#endif
