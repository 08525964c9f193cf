// RUN: attn-opt %s --emit=manifest --target=sm_80 | FileCheck %s --check-prefix=MANIFEST
// RUN: attn-opt %s --emit=tile --target=sm_80 | FileCheck %s
// RUN: attn-opt %s --emit=tile --target=sm_90a 2>&1 | FileCheck %s --check-prefix=HOPPER

// Instead of a number of heads the argument has a class, and the kernels ask how many that are.
// MANIFEST: "head_class": "streaming",
// MANIFEST-NEXT: "key_dim": 64
// MANIFEST-NOT: "kv_heads"
// MANIFEST: "name": "recent"
// MANIFEST: "name": "recent.heads"
// MANIFEST-NEXT: "type": "i32"

// What all heads share lies in rows of all heads, and `slot_heads` says which is this task's. A class's own store is read
// in rows of one head: token times heads, plus the slots of the class before this one.
// CHECK: func.func @duo_rows16
// CHECK: %[[TASK:.*]]:18 = tile.record
// CHECK: scf.for {{.*}} %[[THIS:[a-z0-9]+]] = %[[TASK]]#2,
// CHECK: tile.gather {{.*}} strides [256, 256]
// CHECK: %[[HEAD:.*]] = arith.subi %[[THIS]], %{{.*}} : i32
// CHECK: tile.lookup
// CHECK: %[[TOKEN:.*]] = tile.paged_slot
// CHECK-NEXT: %[[ROW:.*]] = arith.muli %[[TOKEN]], %{{.*}} : i32
// CHECK-NEXT: %[[SLOT:.*]] = arith.addi %[[ROW]], %[[HEAD]] : i32
// CHECK-NEXT: tile.yield %[[SLOT]]
// CHECK: tile.gather {{.*}} strides [64, 64]

// Boxes have strides that the kernel knows.
// HOPPER: remark: schedule wgmma gathers keys and values: boxes have strides that are known before the kernel runs, and stores of one head class (heads = ?) have not
// HOPPER-NOT: tile.fetch {{.*}}.map
!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
!part = !attn.kv<paged<16>, heads = ?, dim = 64, key = f16, value = f16>
func.func @duo(%q: !query {attn.name = "q"}, %context: !kv {attn.name = "context"}, %recent: !part {attn.name = "recent"},
               %classes: tensor<4xi32> {attn.name = "classes"}) -> !query {
  %o = attn.attend %q over (%context see all), (%recent see causal for streaming)
      heads %classes {retrieval: see all, streaming: see recent(256)} : !query, !kv, !part, tensor<4xi32> -> !query
  return %o : !query
}
