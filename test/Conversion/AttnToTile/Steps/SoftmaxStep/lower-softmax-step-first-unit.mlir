// RUN: attn-opt %s --attn-lower-softmax-step | FileCheck %s

// The first unit is the fraction of a row's largest score in log2, or 1 if the fraction is 0. A row that has a unit
// keeps it.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], f32>
!sum = !tile.fragment<[query 16], f32, partial>
gpu.module @kernels {
  func.func @first_unit(%s: !s, %m: !row, %l: !sum, %log2: f32) -> (!row, !sum, !s) {
    // CHECK: %[[NONE:.*]] = tile.map %arg1 (%[[X:.*]]: f32) {
    // CHECK-NEXT: %[[NO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[IS_NONE:.*]] = arith.cmpf oeq, %[[X]], %[[NO]] :
    // CHECK-NEXT: tile.yield %[[IS_NONE]] :
    // CHECK: %[[ANY:.*]] = tile.any %[[NONE]] :
    // CHECK-NEXT: %{{.*}} = scf.if %[[ANY]] ->
    // CHECK-NEXT: %[[LARGEST:.*]] = tile.reduce max %arg0 :
    // CHECK-NEXT: %[[FIRST:.*]] = tile.map %arg1, %[[NONE]], %[[LARGEST]] (%[[OLD:.*]]: f32, %[[IS:.*]]: i1, %[[MAX:.*]]: f32)
    // CHECK-NEXT: %[[LOG:.*]] = arith.mulf %[[MAX]], %arg3 :
    // CHECK-NEXT: %[[WHOLE:.*]] = arith.constant 0x4B400000 :
    // CHECK-NEXT: %[[UP:.*]] = arith.addf %[[LOG]], %[[WHOLE]] :
    // CHECK-NEXT: %[[SAME:.*]] = arith.constant 0x4B400000 :
    // CHECK-NEXT: %[[ROUNDED:.*]] = arith.subf %[[UP]], %[[SAME]] :
    // CHECK-NEXT: %[[PART:.*]] = arith.subf %[[LOG]], %[[ROUNDED]] :
    // CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[IS_WHOLE:.*]] = arith.cmpf oeq, %[[PART]], %[[ZERO]] :
    // CHECK-NEXT: %[[ONE:.*]] = arith.constant 1.000000e+00 :
    // CHECK-NEXT: %[[UNIT:.*]] = arith.select %[[IS_WHOLE]], %[[ONE]], %[[PART]] :
    // CHECK-NEXT: %[[FOUND:.*]] = arith.divf %[[UNIT]], %arg3 :
    // CHECK-NEXT: %[[INF:.*]] = arith.constant 0xFF800000 :
    // CHECK-NEXT: %[[SEEN:.*]] = arith.cmpf une, %[[MAX]], %[[INF]] :
    // CHECK-NEXT: %[[BEGINS:.*]] = arith.andi %[[IS]], %[[SEEN]] :
    // CHECK-NEXT: %[[RESULT:.*]] = arith.select %[[BEGINS]], %[[FOUND]], %[[OLD]] :
    // CHECK-NEXT: tile.yield %[[RESULT]] :
    // CHECK: scf.yield %[[FIRST]] :
    // CHECK: scf.yield %arg1 :
    %0:3 = attn.softmax_step fixed %s, %m, %l unit %log2 : !s, !row, !sum -> !row, !sum, !s
    return %0#0, %0#1, %0#2 : !row, !sum, !s
  }
}
