//===- BulkCopy.h - What boxes do on their way ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// machine/BulkBox.h defines the boxes and their promises.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_ASYNC_BULKCOPY_H
#define ATTN_RT_SRC_HOST_ASYNC_BULKCOPY_H

#include "host/machine/Machine.h"

namespace attn::rt::host {

/// Reads the operands of either direction. Returns false, with a report, if they name no box.
bool makeBulkBox(Lane &lane, uint32_t op, const void *shared, const void *map, uint32_t rank,
                 const int32_t *at, BulkBox &box);
/// Moves the bytes, if they have not moved yet, and signals the mbarrier.
void landBulkCopy(Block &block, BulkCopy &copy);
/// Notes that a wait has seen all completed phases of the mbarrier.
void observeBulkCopies(Block &block, const Mbarrier &barrier);
/// Ends the lane: boxes that it has not waited for are no longer read.
void abandonBulkStores(Lane &lane);
/// Ends the block: all bytes that were read are written.
void finishBulkStores(Block &block);

} // namespace attn::rt::host

#endif
