// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s

// A word has four scales of e4m3. Keys and values are multiplied by theirs in f16, so scores and weights take none.
// The tensor's scales are read once for a row, and include 2^14: the bits of quantized values are read as f16
// directly.
// CHECK-LABEL: @blocks_rows16(
// CHECK-SAME: <buffer, "kv.k_tensor_scale">, #tile.parameter<buffer, "kv.v_tensor_scale">
// CHECK: tile.alloc {{.*}}<key 32, feature 64, f4E2M1FN, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 64, f4E2M1FN, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 1, i32>>
// CHECK: tile.alloc {{.*}}<key 32, feature 1, i32>>
// CHECK: arith.mulf %{{.*}}, %cst{{.*}} : f32
// CHECK: scf.for
// CHECK: %[[WORDS:.*]] = tile.load_columns {{.*}} : <key 32, feature 1, i32> -> {{.*}}row
// CHECK: tile.widen tiny %{{.*}} blocks <4 of 16, f8E4M3FN> by %[[WORDS]] : <[key 32, feature 64], f4E2M1FN, rhs, runs 64 by 4>
// CHECK: tile.mma
// CHECK-NOT: arith.maxui
// CHECK: tile.widen tiny %{{.*}} blocks <4 of 16, f8E4M3FN> by %{{.*}} : <[feature 64, key 32], f4E2M1FN, rhs, runs 64>
!query = tensor<?x8x64xbf16>
!codes = !attn.quantized<f4E2M1FN, per = 16, scale = f8E4M3FN>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = !codes, value = !codes>
func.func @blocks(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
