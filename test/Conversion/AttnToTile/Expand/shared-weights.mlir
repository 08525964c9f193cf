// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands | FileCheck %s --check-prefix=STAGE
// RUN: attn-opt %s --attn-walk-plan --attn-stage-operands --attn-expand-online --attn-lower-scores --attn-lower-accumulate | FileCheck %s
// RUN: attn-opt %s --attn-to-tile | FileCheck %s --check-prefix=ROLES

// Two warpgroups share rows, and each weighs half of a tile's tokens. A tile of 128 latents lies in four rings of one
// stage: of each half the first warpgroup's 256 features, and the others, each loaded by a warp of its own.

!query = tensor<?x128x576xbf16>
!output = tensor<?x128x512xbf16>
!latents = !attn.kv<paged<64>, heads = 1, dim = 576, key = bf16, value = first<512>>
!state = !attn.state<heads = 128, value_dim = 512>
#shared = #tile.schedule<wgmma, rows = 64, keys = 128, warps = 8, stages = 1, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 40, consumer_registers = 232, query_stages = 1, query_copy = gather, key_copies = [boxes 64], value_copies = [boxes 64], value_boxes = 0, ping_pong = false, epilogue = store, value_slices = 2, shared_weights = true>

gpu.module @kernels {
  // STAGE-LABEL: func.func @attend(
  // STAGE: tile.alloc : !tile.ring<1, <query 64, feature 576, bf16>>
  // STAGE: tile.alloc : !tile.ring<1, <key 64, feature 256, bf16>>
  // STAGE: tile.alloc : !tile.ring<1, <key 64, feature 320, bf16>>
  // STAGE: tile.alloc : !tile.ring<1, <key 64, feature 256, bf16>>
  // STAGE: tile.alloc : !tile.ring<1, <key 64, feature 320, bf16>>
  // STAGE: tile.alloc : !tile.shared<query 64, key 64, bf16>
  // STAGE: tile.alloc : !tile.shared<query 256, feature 1, f32>
  // STAGE: tile.produce {{.*}} warp 0
  // STAGE: tile.tma_load
  // STAGE: tile.produce {{.*}} warp 1
  // STAGE: tile.tma_load {{.*}} panel 4
  // STAGE: tile.produce {{.*}} warp 2
  // STAGE: tile.tma_load
  // STAGE: tile.produce {{.*}} warp 3
  // STAGE: tile.tma_load {{.*}} panel 4
  // STAGE: attn.staged {{.*}} keys {{.*}}, key_rest {{.*}}, keys_behind {{.*}}, key_rest_behind

  // The first warpgroup leaves its weights before it multiplies them; the second multiplies those first.
  // CHECK-LABEL: func.func @attend(
  // CHECK: %[[FIRST:.*]] = arith.cmpi eq
  // CHECK: scf.if %[[FIRST]] ->
  // CHECK: tile.start_mma {{.*}} -> <[query 16, key 64], f32>
  // CHECK: tile.start_mma {{.*}} plus {{.*}} -> <[query 16, key 64], f32>
  // CHECK: tile.wait_mmas 0
  // CHECK: attn.softmax_step
  // CHECK: tile.stage %{{.*}} : <[query 16, key 64], f32> -> <query 64, key 64, bf16>
  // CHECK: tile.stage %{{.*}} : <[query 16], f32> -> <query 256, feature 1, f32>
  // CHECK-NEXT: tile.fence_async
  // CHECK: tile.named_barrier_arrive %{{.*}} threads 256
  // CHECK: tile.start_mma %{{.*}} : !tile.fragment<[query 16, key 64], bf16>, <key 64, feature 256, bf16>
  // CHECK: tile.named_barrier_sync %{{.*}} threads 256
  // CHECK: tile.load_columns
  // CHECK: tile.wait_mmas 0
  // CHECK: tile.start_mma %{{.*}} : !tile.shared<query 64, key 64, bf16>, <key 64, feature 256, bf16>
  // CHECK: } else {
  // CHECK: tile.start_mma {{.*}} -> <[query 16, key 64], f32>
  // CHECK: tile.start_mma {{.*}} plus {{.*}} -> <[query 16, key 64], f32>
  // CHECK: tile.named_barrier_sync %{{.*}} threads 256
  // CHECK: tile.start_mma %{{.*}} : !tile.shared<query 64, key 64, bf16>, <key 64, feature 320, bf16>
  // CHECK: tile.wait_mmas 1
  // CHECK: attn.softmax_step
  // CHECK: tile.wait_mmas 0
  // CHECK: tile.stage
  // CHECK: tile.named_barrier_arrive %{{.*}} threads 256
  // CHECK: tile.start_mma %{{.*}} : !tile.fragment<[query 16, key 64], bf16>, <key 64, feature 320, bf16>

  // The sums of both go to the output: each warpgroup leaves its own, and takes the other's.
  // CHECK: tile.complete
  // CHECK: tile.stage %{{.*}} : <[query 16], f32> -> <query 256, feature 1, f32>
  // CHECK: tile.named_barrier_sync
  // CHECK: tile.load_columns
  // CHECK: tile.named_barrier_sync
  // CHECK: arith.addf

  // Each warpgroup has a loop of its own, without branches on its number. It passes on a ring that it does not read
  // where the next one is read, and the last one at the end.
  // ROLES-LABEL: func.func @attend(
  // ROLES: tile.tma_load %{{.*}} next %{{.*}} head
  // ROLES: scf.if %{{.*}} -> (!tile.fragment<[query 16], f32>,
  // ROLES: scf.for
  // ROLES: tile.named_barrier_arrive
  // ROLES: tile.named_barrier_sync
  // ROLES: tile.start_mma
  // ROLES: tile.wait_mmas 0
  // ROLES: tile.mbarrier_wait
  // ROLES: tile.arrive
  // ROLES: scf.yield
  // ROLES: scf.for
  // ROLES: tile.named_barrier_sync
  // ROLES: tile.mbarrier_wait
  // ROLES: tile.arrive
  // ROLES: tile.mbarrier_wait
  // ROLES: tile.start_mma
  func.func @attend(%q: !query {attn.name = "q"}, %kv: !latents {attn.name = "kv"}) -> !output attributes {tile.schedule = #shared} {
    %0 = attn.init %q : !query -> !state
    %1 = attn.update %0, %q, %kv see causal scale 0.125 : !query, !latents -> !state
    %o = attn.finish %1 : !state -> !output
    return %o : !output
  }
}
