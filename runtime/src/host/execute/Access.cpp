//===- Access.cpp - Instrumented loads, stores and atomics ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/detect/Checker.h"
#include "host/machine/Entry.h"

using namespace attn::rt::host;

static void *access(LaneAbi *abi, uint32_t op, void *p) {
  Lane &lane = laneOf(abi);
  Checker *checker = lane.block->checker;
  return checker ? checker->access(lane, op, p) : p;
}

void *attn_host_load(LaneAbi *abi, uint32_t op, void *p) { return access(abi, op, p); }
void *attn_host_store(LaneAbi *abi, uint32_t op, void *p) { return access(abi, op, p); }
void *attn_host_atomic(LaneAbi *abi, uint32_t op, void *p) { return access(abi, op, p); }

void attn_host_add_f32(LaneAbi *abi, uint32_t op, float *p, float value) {
  Lane &lane = laneOf(abi);
  bool usable = true;
  if (lane.block->checker)
    lane.block->checker->atomicAdd(lane, op, p, usable);
  if (usable)
    lane.block->adds.push_back({p, value});
}
