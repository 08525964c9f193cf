// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s

// A word has four scales of e4m3, whose sign is not read and whose last code is no number. Those of keys scale products; values
// are multiplied by theirs in f16, so weights take none. The tensor's scales are read once for a row.
// CHECK-LABEL: @blocks_rows16(
// CHECK-SAME: <buffer, "kv.k_tensor_scale">, #tile.parameter<buffer, "kv.v_tensor_scale">
// CHECK: tile.alloc {{.*}}<key 32, feature 64, f4E2M1FN, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 64, f4E2M1FN, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 1, i32>>
// CHECK: tile.alloc {{.*}}<key 32, feature 1, i32>>
// CHECK: scf.for
// CHECK: %[[WORDS:.*]] = tile.load_columns {{.*}} : <key 32, feature 1, i32>
// CHECK: %[[SCALE:.*]] = tile.map %[[WORDS]]
// CHECK: arith.bitcast {{.*}} : i16 to f16
// CHECK: arith.cmpi eq
// CHECK: arith.select
// CHECK: %[[P0:.*]] = tile.dot
// CHECK: %[[S0:.*]] = tile.map %[[P0]], %[[SCALE]] (%{{.*}}: f32, %{{.*}}: f16)
// CHECK-NOT: arith.maxui
// CHECK: tile.widen %{{.*}} times %{{.*}}, %{{.*}} : <[feature 64, key 32], f4E2M1FN
!query = tensor<?x8x64xbf16>
!codes = !attn.codes<f4E2M1FN, per = 16, scale = f8E4M3FN>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = !codes, value = !codes>
func.func @blocks(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
