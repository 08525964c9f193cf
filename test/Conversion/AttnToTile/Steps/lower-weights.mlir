// RUN: attn-opt %s --attn-lower-weights | FileCheck %s

// The unit of scores brings them to log2, where the LSE is.

!s = !tile.fragment<[key 16, query 32], f32>
!row = !tile.fragment<[query 32], f32>
gpu.module @kernels {
  func.func @weights(%s: !s, %lse: !row, %log2: f32) -> !s {
    // CHECK: %[[P:.*]] = tile.map %arg0, %arg1 (%[[S:.*]]: f32, %[[LSE:.*]]: f32) {
    // CHECK-NEXT: %[[BASE:.*]] = arith.negf %[[LSE]] :
    // CHECK-NEXT: %[[EXPONENT:.*]] = math.fma %[[S]], %arg2, %[[BASE]] :
    // CHECK-NEXT: %[[WEIGHT:.*]] = math.exp2 %[[EXPONENT]] :
    // CHECK-NEXT: tile.yield %[[WEIGHT]] :
    // CHECK: return %[[P]] :
    %0 = attn.weights %s less %lse unit %log2 : !row, !s
    return %0 : !s
  }
}
