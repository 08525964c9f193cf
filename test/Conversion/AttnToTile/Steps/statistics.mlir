// RUN: attn-opt %s --attn-lower-rescale --attn-lower-weights --attn-lower-lift --mlir-pass-statistics -o /dev/null 2>&1 | FileCheck %s --strict-whitespace --match-full-lines

// A pass counts the operations that it has lowered in all functions of a module. A pass that has lowered none has no
// line.

//      CHECK:attn-lower-rescale
// CHECK-NEXT:  (S) 2 lowered - operations that were lowered
// CHECK-NEXT:attn-lower-weights
// CHECK-NEXT:  (S) 1 lowered - operations that were lowered
//  CHECK-NOT:{{.+}}

!o = !tile.fragment<[query 16, feature 64], f32>
!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], f32>
gpu.module @kernels {
  func.func @first(%o: !o, %decay: !row, %moved: i1) -> !o {
    %0 = attn.rescale %o by %decay if %moved : !o, !row
    return %0 : !o
  }
  func.func @second(%o: !o, %decay: !row, %moved: i1, %s: !s, %log2: f32) -> (!o, !s) {
    %0 = attn.rescale %o by %decay if %moved : !o, !row
    %1 = attn.weights %s less %decay unit %log2 : !row, !s
    return %0, %1 : !o, !s
  }
}
