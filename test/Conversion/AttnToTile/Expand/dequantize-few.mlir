// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s
// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s --check-prefix=MANY

// Few rows: weights take the values' scales, and the unit of weights follows the largest product of a tile. Values
// are tiny, and zero points add one number for each row, until the warps' states are merged.
// CHECK-LABEL: func.func @decode_rows8(
// CHECK: scf.for {{.*}} -> (!tile.fragment<[query 8], f32, col>, !tile.fragment<[query 8], f32, col, partial>, !tile.fragment<[feature 128, query 8], f32, acc, runs 128>, !tile.fragment<[query 8], f32, col, partial>
// CHECK: %[[NARROW:.*]], %{{.*}} = tile.narrow {{.*}} -> <[query 8, feature 128], f16, rhs, runs 64 by 4>
// CHECK: %[[Q:.*]] = tile.balance %[[NARROW]] for i4
// CHECK: %[[META:.*]]:2 = tile.load_columns {{.*}} -> !tile.fragment<[key 32], f16, row>, !tile.fragment<[key 32], f16, row>
// CHECK: math.absf
// CHECK: %[[SCALE:.*]] = tile.reduce max
// CHECK: %[[LIFT:.*]] = tile.map %[[SCALE]]
// CHECK: math.log2
// CHECK: %[[K:.*]] = tile.widen tiny
// CHECK: tile.mma %[[K]], %[[Q]], {{.*}} -> <[key 32, query 8], f32, acc>
// CHECK: %[[LARGEST:.*]] = tile.reduce max
// CHECK: tile.map %[[LARGEST]], %[[LIFT]]
// CHECK: %[[WEIGHTS:.*]] = tile.map
// CHECK: math.exp2
// CHECK: tile.map %{{.*}}, %[[META]]#1
// CHECK: tile.reduce add {{.*}} -> <[query 8], f32, col, partial>
// CHECK: tile.map %{{.*}}, %[[META]]#0
// CHECK: %[[V:.*]] = tile.widen tiny
// CHECK: %[[P:.*]] = tile.cast {{.*}} -> <[query 8, key 32], f16, rhs>
// CHECK: tile.mma %[[V]], %[[P]], {{.*}} -> <[feature 128, query 8], f32, acc, runs 128>
// CHECK: tile.complete
// CHECK: tile.complete
// CHECK: tile.merge_warps

// Tiles of more rows of the same problem have sixteen rows, and dequantize values.
// MANY-LABEL: func.func @decode_rows16(
// MANY: tile.widen %{{.*}} times %{{.*}} plus
// MANY-NOT: tile.restore
!query = tensor<?x8x128xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 128, key = !attn.quantized<i4, per = 128>, value = !attn.quantized<i2, per = 128>>
func.func @decode(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}
