// RUN: attn-opt %s --attn-lower-softmax-step | FileCheck %s

// Lifts of pairs are added to scores before the largest is found.

!s = !tile.fragment<[key 16, query 8], f32>
!row = !tile.fragment<[query 8], f32>
!sum = !tile.fragment<[query 8], f32, partial>
gpu.module @kernels {
  // CHECK-LABEL: func.func @lifted_pairs(
  func.func @lifted_pairs(%s: !s, %m: !row, %l: !sum, %log2: f32, %lift: !s) -> (!row, !sum, !s, !row, i1) {
    // CHECK-NEXT: %[[LIFTED:.*]] = tile.map %arg0, %arg4 (%[[SCORE:.*]]: f32, %[[LIFT:.*]]: f32) {
    // CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[SCORE]], %[[LIFT]] :
    // CHECK-NEXT: tile.yield %[[SUM]] :
    // CHECK: %[[LARGEST:.*]] = tile.reduce max %[[LIFTED]] :
    // CHECK: tile.map %arg1, %[[LARGEST]] (
    %0:5 = attn.softmax_step %s, %m, %l unit %log2 lift %lift : !s, !row, !sum, !s -> !row, !sum, !s, !row, i1
    return %0#0, %0#1, %0#2, %0#3, %0#4 : !row, !sum, !s, !row, i1
  }
}
