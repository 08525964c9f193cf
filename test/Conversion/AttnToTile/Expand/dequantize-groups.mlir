// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s

// Metadata by line comes with the codes, to narrow tiles: lines of a head are neighbours in its page, and pages lie
// 2 heads * 16 lines * 2 groups * 2 halves apart. Keys: sums of the queries' groups in front of the loop, a dot for each
// group, and scale and zero beside the products. Values become code * scale + zero on their way to the dot, as f16.
// CHECK-LABEL: @groups_rows16(
// CHECK: tile.alloc {{.*}}<key 32, feature 64, i8, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 64, i4, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 4, f16>>
// CHECK: tile.alloc {{.*}}<key 32, feature 2, f16>>
// CHECK: tile.gather {{.*}} strides [128, 128, 4, 2] pages [1, 1, 16, 16] page_strides [0, 0, 128, 64] into
// CHECK: tile.wait 2
// CHECK: %[[Q:.*]], %[[FACTOR:.*]] = tile.narrow
// CHECK: tile.part %{{.*}} from 0
// CHECK: %[[SUM:.*]] = tile.reduce max
// CHECK: tile.part %{{.*}} from 32
// CHECK: tile.reduce max
// CHECK: scf.for
// CHECK: tile.load_rhs {{.*}} per 32 : <key 32, feature 64, i8, swizzled>
// CHECK: tile.load_columns {{.*}} : <key 32, feature 4, f16>
// CHECK: tile.part
// CHECK: %[[P:.*]] = tile.dot
// CHECK: tile.map %[[P]], %{{.*}}#0, %{{.*}}#1, %[[SUM]]
// CHECK: tile.dot
// CHECK: tile.load_columns {{.*}} : <key 32, feature 2, f16>
// CHECK: tile.widen {{.*}} times {{.*}} plus {{.*}} -> <[feature 64, key 32], f16
// CHECK: tile.cast {{.*}} -> <[query 16, key 32], f16, lhs>
// CHECK: tile.dot
!query = tensor<?x8x64xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = !attn.codes<i8, per = 32>, value = !attn.codes<i4, per = 64>>
func.func @groups(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}

// How many heads the store of a class has is known when the kernel runs: distances of slots are multiplied by it.
// CHECK-LABEL: @classes_rows16(
// CHECK: tile.gather {{.*}} strides [64, 64, 1, 1] times %{{.*}} pages [1, 1, 16, 16] page_strides [0, 0, 16, 16] into
!store = !attn.kv<paged<16>, heads = ?, dim = 64, key = !attn.codes<f8E4M3FN, per = token>, value = !attn.codes<f8E5M2, per = token>>
func.func @classes(%q: !query {attn.name = "q"}, %a: !store {attn.name = "a"}, %b: !store {attn.name = "b"},
                   %classes: tensor<2xi32> {attn.name = "classes"}) -> !query {
  %o = attn.attend %q over (%a see causal for x), (%b see causal for y) heads %classes {x: see all, y: see recent(64)} : !query, !store, !store, tensor<2xi32> -> !query
  return %o : !query
}
