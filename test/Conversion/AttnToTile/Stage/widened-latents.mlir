// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s
// RUN: attn-opt %s --attn-to-tile | FileCheck %s --check-prefix=ROLES

// Two warpgroups share weights over latents in e4m3. Producers load the lines of a ring's tile to registers while they wait
// until its stage is free, and write floats of the queries' type. Lookups of pages run one tile ahead, and bring its lines to
// the L2 cache.

!query = tensor<?x128x576xbf16>
!output = tensor<?x128x512xbf16>
!latents = !attn.kv<paged<64>, heads = 1, dim = 576, key = !attn.quantized<f8E4M3FN, per = tensor>, value = first<512>>
!state = !attn.state<heads = 128, value_dim = 512>
#shared = #tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, producers = 8, producer_registers = 56, consumer_registers = 200, query_stages = 1, query_copy = gather, key_copies = [gather], value_copies = [gather], value_boxes = 0, ping_pong = false, epilogue = store, value_slices = 2, shared_weights = true>

gpu.module @kernels {
  // CHECK-LABEL: func.func @attend(
  // CHECK: tile.alloc : !tile.ring<1, <query 64, feature 576, bf16>>
  // CHECK: %[[KEYS:.*]] = tile.alloc : !tile.ring<1, <key 64, feature 256, bf16>>
  // CHECK: %[[REST:.*]] = tile.alloc : !tile.ring<1, <key 64, feature 320, bf16>>
  // CHECK: %[[BEHIND:.*]] = tile.alloc : !tile.ring<1, <key 64, feature 256, bf16>>
  // CHECK: %[[LAST:.*]] = tile.alloc : !tile.ring<1, <key 64, feature 320, bf16>>
  // CHECK: tile.alloc : !tile.shared<query 64, key 64, bf16>
  // CHECK: tile.alloc : !tile.shared<query 256, feature 1, f32>
  // CHECK: %[[SLOTS:.*]] = tile.ahead
  // CHECK: tile.lookup producers
  // CHECK: %[[B:.*]]:5 = tile.fetch_lines 64 panels 5 at %[[SLOTS]] from
  // CHECK: tile.produce %[[REST]]
  // CHECK-NEXT: tile.widen_lines %[[B]]#0, {{.*}} of f8E4M3FN into
  // CHECK: %[[A:.*]]:4 = tile.fetch_lines 64 panels 4 at %[[SLOTS]] from
  // CHECK: tile.produce %[[KEYS]]
  // CHECK-NEXT: tile.widen_lines %[[A]]#0, {{.*}} of f8E4M3FN into
  // CHECK: %[[SLOTS_BEHIND:.*]] = tile.ahead
  // CHECK: tile.lookup producers
  // CHECK: %[[D:.*]]:5 = tile.fetch_lines 64 panels 5 at %[[SLOTS_BEHIND]] from
  // CHECK: tile.produce %[[LAST]]
  // CHECK-NEXT: tile.widen_lines %[[D]]#0, {{.*}} of f8E4M3FN into
  // CHECK: %[[C:.*]]:4 = tile.fetch_lines 64 panels 4 at %[[SLOTS_BEHIND]] from
  // CHECK: tile.produce %[[BEHIND]]
  // CHECK-NEXT: tile.widen_lines %[[C]]#0, {{.*}} of f8E4M3FN into
  // CHECK: attn.staged {{.*}} keys {{.*}}, key_rest {{.*}}, keys_behind {{.*}}, key_rest_behind

  // MMAs read widened tiles through the async proxy.
  // ROLES-LABEL: func.func @attend(
  // ROLES: tile.fetch_lines {{.*}} next
  // ROLES: tile.mbarrier_wait {{.*}} before
  // ROLES-NEXT: tile.widen_lines
  // ROLES-NEXT: tile.fence_async
  // ROLES-NEXT: tile.sync warp
  // ROLES-NEXT: tile.arrive
  // ROLES: tile.set_registers increase 200
  // ROLES-NOT: tile.fetch_lines
  // ROLES: return
  func.func @attend(%q: !query {attn.name = "q"}, %kv: !latents {attn.name = "kv"}) -> !output attributes {tile.schedule = #shared} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !latents -> !state
    %o = attn.finish %1 : !state -> !output
    return %o : !output
  }
}
