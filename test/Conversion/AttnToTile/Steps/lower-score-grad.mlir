// RUN: attn-opt %s --attn-lower-score-grad | FileCheck %s

// An absent operand costs nothing. A pair of weight 0 has a gradient of 0, whatever slope the region gives it.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], f32>
gpu.module @kernels {
  // CHECK-LABEL: func.func @all(
  func.func @all(%p: !s, %dp: !s, %delta: !row, %slopes: !s) -> !s {
    // CHECK-NEXT: %[[DS:.*]] = tile.map %arg0, %arg1, %arg2, %arg3 (%[[P:.*]]: f32, %[[DP:.*]]: f32, %[[D:.*]]: f32, %[[SLOPE:.*]]: f32) {
    // CHECK-NEXT: %[[LESS:.*]] = arith.subf %[[DP]], %[[D]] :
    // CHECK-NEXT: %[[GRADIENT:.*]] = arith.mulf %[[P]], %[[LESS]] :
    // CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[SEEN:.*]] = arith.cmpf une, %[[P]], %[[ZERO]] :
    // CHECK-NEXT: %[[PRODUCT:.*]] = arith.mulf %[[GRADIENT]], %[[SLOPE]] :
    // CHECK-NEXT: %[[NONE:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[RESULT:.*]] = arith.select %[[SEEN]], %[[PRODUCT]], %[[NONE]] :
    // CHECK-NEXT: tile.yield %[[RESULT]] :
    // CHECK: return %[[DS]] :
    %0 = attn.score_grad %p, %dp : !s less %delta : !row times %slopes : !s : !s
    return %0 : !s
  }
  // CHECK-LABEL: func.func @parts(
  func.func @parts(%p: !s, %dp: !s, %slopes: !s) -> (!s, !s) {
    // CHECK-NEXT: tile.map %arg0, %arg1 (%[[P:.*]]: f32, %[[DP:.*]]: f32) {
    // CHECK-NEXT: %[[GRADIENT:.*]] = arith.mulf %[[P]], %[[DP]] :
    // CHECK-NEXT: tile.yield %[[GRADIENT]] :
    // CHECK: tile.map %arg0, %arg2 (%[[P:.*]]: f32, %[[SLOPE:.*]]: f32) {
    // CHECK: arith.mulf %[[P]], %[[SLOPE]] :
    %0 = attn.score_grad %p, %dp : !s : !s
    %1 = attn.score_grad %p times %slopes : !s : !s
    return %0, %1 : !s, !s
  }
}
