// RUN: attn-opt %s --attn-lower-rescale | FileCheck %s

// If no unit has moved, the sum is unchanged.

!o = !tile.fragment<[query 16, feature 64], f32>
!row = !tile.fragment<[query 16], f32>
gpu.module @kernels {
  func.func @rescale(%o: !o, %decay: !row, %moved: i1) -> !o {
    // CHECK: %[[O:.*]] = scf.if %arg2 ->
    // CHECK-NEXT: %[[SCALED:.*]] = tile.map %arg0, %arg1 (%[[X:.*]]: f32, %[[D:.*]]: f32) {
    // CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[X]], %[[D]] :
    // CHECK-NEXT: tile.yield %[[PRODUCT]] :
    // CHECK: scf.yield %[[SCALED]] :
    // CHECK-NEXT: } else {
    // CHECK-NEXT: scf.yield %arg0 :
    // CHECK: return %[[O]] :
    %0 = attn.rescale %o by %decay if %moved : !o, !row
    return %0 : !o
  }
}
