//===- DecodeSchedules.h - Schedules for few rows ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_DECODESCHEDULES_H
#define ATTN_CONVERSION_DECODESCHEDULES_H

#include "attn/Conversion/ScheduleModel.h"

namespace mlir::attn {

/// Chooses the schedule of a kernel on mma for up to `rows` packed rows; null if none fits.
tile::ScheduleAttr chooseDecodeSchedule(MLIRContext *context, const ScheduleModel &model,
                                        const ScheduleShape &shape, const Chip &chip, int64_t rows);

} // namespace mlir::attn

#endif
