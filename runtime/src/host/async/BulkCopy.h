//===- BulkCopy.h - What boxes do on their way ------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The boxes themselves, and what they promise, are in machine/BulkBox.h.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_ASYNC_BULKCOPY_H
#define ATTN_RT_SRC_HOST_ASYNC_BULKCOPY_H

#include "host/machine/Machine.h"

namespace attn::rt::host {

/// Reads the operands of either direction; false, with a report, if they name no box.
bool makeBulkBox(Lane &lane, uint32_t op, const void *shared, const void *map, uint32_t rank,
                 const int32_t *at, BulkBox &box);
/// Moves the bytes, where that has not happened, and tells the mbarrier.
void landBulkCopy(Block &block, BulkCopy &copy);
/// A wait has seen all phases of the mbarrier but the open one.
void observeBulkCopies(Block &block, const Mbarrier &barrier);
/// The lane ends: boxes that it has not waited for are not read any more.
void abandonBulkStores(Lane &lane);
/// The block ends: all that was read is written.
void finishBulkStores(Block &block);

} // namespace attn::rt::host

#endif
