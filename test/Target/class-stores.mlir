// RUN: attn-opt %s --emit=manifest --target=sm_80 | FileCheck %s --check-prefix=MANIFEST
// RUN: attn-opt %s --emit=tile --target=sm_80 | FileCheck %s
// RUN: attn-opt %s --emit=tile --target=sm_90a 2>&1 | FileCheck %s --check-prefix=HOPPER

// The argument has a class instead of a number of heads. Kernels do not use that number: they get the
// distances of heads, of tokens and of pages.
// MANIFEST: "head_class": "streaming",
// MANIFEST-NEXT: "key_dim": 64
// MANIFEST-NOT: "kv_heads"
// MANIFEST: "name": "recent"
// MANIFEST-NOT: "name": "recent.heads"
// MANIFEST: "name": "recent.outer_slots"
// MANIFEST-NEXT: "type": "i32"

// `ordinal_heads` gives this task's head of a store that all heads share. In a class's own store the head is
// the ordinal less the heads of earlier classes.
// CHECK: func.func @duo_rows16
// CHECK: %[[TASK:.*]]:18 = tile.record
// CHECK: scf.for {{.*}} %[[THIS:[a-z0-9]+]] = %[[TASK]]#2,
// CHECK: tile.gather {{.*}} pitches
// CHECK: tile.lookup
// CHECK: %[[TOKEN:.*]] = tile.paged_slot {{.*}} page 16 apart %{{.*}} :
// CHECK-NEXT: tile.yield %[[TOKEN]]
// CHECK: %[[HEAD:.*]] = arith.subi %[[THIS]], %{{.*}} : i32
// CHECK-NEXT: %[[WIDE:.*]] = arith.extsi %[[HEAD]] : i32 to i64
// CHECK: arith.muli %[[WIDE]], %{{.*}} : i64
// CHECK: tile.gather {{.*}} pitches

// Boxes belong to a tensor whose number of heads the launch gives; a box's head is the head in the class's
// store.
// HOPPER: func.func @duo_rows128
// HOPPER-SAME: #tile.tensor_map<"recent.k.map.16x64" of "recent.k_pages", f16, extents = [64, 1, 1, 1], dims = {{\[\[}}], ["recent.slots"], [], ["recent.heads"]]
// HOPPER: tile.tma_load {{.*}} lines 160
// HOPPER: %[[PLACE:[0-9]+]] = arith.subi
// HOPPER-NEXT: tile.tma_load {{.*}} head %[[PLACE]] lines 16
!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
!part = !attn.kv<paged<16>, heads = ?, dim = 64, key = f16, value = f16>
func.func @duo(%q: !query {attn.name = "q"}, %context: !kv {attn.name = "context"}, %recent: !part {attn.name = "recent"},
               %classes: tensor<4xi32> {attn.name = "classes"}) -> !query {
  %o = attn.attend %q over (%context see all), (%recent see causal for streaming)
      heads %classes {retrieval: see all, streaming: see recent(256)} : !query, !kv, !part, tensor<4xi32> -> !query
  return %o : !query
}
