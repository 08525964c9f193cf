// RUN: attn-opt %s --attn-lower-softmax-step | FileCheck %s

// With fixed units there is no decay: sums are added, and no maximum is taken but that of a first unit.

!s = !tile.fragment<[key 16, query 32], f32>
!row = !tile.fragment<[query 32], f32>
!sum = !tile.fragment<[query 32], f32, partial>
gpu.module @kernels {
  func.func @fixed(%s: !s, %m: !row, %l: !sum, %log2: f32) -> (!row, !sum, !s) {
    // CHECK: %[[UNIT:.*]] = scf.if %{{.*}} -> (!tile.fragment<[query 32], f32>) {
    // CHECK-NEXT: tile.reduce max %arg0 :
    // CHECK: scf.yield %arg1 :
    // CHECK-NEXT: }
    // CHECK-NEXT: %[[BASE:.*]] = tile.map %[[UNIT]] (%[[U:.*]]: f32) {
    // CHECK-NEXT: %[[LOG:.*]] = arith.mulf %[[U]], %arg3 :
    // CHECK-NEXT: %[[NEGATIVE:.*]] = arith.negf %[[LOG]] :
    // CHECK-NEXT: tile.yield %[[NEGATIVE]] :
    // CHECK: %[[P:.*]] = tile.map %arg0, %[[BASE]] (%[[S:.*]]: f32, %[[B:.*]]: f32) {
    // CHECK-NEXT: %[[EXPONENT:.*]] = math.fma %[[S]], %arg3, %[[B]] :
    // CHECK-NEXT: %[[WEIGHT:.*]] = math.exp2 %[[EXPONENT]] :
    // CHECK-NEXT: tile.yield %[[WEIGHT]] :
    // CHECK: %[[SHARE:.*]] = tile.reduce add %[[P]] : <[key 16, query 32], f32> -> <[query 32], f32, partial>
    // CHECK-NEXT: %[[ALL:.*]] = tile.map %arg2, %[[SHARE]] (%[[X:.*]]: f32, %[[Y:.*]]: f32) {
    // CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[X]], %[[Y]] :
    // CHECK-NEXT: tile.yield %[[SUM]] :
    // CHECK: return %[[UNIT]], %[[ALL]], %[[P]] :
    %0:3 = attn.softmax_step fixed %s, %m, %l unit %log2 : !s, !row, !sum -> !row, !sum, !s
    return %0#0, %0#1, %0#2 : !row, !sum, !s
  }
}
