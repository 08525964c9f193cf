// RUN: attn-opt %s --target=sm_90a --emit=tile | FileCheck %s

// Sums of keys of 192 features and of values leave registers for the results of one more MMA: those of the loop run one
// after the other. Each warpgroup adds to one and a half panels of rows' features, in two pieces.

!q = tensor<?x8x192xbf16>
!o = tensor<?x8x128xbf16>
!kv = !attn.kv<packed, heads = 2, dim = 192, value_dim = 128, key = bf16, value = bf16>
func.func @wide(%q: !q {attn.name = "q"}, %kv: !kv {attn.name = "kv"}) -> !o attributes {attn.backward, attn.ordered = false} {
  %o = attn.attend %q over (%kv see causal) scale 0.125 : !q, !kv -> !o
  return %o : !o
}

// CHECK-LABEL: func.func @wide_tokens128_kv(
// CHECK: %[[SUMS:.*]] = tile.alloc {{.*}} : !tile.shared<query 64, feature 192, f32, swizzled>
// The warp that stores takes three panels of each warpgroup.
// CHECK: tile.tma_store {{.*}} adds {{.*}} panel %c0_i32
// CHECK: tile.tma_store {{.*}} adds {{.*}} panel %c3_i32
// CHECK: tile.set_registers increase 240
// No scores start early. Gradients of scores begin with deltas, when the weights are known.
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (!tile.fragment<[key 16, feature 192], f32, acc>, !tile.fragment<[key 16, feature 128], f32, acc>, i32)
// CHECK: %[[S:.*]] = tile.start_mma
// CHECK: tile.wait_mmas 0 of %[[S]]
// CHECK: math.exp2
// CHECK: %[[LESS:[^ ]*]] = tile.map
// CHECK-NEXT: arith.negf
// CHECK: %[[DP:.*]] = tile.start_mma {{.*}} plus %[[LESS]]
// CHECK: tile.wait_mmas 0 of %[[DP]]
// The sum of values ends when the warpgroups have met.
// CHECK: %[[DV:.*]] = tile.start_mma {{.*}} -> <[key 16, feature 128], f32, acc>
// CHECK: tile.named_barrier_sync %c1_i32
// CHECK: tile.wait_mmas 0 of %[[DV]]
// CHECK: %[[WHOLE:.*]] = tile.start_mma {{.*}} -> <[query 16, feature 64], f32, acc>
// CHECK: %[[DK:.*]] = tile.start_mma {{.*}} -> <[key 16, feature 192], f32, acc>
// CHECK: tile.wait_mmas 1 of %[[WHOLE]]
// CHECK: tile.stage {{.*}} <query 64, feature 64, f32, swizzled>
// CHECK: %[[HALF:.*]] = tile.start_mma {{.*}} -> <[query 16, feature 32], f32, acc>
// CHECK: tile.wait_mmas 0 of %[[DK]], %[[HALF]]
// CHECK: tile.stage {{.*}} <query 64, feature 32, f32, swizzled>
// CHECK: tile.named_barrier_sync %c2_i32
