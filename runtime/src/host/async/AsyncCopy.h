//===- AsyncCopy.h - Copies of a lane on their way --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_SRC_HOST_ASYNC_ASYNCCOPY_H
#define ATTN_RT_SRC_HOST_ASYNC_ASYNCCOPY_H

#include "host/machine/Machine.h"

namespace attn::rt::host {

void finishCopies(Lane &lane, uint32_t groupLimit);
/// Lands copies up to the lane's `limit`-th; `sequence` numbers the arrival that reports it.
void landCopies(Lane &lane, uint64_t limit, uint32_t sequence);
/// Makes the lane's oldest arrival that waits for copies: they have landed.
void fireArrival(Lane &lane);

} // namespace attn::rt::host

#endif
