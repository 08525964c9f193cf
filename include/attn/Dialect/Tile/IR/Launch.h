//===- Launch.h - How a kernel says that it is launched ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A kernel of the tile level carries `tile.launch`, a dictionary of
//
//   role            what it does: one of the runtime's roles
//   grid            what it has elements for: an array of the plan, or "rows"
//   rows_per_warp   where its warps walk the elements, how many one takes at a time,
//   pieces          and how many warps share those
//   if_filled       where it is not launched without elements
//   overlaps        where it begins while the launch before is still running
//
// from which the manifest's list of launches is made: kernels that stand behind each other
// and are launched alike are the choices of one launch.
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
/// Empty where the kernel says nothing.
std::optional<KernelLaunch> launchOf(Operation *kernel);
/// Of the attribute on an operation.
LogicalResult verifyLaunch(Operation *kernel, Attribute value);

} // namespace mlir::tile

#endif
