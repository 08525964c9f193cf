//===- Launch.h - Launch descriptions of kernels ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel of the tile level carries `tile.launch`, a dictionary of
//
//   role            one of the runtime's roles
//   grid            the elements that it has blocks for: an array of the plan, or "rows"
//   rows_per_warp   if its warps walk the elements: elements of a warp at a time,
//   pieces          and warps that share them
//   if_filled       skip the launch if there are no elements
//   overlaps        the launch begins while the previous one is still running
//
// The manifest's list of launches is made from it: consecutive kernels with equal launches are the choices of
// one launch.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_DIALECT_TILE_IR_LAUNCH_H
#define ATTN_DIALECT_TILE_IR_LAUNCH_H

#include "attn_rt/artifact/Artifact.h"

#include "mlir/IR/Operation.h"

namespace mlir::tile {

struct KernelLaunch {
  ::attn::rt::KernelInfo::Role role = ::attn::rt::KernelInfo::Role::Attend;
  int rowsPerWarp = 0, pieces = 1;
  ::attn::rt::LaunchInfo launch = {}; ///< its kernels are not known yet
};

void setLaunch(Operation *kernel, const KernelLaunch &launch);
/// Returns the launch of a kernel; empty if it has none.
std::optional<KernelLaunch> launchOf(Operation *kernel);
/// Verifies the attribute on an operation.
LogicalResult verifyLaunch(Operation *kernel, Attribute value);

} // namespace mlir::tile

#endif
