// RUN: attn-opt %s --attn-lower-softmax-step | FileCheck %s

// A lift is added to the largest score before the unit is compared with it. Tokens may be rows of the scores.

!s = !tile.fragment<[key 32, query 8], f32>
!row = !tile.fragment<[query 8], f32>
!sum = !tile.fragment<[query 8], f32, partial>
gpu.module @kernels {
  func.func @lifted(%s: !s, %m: !row, %l: !sum, %log2: f32, %lift: !row) -> (!row, !sum, !s, !row, i1) {
    // CHECK: %[[LARGEST:.*]] = tile.reduce max %arg0 : <[key 32, query 8], f32> -> <[query 8], f32>
    // CHECK-NEXT: %[[LIFTED:.*]] = tile.map %[[LARGEST]], %arg4 (%[[MAX:.*]]: f32, %[[LIFT:.*]]: f32) {
    // CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[MAX]], %[[LIFT]] :
    // CHECK-NEXT: tile.yield %[[SUM]] :
    // CHECK: %[[U:.*]]:4 = tile.map %arg1, %[[LIFTED]] (%[[OLD:.*]]: f32, %[[SEEN:.*]]: f32) {
    // CHECK-NEXT: arith.subf %[[SEEN]], %[[OLD]] :
    // CHECK: tile.map %arg0, %[[U]]#2 (
    // CHECK: tile.reduce add %{{.*}} : <[key 32, query 8], f32> -> <[query 8], f32, partial>
    %0:5 = attn.softmax_step %s, %m, %l unit %log2 lift %lift : !s, !row, !sum, !row -> !row, !sum, !s, !row, i1
    return %0#0, %0#1, %0#2, %0#3, %0#4 : !row, !sum, !s, !row, i1
  }
}
