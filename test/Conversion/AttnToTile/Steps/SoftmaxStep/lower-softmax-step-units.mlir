// RUN: attn-opt %s --attn-lower-softmax-step | FileCheck %s

// With fixed units there is no decay, and sums are added. A lift is added to the largest score before units are compared.

!s = !tile.fragment<[key 16, query 8], f32>
!row = !tile.fragment<[query 8], f32>
!sum = !tile.fragment<[query 8], f32, partial>
gpu.module @kernels {
  // CHECK-LABEL: func.func @fixed(
  func.func @fixed(%s: !s, %m: !row, %l: !sum, %log2: f32) -> (!row, !sum, !s) {
    // CHECK: %[[UNIT:.*]] = scf.if
    // CHECK: %[[BASE:.*]] = tile.map %[[UNIT]] (%[[U:.*]]: f32) {
    // CHECK-NEXT: %[[LOG:.*]] = arith.mulf %[[U]], %arg3 :
    // CHECK-NEXT: %[[NEGATIVE:.*]] = arith.negf %[[LOG]] :
    // CHECK-NEXT: tile.yield %[[NEGATIVE]] :
    // CHECK: %[[P:.*]] = tile.map %arg0, %[[BASE]] (%[[S:.*]]: f32, %[[B:.*]]: f32) {
    // CHECK-NEXT: %[[EXPONENT:.*]] = math.fma %[[S]], %arg3, %[[B]] :
    // CHECK-NEXT: %[[WEIGHT:.*]] = math.exp2 %[[EXPONENT]] :
    // CHECK-NEXT: tile.yield %[[WEIGHT]] :
    // CHECK: %[[SHARE:.*]] = tile.reduce add %[[P]] : <[key 16, query 8], f32> -> <[query 8], f32, partial>
    // CHECK-NEXT: %[[ALL:.*]] = tile.map %arg2, %[[SHARE]] (%[[X:.*]]: f32, %[[Y:.*]]: f32) {
    // CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[X]], %[[Y]] :
    // CHECK-NEXT: tile.yield %[[SUM]] :
    // CHECK: return %[[UNIT]], %[[ALL]], %[[P]] :
    %0:3 = attn.softmax_step fixed %s, %m, %l unit %log2 : !s, !row, !sum -> !row, !sum, !s
    return %0#0, %0#1, %0#2 : !row, !sum, !s
  }
  // CHECK-LABEL: func.func @lifted(
  func.func @lifted(%s: !s, %m: !row, %l: !sum, %log2: f32, %lift: !row) -> (!row, !sum, !s, !row, i1) {
    // CHECK-NEXT: %[[LARGEST:.*]] = tile.reduce max %arg0 :
    // CHECK-NEXT: %[[LIFTED:.*]] = tile.map %[[LARGEST]], %arg4 (%[[MAX:.*]]: f32, %[[LIFT:.*]]: f32) {
    // CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[MAX]], %[[LIFT]] :
    // CHECK-NEXT: tile.yield %[[SUM]] :
    // CHECK: tile.map %arg1, %[[LIFTED]] (
    %0:5 = attn.softmax_step %s, %m, %l unit %log2 lift %lift : !s, !row, !sum, !row -> !row, !sum, !s, !row, i1
    return %0#0, %0#1, %0#2, %0#3, %0#4 : !row, !sum, !s, !row, i1
  }
}
