// RUN: attn-opt %s --attn-lower-score-fn | FileCheck %s

// Constant factors before the score and at the end merge with the scale; others do not.

!s = !tile.fragment<[query 16, key 64], f32>
!row = !tile.fragment<[query 16], i32>
gpu.module @kernels {
  func.func @factors(%s: !s, %scale: f32, %heads: !row, %at: !row, %first: i32, %pos0: i32) -> !s {
    %three = arith.constant 3.0 : f32
    // CHECK: %[[C3:.*]] = arith.constant 3.000000e+00 :
    // CHECK-NEXT: %[[FRONT:.*]] = arith.mulf %arg1, %[[C3]] fastmath<reassoc,contract> :
    // CHECK: %[[TOKENS:.*]] = tile.coordinates %arg4 : <[key 64], i32>
    // CHECK-NEXT: %[[R:.*]] = tile.map %arg0, %arg2, %arg3, %[[TOKENS]] (%[[S:.*]]: f32, %[[H:.*]]: i32, %[[Q:.*]]: i32, %[[T:.*]]: i32) {
    // CHECK-NEXT: %[[K:.*]] = arith.addi %arg5, %[[T]] :
    // CHECK-NEXT: %[[SCORE:.*]] = arith.mulf %[[S]], %arg1 fastmath<reassoc,contract> :
    // CHECK-NEXT: %[[X:.*]] = arith.mulf %[[S]], %[[FRONT]] fastmath<reassoc,contract> :
    // CHECK-NEXT: %[[D:.*]] = arith.subi %[[Q]], %[[K]] :
    // CHECK-NEXT: %[[E:.*]] = arith.addi %[[D]], %[[H]] :
    // CHECK-NEXT: %[[F:.*]] = arith.sitofp %[[E]] :
    // CHECK-NEXT: %[[C:.*]] = arith.constant 3.000000e+00 :
    // CHECK-NEXT: %[[G:.*]] = arith.mulf %[[F]], %[[C]] : f32
    // CHECK-NEXT: %[[Y:.*]] = arith.addf %[[X]], %[[G]] :
    // CHECK-NEXT: %[[RESULT:.*]] = arith.mulf %[[Y]], %[[C]] fastmath<reassoc,contract> :
    // CHECK-NEXT: tile.yield %[[RESULT]] :
    // CHECK: return %[[R]] :
    %0 = attn.score_fn %s times %scale heads %heads at %at tokens %first pos0 %pos0 {
    ^bb0(%x: f32, %h: i32, %q: i32, %k: i32):
      %a = arith.mulf %x, %three : f32
      %d = arith.subi %q, %k : i32
      %e = arith.addi %d, %h : i32
      %f = arith.sitofp %e : i32 to f32
      %g = arith.mulf %f, %three : f32
      %y = arith.addf %a, %g : f32
      %z = arith.mulf %y, %three : f32
      attn.yield %z : f32
    } : !s, !row, !row -> !s
    return %0 : !s
  }
}
