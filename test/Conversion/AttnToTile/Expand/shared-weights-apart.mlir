// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s --check-prefix=STAGE
// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands --attn-expand-online --attn-lower-scores --attn-lower-accumulate | FileCheck %s

// Two warpgroups share rows, and keys and values lie apart. A tile of 64 tokens lies in four rings: keys and values of each
// half. Each warpgroup weighs one half, and reads 256 of the 512 columns of all values.

!query = tensor<?x8x512xbf16>
!cache = !attn.kv<dense, heads = 2, dim = 512, key = bf16, value = bf16>
!state = !attn.state<heads = 8, value_dim = 512>
#shared = #tile.schedule<wgmma, rows = 64, keys = 64, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232, query_stages = 1, query_copy = boxes 64, key_copies = [boxes 32], value_copies = [boxes 32], value_boxes = 0, ping_pong = false, epilogue = store, value_slices = 2, shared_weights = true>

gpu.module @kernels {
  // STAGE-LABEL: func.func @attend(
  // STAGE: tile.alloc : !tile.ring<1, <query 64, feature 512, bf16>>
  // STAGE-COUNT-4: tile.alloc : !tile.ring<1, <key 32, feature 512, bf16>>
  // STAGE: tile.alloc : !tile.shared<query 64, key 32, bf16>
  // STAGE: tile.alloc : !tile.shared<query 256, feature 1, f32>
  // STAGE: tile.produce {{.*}} warp 0
  // STAGE: tile.tma_load
  // STAGE-NOT: tile.clear
  // STAGE: tile.produce {{.*}} warp 1
  // STAGE: tile.tma_load
  // STAGE: tile.clear
  // STAGE: tile.produce {{.*}} warp 2
  // STAGE: tile.tma_load
  // STAGE-NOT: tile.clear
  // STAGE: tile.produce {{.*}} warp 3
  // STAGE: tile.tma_load
  // STAGE: tile.clear
  // STAGE: attn.staged {{.*}} keys {{.*}}, values {{.*}}, keys_behind {{.*}}, values_behind

  // CHECK-LABEL: func.func @attend(
  // CHECK: %[[KEYS:.*]] = tile.produce {{.*}} warp 0
  // CHECK: %[[VALUES:.*]] = tile.produce {{.*}} warp 1
  // CHECK: %[[KEYS_BEHIND:.*]] = tile.produce {{.*}} warp 2
  // CHECK: %[[VALUES_BEHIND:.*]] = tile.produce {{.*}} warp 3
  // CHECK: scf.if %{{.*}} ->
  // CHECK: %[[SCORES:.*]] = tile.start_mma %{{.*}} at %{{.*}}, %[[KEYS]] : {{.*}} -> <[query 16, key 32], f32>
  // CHECK: tile.wait_mmas 0 of %[[SCORES]]
  // CHECK: tile.named_barrier_arrive
  // CHECK: tile.start_mma %{{.*}}, %[[VALUES]] plus
  // CHECK: tile.named_barrier_sync
  // CHECK: tile.start_mma %{{.*}} at %{{.*}}, %[[VALUES_BEHIND]] plus
  // CHECK: } else {
  // CHECK: %[[SCORES:.*]] = tile.start_mma %{{.*}} at %{{.*}}, %[[KEYS_BEHIND]] : {{.*}} -> <[query 16, key 32], f32>
  // CHECK: tile.named_barrier_sync
  // CHECK: tile.start_mma %{{.*}} at %{{.*}}, %[[VALUES]] from %c256_i32{{.*}} plus
  // CHECK: tile.wait_mmas 1 of %[[SCORES]]
  // CHECK: tile.named_barrier_arrive
  // CHECK: tile.start_mma %{{.*}}, %[[VALUES_BEHIND]] from %c256_i32{{.*}} plus
  func.func @attend(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query attributes {tile.schedule = #shared} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !cache -> !state
    %o = attn.finish %1 : !state -> !query
    return %o : !query
  }
}
