// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s

// Four scales of blocks are a word of a narrow tile. Scales of keys multiply products, one for each block. The
// largest scale of a token's values multiplies its weights, and quantized values are multiplied by the block's scale
// over the largest. With few rows, a warp's rows come second: the largest moves to the lanes that hold columns.
// CHECK-LABEL: @blocks_rows8(
// CHECK: arith.maxui
// CHECK-NOT: arith.maxui
// CHECK: %[[OWN:.*]] = tile.convert %{{.*}} : <[key 32], i32, row> -> <[key 32], i32, col>
// CHECK: tile.widen tiny %{{.*}} blocks <2 of 32, f8E8M0FNU> by %{{.*}} over %[[OWN]] : <[feature 64, key 32], f4E2M1FN
// CHECK-LABEL: @blocks_rows16(
// CHECK: tile.alloc {{.*}}<key 32, feature 64, f8E4M3FN, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 64, f4E2M1FN, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 1, i32>>
// CHECK: tile.alloc {{.*}}<key 32, feature 1, i32>>
// CHECK: scf.for
// CHECK: tile.load_columns {{.*}} : <key 32, feature 1, i32>
// CHECK: %[[MOST:.*]] = tile.map
// CHECK: arith.maxui
// CHECK: %[[SCALE:.*]] = tile.map %[[MOST]]
// CHECK: %[[P0:.*]] = tile.mma
// CHECK: %[[S0:.*]] = tile.map %[[P0]], %{{.*}} (%{{.*}}: f32, %{{.*}}: f32)
// CHECK: %[[P1:.*]] = tile.mma
// CHECK: tile.map %[[P1]], %{{.*}}, %[[S0]]
// CHECK: tile.widen tiny %{{.*}} blocks <2 of 32, f8E8M0FNU> by %{{.*}} over %[[MOST]] : <[feature 64, key 32], f4E2M1FN
!query = tensor<?x8x64xbf16>
!keys = !attn.quantized<f8E4M3FN, per = 32, scale = f8E8M0FNU>
!values = !attn.quantized<f4E2M1FN, per = 32, scale = f8E8M0FNU>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = !keys, value = !values>
func.func @blocks(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
