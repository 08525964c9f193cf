// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-make-kernels,gpu.module(attn-differentiate,attn-sum-parts,attn-walk-plan,attn-stage-operands,attn-expand-online,tile-specialize-warps))' | FileCheck %s

// Kernels of gradients with roles: stationary and walked parts are fills of rings, and MMAs start together.

!q = tensor<?x4x64xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 64, key = bf16, value = bf16>
!lse = tensor<?x4xf32>
!state = !attn.state<heads = 4, value_dim = 64>
#rows = #tile.schedule<wgmma, rows = 128, keys = 64, warps = 8, stages = 2, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 24, consumer_registers = 240, query_stages = 1, query_copy = boxes 128, key_copies = [boxes 64, boxes 64], value_copies = [boxes 64, boxes 64], value_boxes = 0, ping_pong = false, epilogue = store>
#tokens = #tile.schedule<wgmma, rows = 128, keys = 32, warps = 8, stages = 3, blocks = 1, split_keys = false, query_in_registers = false, producers = 4, producer_registers = 24, consumer_registers = 240, query_stages = 1, query_copy = boxes 32, key_copies = [boxes 128, boxes 128], value_copies = [boxes 128, boxes 128], value_boxes = 0, ping_pong = false, epilogue = store>

func.func @f(%q: !q {attn.name = "q"}, %a: !kv {attn.name = "a"}, %b: !kv {attn.name = "b"}) -> (!q, !lse)
    attributes {attn.backward, tile.schedules = [#rows], tile.token_schedule = #tokens} {
  %0 = attn.init %q : !q -> !state
  %1 = attn.update %0, %q, %a see all scale 0.125 : !q, !kv -> !state
  %2 = attn.update %1, %q, %b see causal scale 0.125 : !q, !kv -> !state
  %o, %lse = attn.finish %2 : !state -> !q, !lse
  return %o, %lse : !q, !lse
}

// Sums go over both keys and values of a tile: lines past the last are cleared. Tiles belong to one of two regions.
// CHECK-LABEL: func.func @f_rows128(
// CHECK: tile.produce %{{.*}} warp 0 (%[[K:.*]]: !tile.shared<key 64, feature 64, bf16>)
// CHECK: scf.if
// CHECK: tile.clear %[[K]]
// CHECK: tile.produce %{{.*}} warp 1 (%[[V:.*]]: !tile.shared<key 64, feature 64, bf16>)
// CHECK: tile.clear %[[V]]
// CHECK: tile.produce %{{.*}} warp 2 (%{{.*}}: !tile.shared<query 128, feature 64, bf16>)
// CHECK: tile.produce %{{.*}} warp 3 (%{{.*}}: !tile.shared<query 128, feature 64, bf16>)
// CHECK: tile.produce %{{.*}} warp 3 (%{{.*}}: !tile.shared<query 128, feature 64, bf16>)
// CHECK: tile.set_registers increase 240
// CHECK-COUNT-3: tile.consume
// CHECK: %[[KEYS:.*]] = tile.consume
// CHECK-NEXT: %[[VALUES:.*]] = tile.consume
// CHECK: %[[S:.*]] = attn.scores started %[[Q:.*]], %[[KEYS]] at %[[GROUP:.*]] :
// CHECK-NEXT: %[[DP:.*]] = attn.scores started %[[DO:.*]], %[[VALUES]] at %[[GROUP]] :
// CHECK-NEXT: %[[SCORES:.*]] = tile.wait_mmas 1 of %[[S]] :
// CHECK: %[[MASKED:.*]] = attn.mask %[[SCORES]] at {{.*}} see all if
// CHECK: attn.mask %[[MASKED]] at {{.*}} see causal if
// CHECK: %[[P:.*]] = attn.weights %{{.*}} less %{{.*}} unit
// CHECK-NEXT: %[[ENDED:.*]] = tile.wait_mmas 0 of %[[DP]] :
// CHECK-NEXT: %[[DS:.*]] = attn.score_grad %[[P]], %[[ENDED]] : {{.*}} less %{{.*}} :
// CHECK-NEXT: %[[DQ:.*]] = attn.accumulate started %[[DS]], %[[KEYS]] into %{{.*}} :
// CHECK-NEXT: tile.wait_mmas 0 of %[[DQ]]
// CHECK-NOT: {{started|start_mma}}
// CHECK: return

// A block whose task belongs to the other region skips all of it.
// CHECK-LABEL: func.func @f_tokens128_a(
// CHECK: %[[COUNT:.*]] = arith.select
// CHECK: scf.for %{{.*}} = %{{.*}} to %[[COUNT]] step
// CHECK: tile.produce %{{.*}} warp 0 (%{{.*}}: !tile.shared<key 128, feature 64, bf16>)
// The numbers of rows: three for each row, one kind after the other.
// CHECK: tile.produce %{{.*}} warp 0 (%[[NUMBERS:.*]]: !tile.shared<query 96, feature 1, f32>)
// CHECK: %[[LSE:.*]] = tile.overlay %[[NUMBERS]] at %c0_i32{{.*}} -> <query 32, feature 1, f32>
// CHECK: tile.gather warp {{.*}} into %[[LSE]]
// CHECK: %[[DELTA:.*]] = tile.overlay %[[NUMBERS]] at %c32_i32{{.*}} -> <query 32, feature 1, f32>
// CHECK: tile.gather warp {{.*}} into %[[DELTA]]
// CHECK: %[[POSITION:.*]] = tile.overlay %[[NUMBERS]] at %c64_i32{{.*}} -> <query 32, feature 1, i32>
// CHECK: tile.gather warp {{.*}} into %[[POSITION]]
// CHECK: tile.produce %{{.*}} warp 1 (%{{.*}}: !tile.shared<key 128, feature 64, bf16>)
// CHECK: tile.produce %{{.*}} warp 2 (%[[QS:.*]]: !tile.shared<query 32, feature 64, bf16>)
// CHECK: tile.clear %[[QS]]
// CHECK: tile.produce %{{.*}} warp 3 (%[[DOS:.*]]: !tile.shared<query 32, feature 64, bf16>)
// CHECK: tile.clear %[[DOS]]
// CHECK: tile.set_registers increase 240
// CHECK: %[[K:.*]] = tile.consume
// CHECK-NEXT: %[[V:.*]] = tile.consume
// CHECK: %[[Q:.*]] = tile.consume
// CHECK-NEXT: %[[DO:.*]] = tile.consume
// CHECK: %[[S:.*]] = attn.scores started %[[Q]], %[[K]] at %[[GROUP:.*]] :
// In two launches, dp begins with minus delta.
// CHECK-NEXT: %[[DELTA:.*]] = tile.load_columns
// CHECK-NEXT: %[[LESS:.*]] = tile.map %[[DELTA]]
// CHECK-NEXT: arith.negf
// CHECK: %[[DP:.*]] = attn.scores started %[[DO]], %[[V]] at %[[GROUP]] plus %[[LESS]] :
// CHECK: %[[SCORES:.*]] = tile.wait_mmas 1 of %[[S]] :
// CHECK: %[[MASKED:.*]] = attn.mask %[[SCORES]] at {{.*}} see all :
// CHECK-NEXT: %[[P:.*]] = attn.weights %[[MASKED]] less %{{.*}} unit
// CHECK-NEXT: %[[DV:.*]] = attn.accumulate started %[[P]], %[[DO]] into
// CHECK-NEXT: %[[ENDED:.*]] = tile.wait_mmas 1 of %[[DP]] :
// CHECK-NEXT: %[[DS:.*]] = attn.score_grad %[[P]], %[[ENDED]] : !tile.fragment<[key 16, query 32], f32> : <[key 16, query 32], f32>
// CHECK-NEXT: %[[DK:.*]] = attn.accumulate started %[[DS]], %[[Q]] into
// CHECK-NEXT: tile.wait_mmas 0 of %[[DK]], %[[DV]] :
