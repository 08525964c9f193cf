//===- GradientSchedules.h - Schedules of a backward pass -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_GRADIENTSCHEDULES_H
#define ATTN_CONVERSION_GRADIENTSCHEDULES_H

#include "attn/Conversion/ScheduleModel.h"

namespace mlir::attn {

/// Schedules of the kernel that holds rows and of those that hold tokens. `rows` are lines that a block
/// holds, and `keys` lines of the tiles that it walks: of the latter, tokens and packed rows.
struct GradientSchedules {
  tile::ScheduleAttr rows, tokens; ///< null where no tile of these dims fits
  /// Whether those that hold tokens add to the gradient of rows, too; `rows` is then of the kernels that
  /// begin and end its sums.
  bool fused = false;
  /// Whether gradients of keys and those of values have kernels of their own.
  bool splitsTokens = false;
};
/// On wgmma where `mayWgmma` and the problem allow it, each of the two for itself; else on mma. Fused where
/// `mayFuse` and wgmma allows it.
GradientSchedules chooseGradientSchedules(const ScheduleShape &shape, const Chip &chip, bool mayWgmma,
                                          bool mayFuse);
/// Of the kernels that add up significance, on mma; `byHead`: heads of a group are told apart. Null where
/// none fits.
tile::ScheduleAttr chooseSignificanceSchedule(const ScheduleShape &shape, const Chip &chip, bool byHead);

} // namespace mlir::attn

#endif
