//===- Access.cpp - Instrumented loads, stores and atomics ----------------===//
#include "Checker.h"
#include "Entry.h"

using namespace attn::rt::host;

void *attn_host_load(LaneAbi *abi, uint32_t op, void *p) { return p; }
void *attn_host_store(LaneAbi *abi, uint32_t op, void *p) { return p; }
void *attn_host_atomic(LaneAbi *abi, uint32_t op, void *p) { return p; }
void attn_host_add_f32(LaneAbi *abi, uint32_t op, float *p, float value) {
  laneOf(abi).block->adds.push_back({p, value});
}
