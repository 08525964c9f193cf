// RUN: attn-opt %s --emit=tile --schedule=mma | FileCheck %s

// Metadata by line comes with the quantized values, to narrow tiles: lines of a head are neighbours in its page,
// which has 2 heads * 16 lines, and slots count lines. Keys: sums of the queries' groups before the loop, an MMA for
// each group, and scale and zero point beside the products. Values become x * scale + zero on their way to the MMA,
// as f16.
// CHECK-LABEL: @groups_rows16(
// CHECK: tile.alloc {{.*}}<key 32, feature 64, i8, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 64, i4, swizzled>>
// CHECK: tile.alloc {{.*}}<key 32, feature 4, f16>>
// CHECK: tile.alloc {{.*}}<key 32, feature 2, f16>>
// CHECK: tile.paged_slot {{.*}} page 16 apart %c32_i32
// CHECK: tile.gather {{.*}} strides [64, 64, 4, 2] into
// CHECK: tile.wait 2
// CHECK: %[[Q:.*]], %[[FACTOR:.*]] = tile.narrow
// CHECK: tile.part %{{.*}} from 0
// CHECK: %[[ALL:.*]] = tile.reduce max
// CHECK: tile.part %{{.*}} from 32
// CHECK: tile.reduce max
// CHECK: tile.balance %[[Q]] for i8
// CHECK: %[[SUM:.*]] = tile.map %[[ALL]] (
// CHECK: scf.for
// CHECK: tile.load_rhs {{.*}} per 32 : <key 32, feature 64, i8, swizzled>
// CHECK: tile.load_columns {{.*}} : <key 32, feature 4, f16>
// CHECK: tile.part
// CHECK: %[[P:.*]] = tile.mma
// CHECK: tile.map %[[P]], %{{.*}}#0, %{{.*}}#1, %[[SUM]]
// CHECK: tile.mma
// CHECK: tile.load_columns {{.*}} : <key 32, feature 2, f16>
// CHECK: tile.widen {{.*}} times {{.*}} plus {{.*}} -> <[feature 64, key 32], f16
// CHECK: tile.cast {{.*}} -> <[query 16, key 32], f16, lhs>
// CHECK: tile.mma
!query = tensor<?x8x64xbf16>
!cache = !attn.kv<paged<16>, heads = 2, dim = 64, key = !attn.quantized<i8, per = 32>, value = !attn.quantized<i4, per = 64>>
func.func @groups(%q: !query {attn.name = "q"}, %kv: !cache {attn.name = "kv"}) -> !query {
  %o = attn.attend %q over (%kv see causal) : !query, !cache -> !query
  return %o : !query
}

// The store of a class has a number of heads that is known when the kernel runs: a page has that many times its
// lines.
// CHECK-LABEL: @classes_rows16(
// CHECK: tile.paged_slot {{.*}} page 16 apart %{{.*}}
// CHECK: tile.gather {{.*}} strides [64, 64, 1, 1] into
!store = !attn.kv<paged<16>, heads = ?, dim = 64, key = !attn.quantized<f8E4M3FN, per = token>, value = !attn.quantized<f8E5M2, per = token>>
func.func @classes(%q: !query {attn.name = "q"}, %a: !store {attn.name = "a"}, %b: !store {attn.name = "b"},
                   %classes: tensor<2xi32> {attn.name = "classes"}) -> !query {
  %o = attn.attend %q over (%a see causal for x), (%b see causal for y) heads %classes {x: see all, y: see recent(64)} : !query, !store, !store, tensor<2xi32> -> !query
  return %o : !query
}

// A page of one token has nothing but heads, and distances of slots are multiplied by their number.
// CHECK-LABEL: @single_rows16(
// CHECK: tile.gather {{.*}} strides [64, 64, 1, 1] times %{{.*}} into
!tokens = !attn.kv<paged<1>, heads = ?, dim = 64, key = !attn.quantized<f8E4M3FN, per = token>, value = !attn.quantized<f8E5M2, per = token>>
func.func @single(%q: !query {attn.name = "q"}, %a: !tokens {attn.name = "a"}, %b: !tokens {attn.name = "b"},
                   %classes: tensor<2xi32> {attn.name = "classes"}) -> !query {
  %o = attn.attend %q over (%a see causal for x), (%b see causal for y) heads %classes {x: see all, y: see recent(64)} : !query, !tokens, !tokens, tensor<2xi32> -> !query
  return %o : !query
}
