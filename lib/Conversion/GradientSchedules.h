//===- GradientSchedules.h - Schedules of a backward pass -------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_CONVERSION_GRADIENTSCHEDULES_H
#define ATTN_CONVERSION_GRADIENTSCHEDULES_H

#include "attn/Conversion/ScheduleModel.h"

namespace mlir::attn {

/// Schedules of the kernel with stationary rows and of the kernels with stationary tokens. `rows` is the
/// number of lines that stay in a block, tokens or packed rows; `keys` is the number of lines of the tiles
/// that it walks.
struct GradientSchedules {
  tile::ScheduleAttr rows, tokens; ///< null where no tile of these dims fits
  tile::ScheduleAttr values;       ///< of kernels for gradients of values; null if it is `tokens`
  /// Whether the kernels with stationary tokens add to the gradient of rows, too. The schedule `rows` is then
  /// for the kernels that begin and end its sums.
  bool fused = false;
  /// Whether gradients of keys and gradients of values have kernels of their own.
  bool splitsTokens = false;
};
/// Chooses both schedules, each for itself: on wgmma where `mayWgmma` and the problem allow it, else on mma.
/// Fuses where `mayFuse` and wgmma allow it.
GradientSchedules chooseGradientSchedules(const ScheduleShape &shape, const Chip &chip, bool mayWgmma,
                                          bool mayFuse);
/// Chooses the schedule of the kernels that add up significance, on mma; null if none fits. `byHead`: they
/// tell the heads of a group apart.
tile::ScheduleAttr chooseSignificanceSchedule(const ScheduleShape &shape, const Chip &chip, bool byHead);

} // namespace mlir::attn

#endif
