// RUN: attn-opt %s --emit=manifest --target=sm_80 | FileCheck %s

// The class of each head is a tensor, the visibility of each class is compiled; ends of classes follow those
// of the operands.
// CHECK: "dtype": "i32"
// CHECK-NEXT: "name": "classes"
// CHECK-NEXT: "role": "classes"
// CHECK: "ends": [
// CHECK-NEXT: 100
// CHECK-NEXT: 64
// CHECK-NEXT: 256
// CHECK-NEXT: ]
// CHECK: "head_classes": [
// CHECK-NEXT: {
// CHECK-NEXT: "name": "retrieval"
// CHECK-NEXT: "visibility": {
// CHECK-NEXT: "kind": "all"
// CHECK: "name": "streaming"
// CHECK: "end": 1
// CHECK-NEXT: "kind": "sink"
// CHECK: "end": 2
// CHECK-NEXT: "kind": "recent"
// CHECK: "name": "duo_rows16"
// CHECK: "name": "ordinal_heads"
// CHECK: "name": "duo_merge"
// CHECK: "name": "ordinal_heads"
// CHECK: "operands": [
// CHECK: "end": 0
// CHECK-NEXT: "kind": "window"
!query = tensor<?x8x64xf16>
!kv = !attn.kv<dense, heads = 4, dim = 64, key = f16, value = f16>
func.func @duo(%q: !query {attn.name = "q"}, %kv: !kv {attn.name = "kv"},
               %classes: tensor<4xi32> {attn.name = "classes"}) -> !query {
  %o = attn.attend %q over (%kv see window(100))
      heads %classes {retrieval: see all, streaming: see sink(64) | recent(256)} : !query, !kv, tensor<4xi32> -> !query
  return %o : !query
}
