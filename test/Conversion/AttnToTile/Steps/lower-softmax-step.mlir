// RUN: attn-opt %s --attn-lower-softmax-step | FileCheck %s

// A row's unit moves if its largest score is more than 8 above it in log2. A row that has seen nothing has weight 0.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], f32>
!sum = !tile.fragment<[query 16], f32, partial>
gpu.module @kernels {
  func.func @moving(%s: !s, %m: !row, %l: !sum, %log2: f32) -> (!row, !sum, !s, !row, i1) {
    // CHECK: %[[LARGEST:.*]] = tile.reduce max %arg0 :
    // CHECK-NEXT: %[[U:.*]]:4 = tile.map %arg1, %[[LARGEST]] (%[[OLD:.*]]: f32, %[[SEEN:.*]]: f32) {
    // CHECK-NEXT: %[[GROWTH:.*]] = arith.subf %[[SEEN]], %[[OLD]] :
    // CHECK-NEXT: %[[LOG:.*]] = arith.mulf %[[GROWTH]], %arg3 :
    // CHECK-NEXT: %[[EIGHT:.*]] = arith.constant 8.000000e+00 :
    // CHECK-NEXT: %[[GROWS:.*]] = arith.cmpf ogt, %[[LOG]], %[[EIGHT]] :
    // CHECK-NEXT: %[[UNIT:.*]] = arith.select %[[GROWS]], %[[SEEN]], %[[OLD]] :
    // CHECK-NEXT: %[[INF:.*]] = arith.constant 0xFF800000 :
    // CHECK-NEXT: %[[NOTHING:.*]] = arith.cmpf oeq, %[[UNIT]], %[[INF]] :
    // CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0.000000e+00 :
    // CHECK-NEXT: %[[CENTER:.*]] = arith.select %[[NOTHING]], %[[ZERO]], %[[UNIT]] :
    // CHECK-NEXT: %[[SCALED:.*]] = arith.mulf %[[CENTER]], %arg3 :
    // CHECK-NEXT: %[[BASE:.*]] = arith.negf %[[SCALED]] :
    // CHECK-NEXT: %[[LESS:.*]] = arith.subf %[[OLD]], %[[CENTER]] :
    // CHECK-NEXT: %[[LOG_DECAY:.*]] = arith.mulf %[[LESS]], %arg3 :
    // CHECK-NEXT: %[[DECAY:.*]] = math.exp2 %[[LOG_DECAY]] :
    // CHECK-NEXT: tile.yield %[[UNIT]], %[[GROWS]], %[[BASE]], %[[DECAY]] :
    // CHECK: %[[P:.*]] = tile.map %arg0, %[[U]]#2 (%[[S:.*]]: f32, %[[B:.*]]: f32) {
    // CHECK-NEXT: %[[EXPONENT:.*]] = math.fma %[[S]], %arg3, %[[B]] :
    // CHECK-NEXT: %[[WEIGHT:.*]] = math.exp2 %[[EXPONENT]] :
    // CHECK-NEXT: tile.yield %[[WEIGHT]] :
    // CHECK: %[[SHARE:.*]] = tile.reduce add %[[P]] : {{.*}} partial>
    // CHECK-NEXT: %[[SUM:.*]] = tile.map %arg2, %[[U]]#3, %[[SHARE]] (%[[L:.*]]: f32, %[[D:.*]]: f32, %[[T:.*]]: f32) {
    // CHECK-NEXT: %[[FMA:.*]] = math.fma %[[L]], %[[D]], %[[T]] :
    // CHECK-NEXT: tile.yield %[[FMA]] :
    // CHECK: %[[MOVED:.*]] = tile.any %[[U]]#1 :
    // CHECK-NEXT: return %[[U]]#0, %[[SUM]], %[[P]], %[[U]]#3, %[[MOVED]] :
    %0:5 = attn.softmax_step %s, %m, %l unit %log2 : !s, !row, !sum -> !row, !sum, !s, !row, i1
    return %0#0, %0#1, %0#2, %0#3, %0#4 : !row, !sum, !s, !row, i1
  }
}
