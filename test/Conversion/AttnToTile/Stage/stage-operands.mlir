// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s

// Each warp copies its share of a tile's tokens; queries are copied by the block, where the task begins.

!query = tensor<?x8x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, value_dim = 32, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 32>
!out = tensor<?x8x32xbf16>
#rows16 = #tile.schedule<mma, rows = 16, keys = 64, warps = 4, stages = 2, blocks = 2, split_keys = true, query_in_registers = true>
#rows128 = #tile.schedule<mma, rows = 128, keys = 64, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false>

gpu.module @kernels {
  func.func @split(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !out attributes {tile.schedule = #rows16} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 : !state -> !out
    return %o : !out
  }
  func.func @shared(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !out attributes {tile.schedule = #rows128} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %kv see causal scale 1.0 : !query, !kv -> !state
    %o = attn.finish %1 : !state -> !out
    return %o : !out
  }
}

// CHECK-LABEL: func.func @split(
// CHECK-SAME: #tile.parameter<buffer, "kv.start">, #tile.parameter<buffer, "kv.k">, #tile.parameter<dim, "kv.k.stride1">, #tile.parameter<dim, "kv.k.stride0">,
// CHECK-SAME: #tile.parameter<buffer, "kv.v">, #tile.parameter<dim, "kv.v.stride1">, #tile.parameter<dim, "kv.v.stride0">]
// CHECK: %[[QUERIES:.*]] = tile.alloc : !tile.shared<query 16, feature 64, bf16>
// CHECK-NEXT: %[[KEYS:.*]] = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 64, bf16>>
// CHECK-NEXT: %[[VALUES:.*]] = tile.alloc {per_warp} : !tile.ring<2, <key 16, feature 32, bf16>>
// CHECK: tile.gather block {{.*}} into %[[QUERIES]]
// CHECK: tile.commit
// CHECK-NEXT: %[[ROWS:.*]] = attn.rows
// CHECK: %[[KNOWN:.*]] = attn.staged %[[ROWS]] in position
// CHECK: attn.init %[[KNOWN]]
// CHECK: tile.wait 0
// CHECK-NEXT: tile.sync block
// CHECK-NEXT: %[[FRAGMENT:.*]] = tile.load %[[QUERIES]]
// CHECK-NEXT: %[[STAGED:.*]] = attn.staged %[[KNOWN]] in query %[[FRAGMENT]]
// CHECK-NEXT: scf.for
// CHECK: %[[TOKENS:.*]] = attn.tokens
// CHECK: %[[K:.*]] = tile.ring_stage %[[KEYS]]
// CHECK: %[[V:.*]] = tile.ring_stage %[[VALUES]]
// CHECK: %[[SLOTS:.*]] = tile.lookup warp
// CHECK: tile.gather warp {{.*}} at %[[SLOTS]] {{.*}} pitches %{{.*}}, %{{.*}} into %[[K]], %[[V]]
// CHECK-NEXT: tile.commit
// CHECK-NEXT: tile.wait 0
// CHECK-NEXT: tile.sync warp
// CHECK-NEXT: %[[TILE:.*]] = attn.staged %[[TOKENS]] in keys %[[K]], values %[[V]]
// CHECK-NEXT: attn.update %{{.*}}, %[[STAGED]], %[[TILE]]
// CHECK-NEXT: tile.sync warp

// With one stage no warps sync after the loop, so slower warps may still read queries: the block syncs after the
// results.
// CHECK-LABEL: func.func @shared(
// CHECK: %[[QUERIES:.*]] = tile.alloc : !tile.shared<query 128, feature 64, bf16>
// CHECK-NOT: tile.load %
// CHECK: attn.staged %{{.*}} in query %[[QUERIES]]
// CHECK: tile.gather block
// CHECK: attn.write
// CHECK-NEXT: tile.sync block
