// RUN: attn-opt %s --attn-lower-lift | FileCheck %s

// The lift of a pair is the log2 of its token's scale, which is finite, as a score of -inf plus inf would be NaN.

!s = !tile.fragment<[query 16, key 64], f32>
!f32 = !tile.fragment<[key 64], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @pairs(
  func.func @pairs(%scales: !f32, %log2: f32) -> !s {
    // CHECK-NOT: tile.reduce
    // CHECK: %[[LIFT:.*]] = tile.map %arg0 (%[[X:.*]]: f32) {
    // CHECK: %[[SIZE:.*]] = math.absf %[[X]] :
    // CHECK: %[[SOME:.*]] = arith.maxnumf %[[SIZE]], %{{.*}} :
    // CHECK: arith.constant 3.40282347E+38 :
    // CHECK: %[[FINITE:.*]] = arith.minnumf %[[SOME]], %{{.*}} :
    // CHECK: math.log2 %[[FINITE]] :
    // CHECK: -> !tile.fragment<[query 16, key 64], f32>
    // CHECK-NEXT: return %[[LIFT]] :
    %0 = attn.lift %scales unit %log2 of !s : !f32 -> !s
    return %0 : !s
  }
}
