// RUN: attn-opt %s --attn-lower-score-fn | FileCheck %s

// A tile takes the long form of a tanh if an argument is larger than 0.5, or if f32 cannot hold the coefficients.

!s = !tile.fragment<[key 16, query 32], f32>
!row = !tile.fragment<[query 32], i32>
gpu.module @kernels {
  func.func @long(%s: !s, %scale: f32, %heads: !row, %at: !row, %first: i32, %pos0: i32) -> !s {
    %c = arith.constant 0.25 : f32
    // CHECK: %[[FACTOR:.*]] = arith.mulf %arg1, %{{.*}} fastmath<reassoc,contract> :
    // CHECK: %[[SIZES:.*]] = tile.map %arg0 (%[[S:.*]]: f32) {
    // CHECK-NEXT: %[[ABS:.*]] = math.absf %[[S]] :
    // CHECK-NEXT: tile.yield %[[ABS]] :
    // CHECK: %[[LARGEST:.*]] = tile.reduce max %[[SIZES]] : <[key 16, query 32], f32> -> <[query 32], f32>
    // CHECK-NEXT: %[[SIZE:.*]] = math.absf %[[FACTOR]] :
    // CHECK-NEXT: %[[LEAST:.*]] = arith.constant 1.52587891E-5 :
    // CHECK-NEXT: %[[TINY:.*]] = arith.cmpf olt, %[[SIZE]], %[[LEAST]] :
    // CHECK-NEXT: %[[MOST:.*]] = arith.constant 6.553600e+04 :
    // CHECK-NEXT: %[[HUGE:.*]] = arith.cmpf ogt, %[[SIZE]], %[[MOST]] :
    // CHECK-NEXT: %[[OUTSIDE:.*]] = arith.ori %[[TINY]], %[[HUGE]] :
    // CHECK-NEXT: %[[LARGE:.*]] = tile.map %[[LARGEST]] (%[[L:.*]]: f32) {
    // CHECK-NEXT: %[[X:.*]] = arith.mulf %[[L]], %[[SIZE]] :
    // CHECK-NEXT: %[[HALF:.*]] = arith.constant 5.000000e-01 :
    // CHECK-NEXT: %[[RUNS:.*]] = arith.cmpf ogt, %[[X]], %[[HALF]] :
    // CHECK-NEXT: %[[EITHER:.*]] = arith.ori %[[RUNS]], %[[OUTSIDE]] :
    // CHECK-NEXT: tile.yield %[[EITHER]] :
    // CHECK: %[[ANY:.*]] = tile.any %[[LARGE]] :
    // CHECK-NEXT: %[[R:.*]] = scf.if %[[ANY]] ->
    // CHECK: %[[Y:.*]] = arith.mulf %{{.*}}, %[[FACTOR]] fastmath<reassoc,contract> :
    // CHECK-NEXT: math.tanh %[[Y]] :
    // CHECK: return %[[R]] :
    %0 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 {
    ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
      %y = arith.mulf %x, %c : f32
      %t = math.tanh %y : f32
      attn.yield %t : f32
    } : !s, !row, !row -> !s
    return %0 : !s
  }
}
