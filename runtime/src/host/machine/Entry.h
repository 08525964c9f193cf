//===- Entry.h - The functions native code calls ----------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One typed function per operation. `op` indexes HostKernel::ops.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SRC_HOST_MACHINE_ENTRY_H
#define ATTN_RT_SRC_HOST_MACHINE_ENTRY_H

#include "Machine.h"

namespace attn::rt::host {
inline Lane &laneOf(LaneAbi *abi) { return *static_cast<Lane *>(abi); }
} // namespace attn::rt::host

extern "C" {
using attn::rt::host::LaneAbi;
// Collectives.cpp; threads 0: the whole block
void attn_host_barrier(LaneAbi *, uint32_t op, uint32_t id, uint32_t threads);
void attn_host_barrier_arrive(LaneAbi *, uint32_t op, uint32_t id, uint32_t threads);
void attn_host_warp_sync(LaneAbi *, uint32_t op, uint32_t mask);
uint64_t attn_host_shuffle(LaneAbi *, uint32_t op, uint32_t kind, uint32_t mask, uint32_t value, uint32_t b,
                           uint32_t c); ///< predicate in bit 32
uint32_t attn_host_vote(LaneAbi *, uint32_t op, uint32_t kind, uint32_t mask, uint32_t predicate);
// Matrix.cpp; operands and results in the exchange buffer
void attn_host_program(LaneAbi *, uint32_t op, uint32_t program);
void attn_host_stmatrix(LaneAbi *, uint32_t op, void *row, uint32_t count, uint32_t transposed);
uint32_t attn_host_movmatrix(LaneAbi *, uint32_t op, uint32_t value);
// AsyncCopy.cpp
void attn_host_cp_async(LaneAbi *, uint32_t op, void *to, const void *from, uint32_t bytes,
                        uint32_t sourceBytes);
void attn_host_cp_commit(LaneAbi *);
void attn_host_cp_wait(LaneAbi *, uint32_t newest);
// BulkCopy.cpp; coordinates innermost first, those past the rank are ignored
void attn_host_bulk_copy(LaneAbi *, uint32_t op, void *to, const void *map, void *barrier, uint32_t rank,
                         int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4);
// BulkStore.cpp
void attn_host_bulk_store(LaneAbi *, uint32_t op, const void *from, const void *map, uint32_t rank,
                          int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4);
void attn_host_bulk_add(LaneAbi *, uint32_t op, const void *from, const void *map, uint32_t rank, int32_t c0,
                        int32_t c1, int32_t c2, int32_t c3, int32_t c4);
void attn_host_bulk_commit(LaneAbi *);
void attn_host_bulk_wait(LaneAbi *, uint32_t newest, uint32_t reading); ///< reading: .read
// Mbarrier.cpp
void attn_host_mbarrier_init(LaneAbi *, uint32_t op, void *, uint32_t count);
void attn_host_mbarrier_inval(LaneAbi *, uint32_t op, void *);
uint64_t attn_host_mbarrier_arrive(LaneAbi *, uint32_t op, void *, uint32_t count, uint32_t bytes);
void attn_host_mbarrier_expect(LaneAbi *, uint32_t op, void *, uint32_t bytes);
void attn_host_mbarrier_wait(LaneAbi *, uint32_t op, void *, uint32_t parity);
void attn_host_cp_mbarrier(LaneAbi *, uint32_t op, void *, uint32_t counted); ///< counted: .noinc
void attn_host_fence_async(LaneAbi *);
void attn_host_fence_mbarrier(LaneAbi *); ///< fence.mbarrier_init
// Overlap.cpp
void attn_host_grid_wait(LaneAbi *);
// Wgmma.cpp; operands and results in the exchange buffer
uint32_t attn_host_wgmma(LaneAbi *, uint32_t op, uint32_t program); ///< returns the token of its accumulators
void attn_host_wgmma_fence(LaneAbi *);
void attn_host_wgmma_commit(LaneAbi *);
void attn_host_wgmma_wait(LaneAbi *, uint32_t op, uint32_t newest, uint32_t registers);
void attn_host_misuse(LaneAbi *, uint32_t op, uint32_t which);
// Rendezvous.cpp
uint64_t attn_host_globaltimer(LaneAbi *); ///< nanoseconds; other lanes, then other threads go first
// Registers.cpp
void attn_host_set_registers(LaneAbi *, uint32_t op, uint32_t count, uint32_t increase);
uint32_t attn_host_elect(LaneAbi *, uint32_t op, uint32_t mask);
// Access.cpp; returns the address to use: the given one, or scratch memory if that would fault
void *attn_host_load(LaneAbi *, uint32_t op, void *);
void *attn_host_store(LaneAbi *, uint32_t op, void *);
void *attn_host_atomic(LaneAbi *, uint32_t op, void *);
void attn_host_add_f32(LaneAbi *, uint32_t op, float *, float); ///< result unused: applied in block order
// Scalar.cpp
float attn_host_ex2(float);
float attn_host_lg2(float);
float attn_host_rcp(float);
float attn_host_sqrt(float);
float attn_host_tanh(float);
uint32_t attn_host_pack_f16(float high, float low);
uint32_t attn_host_pack_bf16(float high, float low);
uint32_t attn_host_widen_e4m3(uint32_t codes);
uint32_t attn_host_narrow_e4m3(float high, float low);
uint32_t attn_host_permute(uint32_t low, uint32_t high, uint32_t which);
}

#endif
